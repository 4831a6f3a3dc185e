"""Keep the open windows of a fold on Spark in checkpoints from one epoch to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.spark.executions.resting_files import RestingState
from tailrace.model.base.clock import Clock


@dataclass(frozen=True)
class OpenWindows:
    """The open windows between two epochs, with the clock of the last epoch.

    `windows` contains the windows in memory, and `resting` the windows that rest in files. `held` are the checkpoints
    that `windows` depends on. `count` returns the number of rows in `windows`; `count` is None if the rows are not
    counted. `ends` returns the first and the last end time in `windows`, in microseconds, or None if `windows` is
    empty. `ends` itself is None if the end times are unknown.
    """

    windows: DataFrame
    clock: Clock | None
    generation: int
    held: tuple[DataFrame, ...] = ()
    count: Callable[[], int] | None = None
    resting: RestingState | None = None
    ends: Callable[[], tuple[int, int] | None] | None = None

    def open(self) -> int:
        """Return the number of open windows in memory and in files. The windows must have been computed."""
        assert self.count is not None
        return self.count() + (0 if self.resting is None else self.resting.count())

    def forget(self) -> None:
        """Free the checkpoints of this state. The fold calls this method after the next state has been computed.

        Spark itself frees checkpoints only when the JVM collects garbage. By then, the checkpoints of many epochs have
        accumulated.
        """
        for frame in self.held:
            free(frame)


def free(frame: DataFrame) -> None:
    """Free the storage of a checkpointed data frame. PySpark has no public method for this, so the code uses `_jdf`."""
    frame._jdf.queryExecution().logical().rdd().unpersist(False)


@contextmanager
def without_constraints(spark: SparkSession) -> Iterator[None]:
    """Turn off Spark's constraint propagation for the data frames that are checkpointed in the block.

    Spark's constraints may name columns that Spark has replaced. The planning of a UNION of such data frames then fails
    with "key not found". Several folds that share a Spark session may be in such a block at the same time.
    """
    session = id(spark._jsparkSession)
    with _lock:
        asking, before = _asking.get(session, (0, ""))
        _asking[session] = asking + 1, before or str(spark.conf.get(_CONSTRAINTS))
        spark.conf.set(_CONSTRAINTS, "false")
    try:
        yield
    finally:
        with _lock:
            asking, before = _asking.pop(session)
            if asking > 1:
                _asking[session] = asking - 1, before
            else:
                spark.conf.set(_CONSTRAINTS, before)


_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
_asking: dict[int, tuple[int, str]] = {}
_lock = Lock()
"""The lock for `_asking`.

For each session, `_asking` contains the number of `without_constraints` blocks that are running, and the value of
Spark's setting before the first of these blocks.
"""


@dataclass(frozen=True)
class Remaining:
    """A callable object that returns the number of a frame's windows that remain open.

    The frame must have been computed before the call.

    Spark publishes observed metrics when an action runs on the observed frame, but here the action runs on a checkpoint
    of the observed frame. The metrics are therefore read from the query execution of the observed frame. PySpark has no
    public call for that, so the code uses `_jdf`.
    """

    watched: DataFrame

    def __call__(self) -> int:
        return int(self._metrics().getLong(0))

    def ends(self) -> tuple[int, int] | None:
        """Return the first and the last end time of the remaining windows, in microseconds, or None if none remain."""
        found = self._metrics()
        return (int(found.getLong(1)), int(found.getLong(2))) if found.getLong(0) else None

    def _metrics(self) -> Any:
        return self.watched._jdf.queryExecution().observedMetrics().apply("remaining")


MANY = 200_000
"""The minimum number of rows of a large epoch.

In a large epoch, checkpoints are stored on disk, and Spark writes the ledger rows. In a small epoch, this process
writes the ledger rows.
"""


def storage_level(rows: int) -> StorageLevel:
    """Return the storage level for a checkpoint of `rows` rows. Many rows go to disk, which saves heap memory."""
    return StorageLevel.DISK_ONLY if rows >= MANY else StorageLevel.MEMORY_AND_DISK


def checkpoint(
    frame: DataFrame, remains: Column, *, eager: bool = False, end: str = "window_end", rows: int = 0
) -> tuple[DataFrame, Remaining]:
    """Checkpoint a data frame, and count those of its rows that meet the condition `remains`.

    Returns the checkpointed frame and an object that reports the number and the end times of these rows, which are the
    remaining windows. `end` is the column with the end time of a window. If `eager` is true, the frame is computed at
    once; otherwise, the first job that needs the frame computes it. `rows` is the known minimum number of rows in the
    frame.
    """
    ends = F.when(remains, F.col(end))
    watched = frame.observe("remaining", F.count_if(remains).alias("windows"), F.min(ends), F.max(ends))
    return watched.localCheckpoint(eager=eager, storageLevel=storage_level(rows)), Remaining(watched)
