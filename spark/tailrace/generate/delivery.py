"""Deliveries: the records of a generator, each with the time at which a source delivers it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Any

SECOND = 1_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND


@dataclass(frozen=True)
class Delivery:
    """A record that a source delivers at `known`, in microseconds. Instants in the record are in microseconds as well.

    `log` is the name of the record's log; None if the generator has only one log.
    """

    known: int
    record: Mapping[str, Any]
    log: str | None = None


def by_known_time(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Sort deliveries by known time. Deliveries with equal known times keep their order."""
    return sorted(deliveries, key=lambda one: one.known)


@dataclass(frozen=True)
class Zipf:
    """A Zipf distribution over the numbers below `count`: the n-th has a weight of 1 / n to the power of `skew`.

    >>> from random import Random
    >>> drawn = [Zipf(100, 1.0).draw(chance) for chance in [Random(1)] for _ in range(1000)]
    >>> drawn.count(0) > drawn.count(9) > drawn.count(99)
    True
    """

    count: int
    skew: float

    def draw(self, chance: Random) -> int:
        """Draw a number from the distribution."""
        return chance.choices(range(self.count), cum_weights=self._shares)[0]

    @cached_property
    def _shares(self) -> Sequence[float]:
        return list(accumulate(1 / (number + 1) ** self.skew for number in range(self.count)))


def arrivals(chance: Random, rate: float, first: int, last: int) -> Iterator[int]:
    """Yield the times of a Poisson process with `rate` events per second in `[first, last)`, in microseconds."""
    at = first + int(chance.expovariate(rate) * SECOND)
    while at < last:
        yield at
        at += max(1, int(chance.expovariate(rate) * SECOND))
