"""Decide how often a stream updates the tables of answers from their ledgers: less often if an update takes long.

An update rewrites the files that contain a changed window. If windows are global, or if an epoch's keys are spread over
a large table, an update rewrites all files, even for a few changed windows. If the stream ran such an update every few
epochs, it would do little else. So updates take at most a quarter of the stream's time. If the answers would then be
further behind than the configured limit, updates take more of the stream's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

FOLLOW_EVERY = 10
"""The maximum number of epochs by which answers may be behind their ledger, if an update takes little time."""

_AHEAD = 2
"""An update starts this many epochs before the limit, because the stream folds more epochs during the update."""

_PARTS = 4
"""Updates take at most the fraction 1/`_PARTS` of the stream's time."""


@dataclass
class Pace:
    """The limits on how far one stream's tables of answers may be behind; one thread updates these tables in turn.

    `every` is the limit in epochs. `freshness` is the maximum time from the start of one update to the start of the
    next update. The limit in time holds even for expensive updates: if necessary, the stream waits for an update.
    `overdue` is the maximum time for which answers are behind if too few epochs arrive to reach `every`.
    """

    every: int
    freshness: timedelta
    overdue: timedelta | None = None
    now: Callable[[], float] = time.monotonic
    _took: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, follow_every: int | None, freshness: timedelta) -> Pace:
        """Return the pace of a stream.

        If `follow_every` is given, an update runs once in every `follow_every` epochs, however long the updates take.
        If `follow_every` is None, expensive updates run less often.
        """
        every, least = (FOLLOW_EVERY, freshness) if follow_every is None else (follow_every, timedelta(0))
        return cls(every, least, overdue=freshness)

    def note(self, name: str, seconds: float) -> None:
        """Record the duration, in seconds, of an update of one table."""
        self._took[name] = seconds

    @property
    def spared(self) -> float:
        """The minimum time, in seconds, from the start of a table's update to the start of the table's next update."""
        return min(self.freshness.total_seconds(), _PARTS * max(self._took.values(), default=0.0))


@dataclass
class Trailing:
    """The progress of one table of answers: how many epochs it is behind its ledger, and when its last update started.

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
    _behind: float = 0.0
    _begun: float = field(init=False)

    def __post_init__(self) -> None:
        self._begun = self.pace.now()

    def published(self) -> None:
        """Record that the ledger has one more published epoch."""
        if self.epochs == self._asked:
            self._behind = self.pace.now()
        self.epochs += 1

    def asks(self) -> bool:
        """Return True if an update of the answers should start now. The result is True only once per update."""
        behind = self.epochs - self._asked
        due = not self._rests and (behind >= max(1, self.pace.every - _AHEAD) or (behind > 0 and self._overdue))
        if due:
            self._asked = self.epochs
        return due

    def waits(self) -> bool:
        """Return True if the answers are so far behind that the stream must wait for the update."""
        return not self._rests and self.epochs - self._followed >= self.pace.every

    @contextmanager
    def following(self, epochs: int) -> Iterator[None]:
        """Measure the duration of the block, which updates the answers so that they cover `epochs` published epochs."""
        self._begun = self.pace.now()
        yield
        self.pace.note(self.name, self.pace.now() - self._begun)
        self._followed = epochs

    @property
    def _overdue(self) -> bool:
        limit = self.pace.overdue
        return limit is not None and self.pace.now() >= self._behind + limit.total_seconds()

    @property
    def _rests(self) -> bool:
        return self.pace.now() < self._begun + self.pace.spared
