"""How a commit becomes visible: written to a branch of the writer's own, then main is moved to it (rules X1, X2).

Moving main succeeds only if main is still where the branch started, so a writer that was overtaken publishes nothing.
In the steady state a branch follows main by itself, and a publication is one commit besides the write.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.lake.catalog import MAIN, Head, Lake, head_of, ref_of
from tailrace.lake.errors import MovedError
from tailrace.lake.notices import Outcome, Publication


@dataclass
class Branch:
    """A writer's branch of one table. `base` is the snapshot of main that its next commit is built on."""

    lake: Lake
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

    def start(self) -> Head:
        """Set the branch to where main stands, and give that."""
        loaded = self.lake.table(self.table)
        head, stands = head_of(loaded), ref_of(loaded, self.name)
        if head.snapshot is not None and stands != head.snapshot:
            self.lake.move(self.table, self.name, head.snapshot, stands)
        self.base = head.snapshot
        return head

    def publish(self) -> int:
        """Move main to what was written, and give that snapshot.

        Raises `MovedError` if main was moved by another, or the branch was removed as that of a writer that is fenced.
        """
        staged = ref_of(self.lake.table(self.table), self.name)
        if staged is None:
            raise MovedError(f"branch {self.name} of {self.table} was removed")
        if staged != self.base:
            try:
                self.lake.move(self.table, MAIN, staged, self.base)
            except MovedError:
                self.lake.tell(Publication(self.table, self.writer, Outcome.MOVED))
                raise
            self.base = staged
            self.lake.tell(Publication(self.table, self.writer, Outcome.PUBLISHED))
        return staged

    def drop(self) -> None:
        """Remove the branch."""
        self.lake.unname(self.table, (self.name,))


__all__ = ["Branch", "MovedError"]
