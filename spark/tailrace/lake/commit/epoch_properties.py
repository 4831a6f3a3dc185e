"""What a commit of a log says of its epoch, besides the epoch itself (rule X2)."""

from __future__ import annotations

from tailrace.lake.catalog.lake import Lake, head_of, properties
from tailrace.lake.catalog.table_protocol import MAINTAINED, Head, repeated
from tailrace.lake.commit.archive import commits
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.model.step.progress import Progress

CLOCK = ("watermark", "processing_time")
"""The clock's two times, in microseconds."""

PROGRESS = "progress"
"""How far the source's partitions are."""

READ = ("query", "batch", "offset")
"""How far the source was read: by which query of Spark's, in which micro-batch, up to which offset of the source."""

ENGINE = "engine"
"""What folded an epoch, and why (`engines.choose.Choice`)."""

ONWARD = "onward"
"""What a ledger's commit says of the watermark that those who read it may have after the epoch (rule T3)."""

DUPLICATES = "duplicates"
"""How many records were dropped because they came again, in all epochs up to this one (rule X5)."""


def recorded(lake: Lake, table: str) -> dict[int, dict[str, str]]:
    """What a log's or ledger's commits say of each epoch and its clock, those of expired snapshots included."""
    found: dict[int, dict[str, str]] = {}
    for one in commits(lake, table).all:
        # A commit beside the stream repeats what the last epoch's says.
        if CLOCK[1] in one.said:
            found.setdefault(int(one.said["epoch"]), dict(one.said))
    return found


def carry_forward(lake: Lake, table: str) -> None:
    """Say again what the last commit of ours says, in a commit on top, where maintenance has committed above it (X3).

    It is then found at the table's head, whatever expires below.
    """
    while True:
        loaded = lake.table(table)
        current, head = loaded.current_snapshot(), head_of(loaded)
        if current is None or not head.said or properties(current):
            return
        try:
            lake.mark(table, {**repeated(head.said), MAINTAINED: "true"}, head.snapshot)
            return
        except MovedError:
            # By a writer, who then has said it, or by another foreign commit.
            continue


def times_of(lake: Lake, log: str) -> dict[int, int]:
    """The processing times of a log's epochs, in microseconds."""
    return {epoch: int(said[CLOCK[1]]) for epoch, said in recorded(lake, log).items()}


def progress_of(lake: Lake, log: str) -> Progress | None:
    """How far a log has come, by its last commit; None before its first epoch.

    Raises `LakeError` where there is no such log.
    """
    return progress_in(lake.head(log))


def progress_in(head: Head) -> Progress | None:
    """Read how far a log has come off its last commit."""
    return Progress.parsed(head.said[PROGRESS]) if PROGRESS in head.said else None
