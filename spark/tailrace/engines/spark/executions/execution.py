"""The common base of the executions on Spark: the open windows between two epochs, and the result of an epoch.

The open windows are a frame with the state columns of `model.step.transition`, whichever execution made them, so a
ledger's partials restore the state of either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.engines.spark.executions.preparation import prepare, queried
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.holds import holds_back, oldest_held
from tailrace.sql.epoch.ledger_rows import Rows, state_types
from tailrace.sql.records.selections import FAILED, may_fail
from tailrace.sql.terms import quoted


@dataclass(frozen=True)
class OpenWindows:
    """The open windows between two epochs, and the clock of the last epoch.

    `held` are the checkpoints that the windows depend on. `count` returns the number of windows; None if not counted.
    """

    windows: DataFrame
    clock: Clock | None
    generation: int
    held: tuple[DataFrame, ...] = ()
    count: Callable[[], int] | None = None

    def forget(self) -> None:
        """Free the checkpoints, once the state after this one is computed.

        Left to itself Spark frees them when the JVM collects garbage, by when those of many epochs have piled up.
        """
        for frame in self.held:
            free(frame)


def free(frame: DataFrame) -> None:
    """Unpersist a checkpointed frame; PySpark has no public call for it, hence `_jdf`."""
    frame._jdf.queryExecution().logical().rdd().unpersist(False)


def lost_with_an_executor(error: Exception) -> bool:
    """Tell whether a job failed because blocks of a checkpointed frame were lost with the executor that had them."""
    return "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in str(error)


@dataclass(frozen=True)
class PreparedBundle:
    """A bundle after the definition's steps: the records, those that a step rejected, and the checkpoints of both."""

    records: DataFrame
    rejected: DataFrame | None = None
    held: tuple[DataFrame, ...] = ()


@dataclass(frozen=True)
class Consumed:
    """The result of an epoch's first job, on its bundle.

    `closest` is the end of the first window in microseconds; None in an empty bundle, or where the execution does not
    need it.
    """

    partials: DataFrame
    closest: int | None
    prepared: PreparedBundle


@dataclass(frozen=True)
class Stepped:
    """The result of an epoch: the rows of the ledger, computed when they are written, and the state after it.

    `open` returns the number of windows in that state, once the rows were computed.
    """

    rows: DataFrame
    state: OpenWindows
    open: Callable[[], int]


def checkpointed(frame: DataFrame, remains: Column) -> tuple[DataFrame, Callable[[], int]]:
    """Checkpoint a frame with the first job that needs it; return it, and a count of its rows where `remains` holds.

    The count comes out of that job. Spark hands out observed metrics with an action on the observed frame, but here the
    action is on a frame that is made of the checkpoint. So the count is read from the frame's own execution, for which
    PySpark has no public call, hence `_jdf`.
    """
    watched = frame.observe("remaining", F.count_if(remains).alias("windows"))
    made = watched.localCheckpoint(eager=False)
    return made, lambda: int(watched._jdf.queryExecution().observedMetrics().apply("remaining").getLong(0))


class SparkExecution:
    """A definition in a Spark session: it takes bundles and open windows through epochs."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark, self.pipeline = spark, pipeline
        self.rows = Rows(pipeline)

    def nothing(self, generation: int = 0) -> OpenWindows:
        """Return the state before the first epoch."""
        return OpenWindows(self.spark.createDataFrame([], self._state_schema()), None, generation)

    def restore(self, ledger: DataFrame, clock: Clock, generation: int) -> OpenWindows:
        """Restore the state after the epoch of `clock` from a ledger's partials."""
        text = partial(self.rows.within_reach, watermark=clock.watermark)
        windows = queried(self.spark, ledger, text).localCheckpoint()
        return OpenWindows(windows, clock, generation, (windows,))

    def consume(self, bundle: DataFrame, state: OpenWindows) -> Consumed:
        """Prepare a bundle for the step.

        It has the log's columns and where each record came from; a later stage's also has each record's sign.
        """
        raise NotImplementedError

    def _prepared(self, bundle: DataFrame) -> PreparedBundle:
        """Take a bundle through the definition's steps."""
        frame = prepare(bundle, self.pipeline)
        if not may_fail(self.pipeline):
            return PreparedBundle(frame)
        # Checkpointed, so that a step is called once for a record although rejected records are read apart.
        held = frame.localCheckpoint(eager=False)
        good, bad = (held.where(f"{FAILED} IS {which}") for which in ("NULL", "NOT NULL"))
        return PreparedBundle(good.drop(FAILED), bad, (held,))

    def _with_rejected(self, rows: DataFrame, consumed: Consumed, clock: Clock) -> DataFrame:
        """Append the rows of the records that a step rejected to the ledger's other rows."""
        rejected = consumed.prepared.rejected
        if rejected is None:
            return rows
        return rows.unionAll(queried(self.spark, rejected, lambda view: self.rows.of_rejected(view, clock)))

    @property
    def holds(self) -> bool:
        """Whether open windows can hold a later stage's watermark at all."""
        return holds_back(self.pipeline)

    def held(self, state: OpenWindows) -> int | None:
        """Find the oldest timestamp that the open windows hold for a later stage (rule T3), in microseconds.

        None if they hold none. It is computed as in `tailrace.model.step.stages.watermark`.
        """
        if not self.holds:
            return None
        (row,) = state.windows.selectExpr(f"{oldest_held(self.pipeline)} AS oldest").collect()
        found = row["oldest"]
        return None if found is None else int(found)

    def onward(self, state: OpenWindows) -> int:
        """Return the bound, in microseconds, of a later stage's watermark after this state's epoch (rule T3)."""
        assert state.clock is not None
        held = self.held(state)
        return state.clock.watermark if held is None else min(state.clock.watermark, held)

    def step(self, state: OpenWindows, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the open windows through an epoch. Raises `ClockError` if the clock goes back.

        Nothing is computed yet: the first action on the result's `rows` computes them and the state after the epoch.
        """
        raise NotImplementedError

    def _state_schema(self) -> StructType:
        return schema_of(state_types(self.pipeline))


def schema_of(types: Mapping[str, str]) -> StructType:
    """Make the Spark schema of columns with these SQL types."""
    schema = StructType.fromDDL(", ".join(f"{quoted(name)} {type}" for name, type in types.items()))
    assert isinstance(schema, StructType)
    return schema
