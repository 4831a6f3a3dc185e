"""Deliveries: the records that a generator gives, each with the instant at which a source brings it."""

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
    """A record that a source brings at `known`, in microseconds; instants in it are in microseconds, too.

    `log` names the log that it is of, where there are several.
    """

    known: int
    record: Mapping[str, Any]
    log: str | None = None


def in_order(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Sort deliveries by the instant at which they are brought; those of one instant keep their order."""
    return sorted(deliveries, key=lambda one: one.known)


@dataclass(frozen=True)
class Zipf:
    """A Zipf distribution over the numbers below `count`: the n-th comes in proportion to 1 / n to the power of `skew`.

    >>> from random import Random
    >>> drawn = [Zipf(100, 1.0).drawn(chance) for chance in [Random(1)] for _ in range(1000)]
    >>> drawn.count(0) > drawn.count(9) > drawn.count(99)
    True
    """

    count: int
    skew: float

    def drawn(self, chance: Random) -> int:
        """Draw a number."""
        return chance.choices(range(self.count), cum_weights=self._shares)[0]

    @cached_property
    def _shares(self) -> Sequence[float]:
        return list(accumulate(1 / (number + 1) ** self.skew for number in range(self.count)))


def arrivals(chance: Random, rate: float, first: int, last: int) -> Iterator[int]:
    """Yield the instants of a Poisson process of `rate` a second in `[first, last)`, in microseconds."""
    at = first + int(chance.expovariate(rate) * SECOND)
    while at < last:
        yield at
        at += max(1, int(chance.expovariate(rate) * SECOND))
