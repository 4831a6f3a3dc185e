"""Hold the open windows of a fold on Spark between two epochs, in checkpoints."""

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

    `held` are the checkpoints behind the windows. `count` returns the number of `windows`; it is None where they are
    not counted. Windows that rest in files are in `resting`, not in `windows`. `ends` returns the first and the last
    end of `windows` in microseconds, None for no windows; it is None where the ends are not known.
    """

    windows: DataFrame
    clock: Clock | None
    generation: int
    held: tuple[DataFrame, ...] = ()
    count: Callable[[], int] | None = None
    resting: RestingState | None = None
    ends: Callable[[], tuple[int, int] | None] | None = None

    def open(self) -> int:
        """Return the number of open windows, with the resting ones, after they were computed."""
        assert self.count is not None
        return self.count() + (0 if self.resting is None else self.resting.count())

    def forget(self) -> None:
        """Free the checkpoints, once the next state is computed.

        Spark itself frees them only when the JVM collects garbage: by then the checkpoints of many epochs have piled
        up.
        """
        for frame in self.held:
            free(frame)


def free(frame: DataFrame) -> None:
    """Unpersist a checkpointed data frame; PySpark has no public method for this, hence `_jdf`."""
    frame._jdf.queryExecution().logical().rdd().unpersist(False)


@contextmanager
def without_constraints(spark: SparkSession) -> Iterator[None]:
    """Have Spark keep no constraints on the columns of frames that are checkpointed in the block.

    The constraints may name columns that Spark has replaced, and the planning of a UNION of such frames then fails with
    "key not found". Several folds of a session may be in such a block at once.
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
"""The number of blocks in each session, with the setting before them; and the lock for changing these."""


@dataclass(frozen=True)
class Remaining:
    """The windows that remain in a frame: a call returns their number, once the frame was computed.

    Spark gives out observed metrics with an action on the observed frame, but here the action is on a frame of its
    checkpoint. So the metrics are read from the execution of the observed frame: PySpark has no public call for that,
    hence `_jdf`.
    """

    watched: DataFrame

    def __call__(self) -> int:
        return int(self._metrics().getLong(0))

    def ends(self) -> tuple[int, int] | None:
        """Return the first and the last end of the windows, in microseconds; None for no windows."""
        found = self._metrics()
        return (int(found.getLong(1)), int(found.getLong(2))) if found.getLong(0) else None

    def _metrics(self) -> Any:
        return self.watched._jdf.queryExecution().observedMetrics().apply("remaining")


MANY = 200_000
"""The number of an epoch's rows from which the ways for many rows pay off."""


def storage_level(rows: int) -> StorageLevel:
    """Return the storage of a checkpoint by its number of rows: many rows go to files, which spares the heap."""
    return StorageLevel.DISK_ONLY if rows >= MANY else StorageLevel.MEMORY_AND_DISK


def checkpoint(
    frame: DataFrame, remains: Column, *, eager: bool = False, end: str = "window_end", rows: int = 0
) -> tuple[DataFrame, Remaining]:
    """Checkpoint a frame with the first job that needs it.

    Return it, and the windows that remain: its rows where `remains`. `end` is the column of a window's end. `eager`
    computes the frame at once. `rows` is the minimum number of its rows.
    """
    ends = F.when(remains, F.col(end))
    watched = frame.observe("remaining", F.count_if(remains).alias("windows"), F.min(ends), F.max(ends))
    return watched.localCheckpoint(eager=eager, storageLevel=storage_level(rows)), Remaining(watched)
