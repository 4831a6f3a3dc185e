"""How a commit becomes visible: written to a branch of the writer's own, then main is moved to it (rules X1, X2).

Moving main succeeds only if main is still where the branch started, so a writer that was overtaken publishes nothing.
In the steady state a branch follows main by itself, and a publication is one commit besides the write.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException

from tailrace.lake.catalog import MAIN, Head, Lake, head_of
from tailrace.lake.errors import MovedError
from tailrace.lake.notices import Outcome, Publication

_TRIES = 20


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
        head = head_of(loaded)
        ref = loaded.metadata.refs.get(self.name)
        if head.snapshot is not None and (ref is None or ref.snapshot_id != head.snapshot):
            self.lake.move(self.table, self.name, head.snapshot, ref.snapshot_id if ref else None)
        self.base = head.snapshot
        return head

    def publish(self) -> int:
        """Move main to what was written, and give that snapshot. Raises `MovedError` if main was moved by another."""
        staged = self.lake.table(self.table).metadata.refs[self.name].snapshot_id
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
        for left in reversed(range(_TRIES)):
            loaded = self.lake.table(self.table)
            if self.name not in loaded.metadata.refs:
                return
            try:
                loaded.manage_snapshots().remove_branch(self.name).commit()
                return
            except CommitFailedException:
                # Something else of the table was committed in between.
                if not left:
                    raise


__all__ = ["Branch", "MovedError"]
