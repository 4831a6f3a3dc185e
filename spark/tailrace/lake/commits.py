"""What a commit of a log says of its epoch, besides the epoch itself (rule X2)."""

from __future__ import annotations

from tailrace.lake.catalog import Lake, lineage, properties
from tailrace.model.progress import Progress

CLOCK = ("watermark", "processing_time")
"""The clock's two times, in microseconds."""

PROGRESS = "progress"
"""How far the source's partitions are."""

READ = ("query", "batch", "offset")
"""How far the source was read: by which query of Spark's, in which micro-batch, up to which offset of the source."""

ONWARD = "onward"
"""What a ledger's commit says of the watermark that those who read it may have after the epoch (rule T3)."""

DUPLICATES = "duplicates"
"""How many records were dropped because they came again, in all epochs up to this one (rule X5)."""


def recorded(lake: Lake, table: str) -> dict[int, dict[str, str]]:
    """What a log's or ledger's commits say of each epoch and its clock, as far as its snapshots are kept."""
    loaded = lake.table(table)
    current = loaded.current_snapshot()
    said = [properties(snapshot) for snapshot in lineage(loaded, current.snapshot_id if current else None)]
    # A commit beside the stream repeats what the last epoch's says.
    return {int(one["epoch"]): one for one in said if CLOCK[1] in one}


def times_of(lake: Lake, log: str) -> dict[int, int]:
    """The processing times of a log's epochs, in microseconds, as far as its snapshots are kept."""
    return {epoch: int(said[CLOCK[1]]) for epoch, said in recorded(lake, log).items()}


def progress_of(lake: Lake, log: str) -> Progress | None:
    """How far a log has come, by its last commit; None before its first epoch.

    Raises `LakeError` where there is no such log.
    """
    said = lake.head(log).said
    return Progress.parsed(said[PROGRESS]) if PROGRESS in said else None
