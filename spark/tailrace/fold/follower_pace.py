"""Decide how often a stream updates its answers from their ledgers: less often where that is expensive.

An update rewrites the files that hold a changed window. Where windows are global, or the keys of an epoch are all over
a large table, these are all files, even for few changed windows. With such an update every few epochs, the stream would
do little else. So updates take at most a quarter of the time, unless the answers would be too far behind for their
readers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

FOLLOW_EVERY = 10
"""The number of epochs that answers may be behind their ledger where an update is cheap."""

_AHEAD = 2
"""The number of epochs before the limit at which an update starts, as epochs go on during the update."""

_PARTS = 4
"""Updates take at most this fraction of the time, as 1 in so many."""


@dataclass
class Pace:
    """The limits on the lag of the tables of answers of one stream, which one thread updates in turn.

    `every` is the lag in epochs. `freshness` is the maximum time from the beginning of one update to the next, even of
    an expensive one: then the stream waits for the update.
    """

    every: int
    freshness: timedelta
    now: Callable[[], float] = time.monotonic
    _took: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, follow_every: int | None, freshness: timedelta) -> Pace:
        """Make a pace of one update in `follow_every` epochs, whatever it costs; if that is None, the cost decides."""
        return cls(FOLLOW_EVERY, freshness) if follow_every is None else cls(follow_every, timedelta(0))

    def note(self, name: str, seconds: float) -> None:
        """Record the seconds of an update of one table."""
        self._took[name] = seconds

    @property
    def spared(self) -> float:
        """The seconds after the beginning of an update in which a table needs no other update."""
        return min(self.freshness.total_seconds(), _PARTS * max(self._took.values(), default=0.0))


@dataclass
class Trailing:
    """The lag of one table of answers behind its ledger, in published epochs, and the time of its last update.

    >>> trailing = Trailing("bills", Pace(4, timedelta(0)))
    >>> for _ in range(4):
    ...     trailing.published()
    ...     print(trailing.asks(), trailing.waits())
    False False
    True False
    False False
    True True
    """

    name: str
    pace: Pace
    epochs: int = 0
    _asked: int = 0
    _followed: int = 0
    _begun: float = field(init=False)

    def __post_init__(self) -> None:
        self._begun = self.pace.now()

    def published(self) -> None:
        """Count one more epoch as published in the ledger."""
        self.epochs += 1

    def asks(self) -> bool:
        """Tell whether it is time to update the answers; the answer is yes once for each update."""
        due = not self._rests and self.epochs - self._asked >= max(1, self.pace.every - _AHEAD)
        if due:
            self._asked = self.epochs
        return due

    def waits(self) -> bool:
        """Tell whether the answers are so far behind that the stream has to wait for the update."""
        return not self._rests and self.epochs - self._followed >= self.pace.every

    @contextmanager
    def following(self, epochs: int) -> Iterator[None]:
        """Time the block, which updates the answers up to so many epochs."""
        self._begun = self.pace.now()
        yield
        self.pace.note(self.name, self.pace.now() - self._begun)
        self._followed = epochs

    @property
    def _rests(self) -> bool:
        return self.pace.now() < self._begun + self.pace.spared
