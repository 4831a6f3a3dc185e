"""Publish commits by one protocol, although files are written in two different ways (rules X1 and X2).

Spark writes to the writer's own branch, and then main is moved to the snapshot of this branch. This process, and the
Python workers of Spark's executors, write files that are not yet part of the table; then one commit adds the files to
main. With either way of writing, publishing succeeds only if main has not moved since the writer started. So a writer
publishes nothing if another writer has moved main first. The writer's branch is created when Spark first writes to the
table; a writer without Spark never creates a branch.
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
    """A writer's branch of one table, and the commit that the writer is preparing.

    `base` is the snapshot of main on which this commit is built.
    """

    lake: Tables
    table: str
    name: str
    base: int | None = None
    _waiting: tuple[FileChange, Mapping[str, str]] | None = field(default=None, repr=False)
    _opened: bool = field(default=False, repr=False)
    _there: bool = field(default=False, repr=False)

    @property
    def writer(self) -> str:
        """The kind of writer, which is the first part of the branch's name: stream, backfill, follow or claim.

        >>> Branch(None, "rides", "backfill_7f3a").writer
        'backfill'
        """
        return self.name.partition("_")[0]

    def start(self, head: Head | None = None) -> Head:
        """Base the next commit on `head`, or on main's current head if `head` is None; return this head.

        If the writer has based decisions on a certain head of main, the writer has to pass this head, because the
        decisions do not take later commits into account. Files that are waiting to be published stay usable. Rows that
        Spark has written to the branch have to be written again.
        """
        head = head or self.lake.head(self.table)
        self.base, self._opened = head.snapshot, False
        return head

    def open_for_spark(self) -> str:
        """Move the branch to snapshot `base`, for one write by Spark; return the branch's name in Spark SQL."""
        self._there = self._opened = True
        self._waiting = None
        self._moved_to(self.base)
        return self.lake.spark_name(self.table, self.name)

    def _moved_to(self, snapshot: int | None) -> None:
        while snapshot is not None and (at := self.lake.refs(self.table).get(self.name)) != snapshot:
            # No other writer moves this branch. If the branch has moved, this writer has moved it, and only the
            # catalog's reply was lost.
            with suppress(MovedError):
                self.lake.move(self.table, self.name, snapshot, at)

    def hold(self, change: FileChange, properties: Mapping[str, str]) -> None:
        """Keep a change whose files are already written, to publish the change later in a commit with these
        properties.
        """
        self._waiting, self._opened = (change, properties), False

    @property
    def holds(self) -> bool:
        """Whether written files are waiting to be published.

        These files can be published on top of any later snapshot.
        """
        return self._waiting is not None

    def staged_snapshot(self) -> int:
        """Return the id of the snapshot at which the branch is now. Raises `MovedError` if the branch was removed."""
        staged = self.lake.refs(self.table).get(self.name)
        if staged is None:
            raise MovedError(f"branch {self.name} of {self.table} was removed")
        return staged

    def publish(self) -> int:
        """Publish the writer's commit on main, and return the commit's snapshot id.

        Raises `MovedError` if another writer moved main, or if the branch was removed because the writer had lost its
        lease.
        """
        if self._waiting is not None:
            return self._published(*self._waiting)
        assert self._opened, "nothing was written"
        staged = self.staged_snapshot()
        if staged != self.base:
            try:
                self.lake.move(self.table, MAIN, staged, self.base)
            except MovedError:
                # If the catalog's reply to a first request was lost, that request may have moved main. The second
                # request then fails, although the commit is on main.
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
        # The writer's branch is removed because, if it stayed behind main, it would keep its snapshot from expiring.
        with suppress(MovedError):
            self.drop()
        return self.base

    def _landed(self, properties: Mapping[str, str]) -> int | None:
        """Return the snapshot of this writer's commit if the commit is on main, or None.

        The commit is recognized by its properties, which must be exactly `properties`. Only commits later than `base`
        are searched. If the commit is found, it has succeeded, and only the catalog's reply was lost.
        """
        above = takewhile(lambda commit: commit.snapshot != self.base, self.lake.commits(self.table))
        return next((commit.snapshot for commit in above if commit.properties == properties), None)

    def commit_again(self, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit the written files again, with these properties, if main is at snapshot `expected`; return the snapshot
        id.

        Raises `MovedError` if main is at another snapshot.
        """
        if self._waiting is not None:
            return self.lake.change(self.table, self._waiting[0], properties, expected)
        return self.lake.graft(self.table, self.staged_snapshot(), properties, expected)

    def drop(self) -> None:
        """Discard the files that are waiting to be published, and remove the branch if it exists."""
        self._waiting = None
        if self._there:
            self.lake.unname(self.table, (self.name,))
            self._there = False


__all__ = ["Branch", "MovedError"]
