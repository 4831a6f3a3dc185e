"""The processing time of a test's stream, which the test moves."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tailrace.model.base.time import duration, moment
from tailrace.testing.epochs import EpochsError, Instant, micros_of


@dataclass
class ProcessingTime:
    """The processing time of the next epochs; until a test moves it, it follows the records.

    >>> from tailrace import minutes
    >>> clock = ProcessingTime()
    >>> clock.set("2026-03-01T09:00")
    >>> clock.advance(minutes(5))
    >>> clock.now.isoformat()
    '2026-03-01T09:05:00+00:00'
    """

    micros: int | None = None
    reached: int | None = None
    """The processing time of the last epoch, in microseconds."""

    @property
    def now(self) -> datetime | None:
        """The processing time; None before the first epoch, if the test has not set it."""
        at = self.reached if self.micros is None else self.micros
        return None if at is None else moment(at)

    def set(self, now: Instant) -> None:
        """Move the time to an instant, which must not be before the time of the last epoch."""
        micros = micros_of("now", now)
        if self.reached is not None and micros < self.reached:
            raise EpochsError(f"now = {now}: expected no time before the last epoch's")
        self.micros = micros

    def advance(self, by: timedelta) -> None:
        """Move the time on."""
        now = self.reached if self.micros is None else self.micros
        if now is None:
            raise EpochsError("the clock has no time to advance from yet: set it, or fold an epoch first")
        self.micros = now + duration(by)
