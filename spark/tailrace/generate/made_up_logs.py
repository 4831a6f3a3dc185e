"""List the generators of sample logs by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tailrace.generate.ads import ads
from tailrace.generate.delivery import Delivery
from tailrace.generate.nexmark import auctions, nexmark
from tailrace.generate.orders import orders
from tailrace.generate.queries import queries
from tailrace.generate.searches import searches


class Generator(Protocol):
    """A function that generates `rate` records per second, over `length` microseconds of event time from `first` on."""

    def __call__(self, *, rate: float, length: int, seed: int, first: int) -> list[Delivery]:
        """Generate the records, and return them in the order in which they become known."""


@dataclass(frozen=True)
class MadeUpLog:
    """A generator of one or several logs.

    `instants` names the columns of these logs whose values are instants. If `compressed` is True, the files are
    compressed with gzip.
    """

    generate: Generator
    instants: Sequence[str] = ()
    compressed: bool = False


LOGS: Mapping[str, MadeUpLog] = {
    "ads": MadeUpLog(ads, ("at", "known")),
    "auctions": MadeUpLog(auctions, ("date_time", "expires")),
    "nexmark": MadeUpLog(nexmark, ("date_time", "expires")),
    "orders": MadeUpLog(orders, compressed=True),
    "queries": MadeUpLog(queries, ("at",)),
    "searches": MadeUpLog(searches, ("at", "known")),
}
