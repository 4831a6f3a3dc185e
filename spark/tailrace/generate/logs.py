"""The logs that can be made up, by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tailrace.generate.ads import ads
from tailrace.generate.delivery import Delivery
from tailrace.generate.queries import queries


@dataclass(frozen=True)
class Made:
    """What is asked of a generator: `rate` a second, for `length` microseconds from the instant `first` on."""

    rate: float
    length: int
    seed: int
    first: int


@dataclass(frozen=True)
class Generated:
    """A log that can be made up. `instants` names its columns that are instants."""

    made: Callable[[Made], list[Delivery]]
    instants: Sequence[str]


LOGS: Mapping[str, Generated] = {
    "ads": Generated(
        lambda asked: ads(rate=asked.rate, length=asked.length, seed=asked.seed, first=asked.first), ("at", "known")
    ),
    "queries": Generated(
        lambda asked: queries(rate=asked.rate, length=asked.length, seed=asked.seed, first=asked.first), ("at",)
    ),
}
