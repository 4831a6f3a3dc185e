"""What the executions on Spark have in common: the open windows between two epochs, and what an epoch gives.

The open windows are a frame with the state columns of `model.step.transition`, whichever execution made them, so a
ledger's partials restore either.
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

    `held` are the checkpoints behind it. `count` is how many windows there are, where somebody counted them.
    """

    windows: DataFrame
    clock: Clock | None
    generation: int
    held: tuple[DataFrame, ...] = ()
    count: Callable[[], int] | None = None

    def forget(self) -> None:
        """Free the checkpoints, once the state after this one is computed.

        Left to itself Spark frees them when its own memory is collected, by when those of many epochs have piled up.
        """
        for frame in self.held:
            free(frame)


def free(frame: DataFrame) -> None:
    """Free the blocks of a checkpointed frame, which nothing but its own classes gives away."""
    frame._jdf.queryExecution().logical().rdd().unpersist(False)


def lost_with_an_executor(error: Exception) -> bool:
    """Whether a job failed as it read blocks of a checkpointed frame that went with the executor that had them."""
    return "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in str(error)


@dataclass(frozen=True)
class Prepared:
    """A bundle after the definition's steps: the records, those that a step rejected, and the checkpoint of both."""

    records: DataFrame
    rejected: DataFrame | None = None
    held: tuple[DataFrame, ...] = ()


@dataclass(frozen=True)
class Consumed:
    """What the first job of an epoch found in the bundle.

    `closest` is the end of the first window in microseconds, None in an empty bundle or where nobody asks.
    """

    partials: DataFrame
    closest: int | None
    prepared: Prepared


@dataclass(frozen=True)
class Stepped:
    """What an epoch gave: the rows of the ledger, computed when they are written, and the state after it.

    `open` is how many windows that state has; it is known once the rows were computed.
    """

    rows: DataFrame
    state: OpenWindows
    open: Callable[[], int]


def checkpointed(frame: DataFrame, remains: Column) -> tuple[DataFrame, Callable[[], int]]:
    """A frame that is computed once, by the first job that needs it, and of how many of its rows `remains` held then.

    The count comes out of that job. Spark hands out what it observed with the action on a frame, and the action here
    is on what is made of the checkpoint: so the frame's own execution is asked, which only its own classes give away.
    """
    watched = frame.observe("remaining", F.count_if(remains).alias("windows"))
    made = watched.localCheckpoint(eager=False)
    return made, lambda: int(watched._jdf.queryExecution().observedMetrics().apply("remaining").getLong(0))


class Execution:
    """One definition in one Spark session: it takes bundles and open windows through epochs."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark, self.pipeline = spark, pipeline
        self.rows = Rows(pipeline)

    def nothing(self, generation: int = 0) -> OpenWindows:
        """The state before the first epoch."""
        return OpenWindows(self.spark.createDataFrame([], self._state_schema()), None, generation)

    def restore(self, ledger: DataFrame, clock: Clock, generation: int) -> OpenWindows:
        """The state that a ledger's partials add up to, after the epoch of `clock`."""
        text = partial(self.rows.within_reach, watermark=clock.watermark)
        windows = queried(self.spark, ledger, text).localCheckpoint()
        return OpenWindows(windows, clock, generation, (windows,))

    def consume(self, bundle: DataFrame, state: OpenWindows) -> Consumed:
        """Look at a bundle, which has the log's columns and where each record came from; a later stage's, its sign."""
        raise NotImplementedError

    def _prepared(self, bundle: DataFrame) -> Prepared:
        """The bundle after the definition's steps."""
        frame = prepare(bundle, self.pipeline)
        if not may_fail(self.pipeline):
            return Prepared(frame)
        # Kept, for records and rejected ones are read apart, and a step is called once for a record.
        held = frame.localCheckpoint(eager=False)
        good, bad = (held.where(f"{FAILED} IS {which}") for which in ("NULL", "NOT NULL"))
        return Prepared(good.drop(FAILED), bad, (held,))

    def _with_rejected(self, rows: DataFrame, consumed: Consumed, clock: Clock) -> DataFrame:
        """The ledger's rows with those of the records that a step rejected."""
        rejected = consumed.prepared.rejected
        if rejected is None:
            return rows
        return rows.unionAll(queried(self.spark, rejected, lambda view: self.rows.of_rejected(view, clock)))

    @property
    def holds(self) -> bool:
        """Whether open windows can hold a later stage's watermark at all."""
        return holds_back(self.pipeline)

    def held(self, state: OpenWindows) -> int | None:
        """The oldest timestamp that the open windows hold for a later stage (rule T3), in microseconds; None if none.

        As `tailrace.model.step.stages.watermark` has it.
        """
        if not self.holds:
            return None
        (row,) = state.windows.selectExpr(f"{oldest_held(self.pipeline)} AS oldest").collect()
        found = row["oldest"]
        return None if found is None else int(found)

    def onward(self, state: OpenWindows) -> int:
        """How far a later stage's watermark may go after the epoch that gave this state (rule T3), in microseconds."""
        assert state.clock is not None
        held = self.held(state)
        return state.clock.watermark if held is None else min(state.clock.watermark, held)

    def step(self, state: OpenWindows, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the open windows through an epoch. Raises `ClockError` if the clock goes back.

        Nothing is computed yet: the first action on `rows` does it, and the state after it is then there.
        """
        raise NotImplementedError

    def _state_schema(self) -> StructType:
        return schema_of(state_types(self.pipeline))


def schema_of(types: Mapping[str, str]) -> StructType:
    """The Spark schema of columns with these SQL types."""
    schema = StructType.fromDDL(", ".join(f"{quoted(name)} {type}" for name, type in types.items()))
    assert isinstance(schema, StructType)
    return schema
