"""Publish a commit by one protocol, for two ways of writing (rules X1, X2).

Spark writes to a branch of its own, and main is moved to that branch. This process and an executor's Python write files
beside the table, and one commit adds them to main. Both succeed only if main is still where the writer started, so an
overtaken writer publishes nothing. The table gets the branch when Spark first writes to it; a writer without Spark
never creates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile

from tailrace.lake.catalog.events import Outcome, Publication
from tailrace.lake.catalog.table_protocol import MAIN, FileChange, Head, Tables
from tailrace.lake.schema.lake_errors import MovedError


@dataclass
class Branch:
    """A writer's next commit to one table. `base` is the snapshot of main on which the commit is built."""

    lake: Tables
    table: str
    name: str
    base: int | None = None
    _waiting: tuple[FileChange, Mapping[str, str]] | None = field(default=None, repr=False)
    _opened: bool = field(default=False, repr=False)
    _there: bool = field(default=False, repr=False)

    @property
    def writer(self) -> str:
        """The kind of writer, with which the branch's name starts: stream, backfill, follow or claim.

        >>> Branch(None, "rides", "backfill_7f3a").writer
        'backfill'
        """
        return self.name.partition("_")[0]

    def start(self, head: Head | None = None) -> Head:
        """Start from `head`, an earlier head of main, or from main's current head; return the head.

        A writer whose decisions rest on a head has to start there, because it has not seen later commits. Waiting files
        can still be published; rows that Spark wrote have to be written again.
        """
        head = head or self.lake.head(self.table)
        self.base, self._opened = head.snapshot, False
        return head

    def open_for_spark(self) -> str:
        """Set a branch in the table to the base, for one write by Spark; return the branch's name for Spark."""
        self._there = self._opened = True
        self._waiting = None
        self._moved_to(self.base)
        return self.lake.spark_name(self.table, self.name)

    def _moved_to(self, snapshot: int | None) -> None:
        while snapshot is not None and (at := self.lake.refs(self.table).get(self.name)) != snapshot:
            # Nobody else moves this branch. If it has moved, we moved it, and only the reply was lost.
            with suppress(MovedError):
                self.lake.move(self.table, self.name, snapshot, at)

    def hold(self, change: FileChange, properties: Mapping[str, str]) -> None:
        """Hold written files, to publish them in a commit with these properties."""
        self._waiting, self._opened = (change, properties), False

    @property
    def holds(self) -> bool:
        """Whether written files wait to be published. They can be published on any later snapshot."""
        return self._waiting is not None

    def staged_snapshot(self) -> int:
        """Return the branch's snapshot. Raises `MovedError` if the branch was removed."""
        staged = self.lake.refs(self.table).get(self.name)
        if staged is None:
            raise MovedError(f"branch {self.name} of {self.table} was removed")
        return staged

    def publish(self) -> int:
        """Move main to the written commit, and return its snapshot.

        Raises `MovedError` if another writer moved main, or if the branch was removed because its writer was fenced.
        """
        if self._waiting is not None:
            return self._published(*self._waiting)
        assert self._opened, "nothing was written"
        staged = self.staged_snapshot()
        if staged != self.base:
            try:
                self.lake.move(self.table, MAIN, staged, self.base)
            except MovedError:
                # If a reply was lost and the move was tried again, we may have moved it ourselves.
                if all(commit.snapshot != staged for commit in self.lake.commits(self.table)):
                    self.lake.tell(Publication(self.table, self.writer, Outcome.MOVED))
                    raise
            self.base = staged
            self.lake.tell(Publication(self.table, self.writer, Outcome.PUBLISHED))
        self._opened = False
        return staged

    def _published(self, change: FileChange, properties: Mapping[str, str]) -> int:
        try:
            self.base = self.lake.change(self.table, change, properties, self.base)
        except MovedError:
            ours = self._landed(properties)
            if ours is None:
                self.lake.tell(Publication(self.table, self.writer, Outcome.MOVED))
                raise
            self.base = ours
        self._waiting = None
        self.lake.tell(Publication(self.table, self.writer, Outcome.PUBLISHED))
        # A branch behind main would keep its snapshot from expiring.
        with suppress(MovedError):
            self.drop()
        return self.base

    def _landed(self, properties: Mapping[str, str]) -> int | None:
        """Find the commit above the base with exactly these properties: it is ours, and only its reply was lost."""
        above = takewhile(lambda commit: commit.snapshot != self.base, self.lake.commits(self.table))
        return next((commit.snapshot for commit in above if commit.properties == properties), None)

    def commit_again(self, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit the written files again, on top of main at `expected`, with these properties; return the snapshot.

        Raises `MovedError` if main is elsewhere.
        """
        if self._waiting is not None:
            return self.lake.change(self.table, self._waiting[0], properties, expected)
        return self.lake.graft(self.table, self.staged_snapshot(), properties, expected)

    def drop(self) -> None:
        """Forget the waiting files, and remove the branch if it exists."""
        self._waiting = None
        if self._there:
            self.lake.unname(self.table, (self.name,))
            self._there = False


__all__ = ["Branch", "MovedError"]
