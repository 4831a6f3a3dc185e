"""How often a stream brings its tables `p` up with their ledgers: every few epochs, and less often where that is dear.

Bringing `p` up rewrites the files that hold a window that changed. Where windows are global, or keys come from
everywhere in a large table, these are all its files, however few windows change; done every few epochs the stream would
do little else. So it takes a quarter of the time at most, as long as `p` is not too far behind for its readers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

FOLLOW_EVERY = 10
"""How many epochs `p` may be behind its ledger where bringing it up costs little."""

_AHEAD = 2
"""How many epochs before `p` would be too far behind it is asked to follow, as epochs go on beside."""

_PARTS = 4
"""Of how many parts of the time bringing up takes one."""


@dataclass
class Pace:
    """How far behind the tables `p` of one stream may be, which one thread brings up in turn.

    `every` counts epochs. `freshness` is how long after a bringing up began the next may wait at most, however dear it
    is: then the stream waits for it.
    """

    every: int
    freshness: timedelta
    now: Callable[[], float] = time.monotonic
    _took: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, follow_every: int | None, freshness: timedelta) -> Pace:
        """Keep to a number of epochs that is asked for, whatever it costs; go by the cost where none is."""
        return cls(FOLLOW_EVERY, freshness) if follow_every is None else cls(follow_every, timedelta(0))

    def note(self, name: str, seconds: float) -> None:
        """Take in how long bringing up one table took."""
        self._took[name] = seconds

    @property
    def spared(self) -> float:
        """For how many seconds after a bringing up began a table needs no other one."""
        return min(self.freshness.total_seconds(), _PARTS * max(self._took.values(), default=0.0))


@dataclass
class Trailing:
    """How far one table `p` is behind its ledger, in epochs that were published, and since when.

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
        """One more epoch is in the ledger."""
        self.epochs += 1

    def asks(self) -> bool:
        """Whether it is time to have `p` brought up, which it is asked once."""
        due = not self._rests and self.epochs - self._asked >= max(1, self.pace.every - _AHEAD)
        if due:
            self._asked = self.epochs
        return due

    def waits(self) -> bool:
        """Whether `p` is so far behind that the stream waits for it."""
        return not self._rests and self.epochs - self._followed >= self.pace.every

    @contextmanager
    def following(self, epochs: int) -> Iterator[None]:
        """Time a bringing up to so many epochs, which the block does."""
        self._begun = self.pace.now()
        yield
        self.pace.note(self.name, self.pace.now() - self._begun)
        self._followed = epochs

    @property
    def _rests(self) -> bool:
        return self.pace.now() < self._begun + self.pace.spared
