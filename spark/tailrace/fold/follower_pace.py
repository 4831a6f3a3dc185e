"""Pace how often a stream brings its answers up with their ledgers: less often where that is dear.

Bringing answers up rewrites the files that hold a window that changed. Where windows are global, or keys come from
everywhere in a large table, these are all its files, however few windows change; done every few epochs the stream would
do little else. So bringing up takes a quarter of the time at most, as long as the answers are not too far
behind for their readers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

FOLLOW_EVERY = 10
"""The number of epochs that answers may be behind their ledger where bringing them up costs little."""

_AHEAD = 2
"""The number of epochs before answers would be too far behind at which they are asked to follow: epochs go on."""

_PARTS = 4
"""Bringing up takes one part in so many of the time."""


@dataclass
class Pace:
    """The limits on how far behind the tables of answers of one stream may be, which one thread brings up in turn.

    `every` counts epochs. `freshness` is the longest that the next bringing up may wait after one began, however dear
    it is: then the stream waits for it.
    """

    every: int
    freshness: timedelta
    now: Callable[[], float] = time.monotonic
    _took: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, follow_every: int | None, freshness: timedelta) -> Pace:
        """Make a pace that keeps to `follow_every` epochs, whatever that costs, or, if it is None, goes by the cost."""
        return cls(FOLLOW_EVERY, freshness) if follow_every is None else cls(follow_every, timedelta(0))

    def note(self, name: str, seconds: float) -> None:
        """Record how long bringing up one table took, in seconds."""
        self._took[name] = seconds

    @property
    def spared(self) -> float:
        """The seconds after a bringing up began in which a table needs no other one."""
        return min(self.freshness.total_seconds(), _PARTS * max(self._took.values(), default=0.0))


@dataclass
class Trailing:
    """The lag of one table of answers behind its ledger, in published epochs, and when it was last brought up.

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
        """Count one more epoch in the ledger."""
        self.epochs += 1

    def asks(self) -> bool:
        """Tell whether it is time to have the answers brought up, which is asked for once."""
        due = not self._rests and self.epochs - self._asked >= max(1, self.pace.every - _AHEAD)
        if due:
            self._asked = self.epochs
        return due

    def waits(self) -> bool:
        """Tell whether the answers are so far behind that the stream waits for it."""
        return not self._rests and self.epochs - self._followed >= self.pace.every

    @contextmanager
    def following(self, epochs: int) -> Iterator[None]:
        """Time the block, which brings the answers up to so many epochs."""
        self._begun = self.pace.now()
        yield
        self.pace.note(self.name, self.pace.now() - self._begun)
        self._followed = epochs

    @property
    def _rests(self) -> bool:
        return self.pace.now() < self._begun + self.pace.spared
