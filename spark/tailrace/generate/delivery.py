"""Deliveries: generated records, each with the time at which a source delivers the record."""

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
    """A record, and the time `known` at which a source delivers it. All instants are in microseconds.

    `log` is the name of the record's log, or None if the generator has only one log.
    """

    known: int
    record: Mapping[str, Any]
    log: str | None = None


def by_known_time(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Sort deliveries by their time `known`. Deliveries with the same time `known` keep their order."""
    return sorted(deliveries, key=lambda one: one.known)


@dataclass(frozen=True)
class Zipf:
    """A Zipf distribution over the numbers from 0 to `count` - 1. The n-th number has the weight 1 / n ** `skew`.

    >>> from random import Random
    >>> drawn = [Zipf(100, 1.0).draw(chance) for chance in [Random(1)] for _ in range(1000)]
    >>> drawn.count(0) > drawn.count(9) > drawn.count(99)
    True
    """

    count: int
    skew: float

    def draw(self, chance: Random) -> int:
        """Return a random number from this distribution."""
        return chance.choices(range(self.count), cum_weights=self._shares)[0]

    @cached_property
    def _shares(self) -> Sequence[float]:
        return list(accumulate(1 / (number + 1) ** self.skew for number in range(self.count)))


def arrivals(chance: Random, rate: float, first: int, last: int) -> Iterator[int]:
    """Yield the times of the events of a Poisson process in `[first, last)`, with `rate` events per second.

    All times are in microseconds.
    """
    at = first + int(chance.expovariate(rate) * SECOND)
    while at < last:
        yield at
        at += max(1, int(chance.expovariate(rate) * SECOND))
