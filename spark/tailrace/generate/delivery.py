"""What a generator gives: records as a source brings them, each at its time."""

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
    """A record that a source brings at `known`, in microseconds; instants in it are in microseconds, too."""

    known: int
    record: Mapping[str, Any]


def in_order(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """In the order in which they are brought; what is brought at one time, in the order in which it was given."""
    return sorted(deliveries, key=lambda one: one.known)


@dataclass(frozen=True)
class Zipf:
    """Numbers below `count`, the first the most often: the n-th in proportion to 1 / n to the power of `skew`.

    >>> from random import Random
    >>> drawn = [Zipf(100, 1.0).drawn(chance) for chance in [Random(1)] for _ in range(1000)]
    >>> drawn.count(0) > drawn.count(9) > drawn.count(99)
    True
    """

    count: int
    skew: float

    def drawn(self, chance: Random) -> int:
        """One of them."""
        return chance.choices(range(self.count), cum_weights=self._shares)[0]

    @cached_property
    def _shares(self) -> Sequence[float]:
        return list(accumulate(1 / (number + 1) ** self.skew for number in range(self.count)))


def arrivals(chance: Random, rate: float, first: int, last: int) -> Iterator[int]:
    """Instants of a Poisson process of `rate` a second in `[first, last)`, in microseconds."""
    at = first + int(chance.expovariate(rate) * SECOND)
    while at < last:
        yield at
        at += max(1, int(chance.expovariate(rate) * SECOND))
