"""The open windows of a fold on Spark between two epochs, and the checkpoints that hold those in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.spark.executions.resting_files import Resting
from tailrace.lake.schema.table_names import RESTING
from tailrace.model.base.clock import Clock


@dataclass(frozen=True)
class OpenWindows:
    """The open windows between two epochs, and the clock of the last epoch.

    `held` are the checkpoints that the windows depend on. `count` returns the number of windows; None if not counted.
    Where some rest in files, those are in `resting` and not among `windows`. `ends` returns when the first and the last
    of `windows` end, in microseconds, or None where there are none; it is None where nobody looked.
    """

    windows: DataFrame
    clock: Clock | None
    generation: int
    held: tuple[DataFrame, ...] = ()
    count: Callable[[], int] | None = None
    resting: Resting | None = None
    ends: Callable[[], tuple[int, int] | None] | None = None

    def open(self) -> int:
        """Return the number of open windows, those that rest included, once they were computed."""
        assert self.count is not None
        return self.count() + (0 if self.resting is None else self.resting.count())

    def forget(self) -> None:
        """Free the checkpoints, once the state after this one is computed.

        Left to itself Spark frees them when the JVM collects garbage, by when those of many epochs have piled up.
        """
        for frame in self.held:
            free(frame)


def free(frame: DataFrame) -> None:
    """Unpersist a checkpointed frame; PySpark has no public call for it, hence `_jdf`."""
    frame._jdf.queryExecution().logical().rdd().unpersist(False)


@contextmanager
def unconstrained(spark: SparkSession) -> Iterator[None]:
    """Have frames that are checkpointed meanwhile know nothing of their columns but the types.

    What Spark keeps of them names columns that it may have replaced, and a UNION of such frames then fails to be
    planned: "key not found". Folds of one session may ask for it at once.
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
"""By session how many ask for it, and what the setting was before; and what is held while that changes."""


@dataclass(frozen=True)
class Remaining:
    """The windows that remain in a frame, once it was computed: a call returns their number.

    Spark hands out observed metrics with an action on the observed frame, but here the action is on a frame that is
    made of its checkpoint. So they are read from the frame's own execution, for which PySpark has no public call, hence
    `_jdf`.
    """

    watched: DataFrame

    def __call__(self) -> int:
        return int(self._metrics().getLong(0))

    def ends(self) -> tuple[int, int] | None:
        """Return when the first and the last of them end, in microseconds; None where there are none."""
        found = self._metrics()
        return (int(found.getLong(1)), int(found.getLong(2))) if found.getLong(0) else None

    def _metrics(self) -> Any:
        return self.watched._jdf.queryExecution().observedMetrics().apply("remaining")


MANY = 200_000
"""The rows of an epoch from which on they are worth other ways than those of a few."""


def kept(rows: int) -> StorageLevel:
    """Return where a checkpoint of so many rows is kept: many in files, which takes no longer and leaves the heap."""
    return StorageLevel.DISK_ONLY if rows >= MANY else StorageLevel.MEMORY_AND_DISK


def checkpointed(
    frame: DataFrame, remains: Column, *, eager: bool = False, end: str = "window_end", rows: int = 0
) -> tuple[DataFrame, Remaining]:
    """Checkpoint a frame with the first job that needs it; return it, and what remains: its rows where `remains` holds.

    `end` is the column of a window's end. `eager` computes the frame at once. `rows` is how many it has at least.
    """
    ends = F.when(remains, F.col(end))
    watched = frame.observe("remaining", F.count_if(remains).alias("windows"), F.min(ends), F.max(ends))
    return watched.localCheckpoint(eager=eager, storageLevel=kept(rows)), Remaining(watched)


def lost_state(error: Exception) -> bool:
    """Tell whether a job failed because open windows are gone: with an executor that had them, or with their files."""
    said = str(error)
    return "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in said or bool(_REMOVED.search(said) and _RESTING.search(said))


_RESTING = re.compile(rf"__{RESTING}_[0-9a-f]{{8}}")
_REMOVED = re.compile(r"NOT_FOUND|NotFound|NoSuch|does not exist|cannot be found", re.IGNORECASE)
"""The words of errors of a read of resting windows whose table, or a file of it, was removed."""
