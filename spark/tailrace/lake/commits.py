"""What a commit of a log says of its epoch, besides the epoch itself (rule X2)."""

from __future__ import annotations

from tailrace.lake.catalog import Lake
from tailrace.model.progress import Progress

CLOCK = ("watermark", "processing_time")
"""The clock's two times, in microseconds."""

PROGRESS = "progress"
"""How far the source's partitions are."""

READ = ("query", "batch", "offset")
"""How far the source was read: by which query of Spark's, in which micro-batch, up to which offset of the source."""

DUPLICATES = "duplicates"
"""How many records were dropped because they came again, in all epochs up to this one (rule X5)."""


def progress_of(lake: Lake, log: str) -> Progress | None:
    """How far a log has come, by its last commit; None before its first epoch.

    Raises `LakeError` where there is no such log.
    """
    said = lake.head(log).said
    return Progress.parsed(said[PROGRESS]) if PROGRESS in said else None
