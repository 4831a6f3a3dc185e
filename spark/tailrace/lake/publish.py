"""How a commit becomes visible: written to a branch of the writer's own, then main is moved to it (rules X1, X2).

Moving main succeeds only if main is still where the branch started, so a writer that was overtaken publishes nothing.
In the steady state a branch follows main by itself, and a publication is one commit besides the write.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tailrace.lake.errors import MovedError
from tailrace.lake.notices import Outcome, Publication
from tailrace.lake.tables import MAIN, Head, Tables


@dataclass
class Branch:
    """A writer's branch of one table. `base` is the snapshot of main that its next commit is built on."""

    lake: Tables
    table: str
    name: str
    base: int | None = None

    @property
    def writer(self) -> str:
        """What kind of writer it is of, which its name starts with: stream, backfill or follow."""
        return self.name.partition("_")[0]

    @property
    def target(self) -> str:
        """What Spark writes to."""
        return self.lake.spark_name(self.table, self.name)

    def start(self, head: Head | None = None) -> Head:
        """Set the branch to `head`, which is where main was seen to stand, or to where it stands now; gives that.

        Whoever made up their mind by a head has to start there: what comes on top of it later was not looked at.
        """
        head = head or self.lake.head(self.table)
        while head.snapshot is not None and (at := self.lake.refs(self.table).get(self.name)) != head.snapshot:
            # Nobody else moves it: if it has moved, the reply was lost on its way.
            with suppress(MovedError):
                self.lake.move(self.table, self.name, head.snapshot, at)
        self.base = head.snapshot
        return head

    def staged(self) -> int:
        """The snapshot that the branch stands at. Raises `MovedError` where it was removed."""
        staged = self.lake.refs(self.table).get(self.name)
        if staged is None:
            raise MovedError(f"branch {self.name} of {self.table} was removed")
        return staged

    def publish(self) -> int:
        """Move main to what was written, and give that snapshot.

        Raises `MovedError` if main was moved by another, or the branch was removed as that of a writer that is fenced.
        """
        staged = self.staged()
        if staged != self.base:
            try:
                self.lake.move(self.table, MAIN, staged, self.base)
            except MovedError:
                # By ourselves, where the reply was lost on its way and the move was tried again.
                if all(commit.snapshot != staged for commit in self.lake.commits(self.table)):
                    self.lake.tell(Publication(self.table, self.writer, Outcome.MOVED))
                    raise
            self.base = staged
            self.lake.tell(Publication(self.table, self.writer, Outcome.PUBLISHED))
        return staged

    def drop(self) -> None:
        """Remove the branch."""
        self.lake.unname(self.table, (self.name,))


__all__ = ["Branch", "MovedError"]
