"""Make a commit visible (rules X1, X2): one protocol, two ways to write.

Spark writes to a branch of the writer's own, and main is moved to that branch. What this process or an executor's
Python writes are files beside the table, which one commit adds to main. Both succeed only if main is still where the
writer started, so a writer that was overtaken publishes nothing. The table has the branch from when Spark first writes
to it, so a writer without Spark makes none.
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
    """A writer's next commit to one table. `base` is the snapshot of main that the commit is built on."""

    lake: Tables
    table: str
    name: str
    base: int | None = None
    _waiting: tuple[FileChange, Mapping[str, str]] | None = field(default=None, repr=False)
    _opened: bool = field(default=False, repr=False)
    _there: bool = field(default=False, repr=False)

    @property
    def writer(self) -> str:
        """The kind of the writer, which the branch's name starts with: stream, backfill, follow or claim.

        >>> Branch(None, "rides", "backfill_7f3a").writer
        'backfill'
        """
        return self.name.partition("_")[0]

    def start(self, head: Head | None = None) -> Head:
        """Start from `head`, at which main was seen, or from where main stands now; return that head.

        A writer that decided by a head has to start there: it has not looked at the commits on top of that head. Files
        that wait can still be published; what Spark wrote has to be written again.
        """
        head = head or self.lake.head(self.table)
        self.base, self._opened = head.snapshot, False
        return head

    def opened(self) -> str:
        """Have a branch in the table, at the base, for Spark to write to once; return the name that Spark writes to."""
        self._there = self._opened = True
        self._waiting = None
        self._moved_to(self.base)
        return self.lake.spark_name(self.table, self.name)

    def _moved_to(self, snapshot: int | None) -> None:
        while snapshot is not None and (at := self.lake.refs(self.table).get(self.name)) != snapshot:
            # Nobody else moves this branch: if it has moved, we moved it, and only the reply was lost.
            with suppress(MovedError):
                self.lake.move(self.table, self.name, snapshot, at)

    def hold(self, change: FileChange, properties: Mapping[str, str]) -> None:
        """Take written files, to be published in a commit with these properties."""
        self._waiting, self._opened = (change, properties), False

    @property
    def holds(self) -> bool:
        """Whether written files wait to be published: they can be, whatever the table holds by then."""
        return self._waiting is not None

    def staged(self) -> int:
        """Return the snapshot that the branch stands at. Raises `MovedError` where the branch was removed."""
        staged = self.lake.refs(self.table).get(self.name)
        if staged is None:
            raise MovedError(f"branch {self.name} of {self.table} was removed")
        return staged

    def publish(self) -> int:
        """Move main to the written commit, and return its snapshot.

        Raises `MovedError` if another moved main, or if the branch was removed because its writer was fenced.
        """
        if self._waiting is not None:
            return self._published(*self._waiting)
        assert self._opened, "nothing was written"
        staged = self.staged()
        if staged != self.base:
            try:
                self.lake.move(self.table, MAIN, staged, self.base)
            except MovedError:
                # We may have moved it ourselves, where the reply was lost and the move was tried again.
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
        # A branch that main leaves behind would keep what it names from expiring.
        with suppress(MovedError):
            self.drop()
        return self.base

    def _landed(self, properties: Mapping[str, str]) -> int | None:
        """Find the commit above the base with just these properties: it is ours, and only its reply was lost."""
        above = takewhile(lambda commit: commit.snapshot != self.base, self.lake.commits(self.table))
        return next((commit.snapshot for commit in above if commit.properties == properties), None)

    def again(self, properties: Mapping[str, str], expected: int | None) -> int:
        """Commit the written files again, on top of main at `expected`, with these properties; return the snapshot.

        Raises `MovedError` where main stands elsewhere.
        """
        if self._waiting is not None:
            return self.lake.change(self.table, self._waiting[0], properties, expected)
        return self.lake.graft(self.table, self.staged(), properties, expected)

    def drop(self) -> None:
        """Forget the written files, and remove the branch if there is one."""
        self._waiting = None
        if self._there:
            self.lake.unname(self.table, (self.name,))
            self._there = False


__all__ = ["Branch", "MovedError"]
