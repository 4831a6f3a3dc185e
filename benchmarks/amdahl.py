"""Amdahl's law: on n cores a job takes T(n) = s + p / n; s is the serial work, p the work that all cores share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.planning.least_squares import nonnegative


@dataclass(frozen=True)
class Fit:
    """The serial seconds of a job, and the seconds that cores share; `error` is the largest relative error.

    Two numbers go through two points, so `error` is None unless there were more.
    """

    serial: float
    shared: float
    error: float | None = None

    def seconds(self, cores: int) -> float:
        """Return the seconds that the job takes on a number of cores."""
        return self.serial + self.shared / cores

    @property
    def serial_share(self) -> float:
        """The share of the time on one core that is serial."""
        return self.serial / (self.serial + self.shared)


def fitted(seconds: Mapping[int, float]) -> Fit:
    """Return the fit to the seconds that a job took on numbers of cores; neither part is negative.

    >>> one = fitted({1: 10.0, 2: 6.0})
    >>> round(one.serial, 6), round(one.shared, 6), round(one.seconds(16), 6), round(one.serial_share, 6), one.error
    (2.0, 8.0, 2.5, 0.2, None)
    >>> round(fitted({1: 10.0, 2: 6.0, 4: 5.0}).error, 2)
    0.07
    """
    serial, shared = nonnegative([(1, 1 / cores) for cores in seconds], list(seconds.values()))
    found = Fit(serial, shared)
    if len(seconds) < 3:
        return found
    return Fit(serial, shared, max(abs(found.seconds(cores) / took - 1) for cores, took in seconds.items()))
