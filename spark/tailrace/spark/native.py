"""The native execution: `step` as two Spark jobs, with nothing in Python per record or per window.

The first aggregates the bundle to partials, which also tells how far event time has come; the second takes the open
windows through the epoch and is what the ledger's rows and the next state are read from. State and transitions are
checkpointed on the executors, so that a plan never grows with the number of epochs.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.lake.contracts import key_columns, predecessor_shape, spark_type
from tailrace.model.algebra import Scalars
from tailrace.model.clock import Clock
from tailrace.model.pipeline import Pipeline
from tailrace.model.time import BEGINNING
from tailrace.model.transition import Transition
from tailrace.spark.algebra import Sql, quoted
from tailrace.spark.merging import TIMES, met
from tailrace.spark.partials import late, partials, refused
from tailrace.spark.rows import Rows
from tailrace.spark.transitions import transitions


@dataclass(frozen=True)
class NativeState:
    """The open windows between two epochs, and the clock of the last epoch. `held` are the checkpoints behind it."""

    windows: DataFrame
    clock: Clock | None
    generation: int
    held: tuple[DataFrame, ...] = ()

    def forget(self) -> None:
        """Free the checkpoints, once the state after this one is computed.

        Left to itself Spark frees them when its own memory is collected, by when those of many epochs have piled up.
        """
        for frame in self.held:
            # Of a checkpointed frame nothing but its own classes gives the blocks away.
            frame._jdf.queryExecution().logical().rdd().unpersist(False)


@dataclass(frozen=True)
class Consumed:
    """What the first job of an epoch found in the bundle.

    `latest` and `known` are the latest event and arrival times in microseconds, and `closest` the end of the first
    window, all None in an empty bundle.
    """

    partials: DataFrame
    latest: int | None
    known: int | None
    closest: int | None


@dataclass(frozen=True)
class Stepped:
    """What an epoch gave: the rows of the ledger, computed when they are written, and the state after it."""

    rows: DataFrame
    state: NativeState


class Native:
    """One definition compiled for one Spark session."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark, self.pipeline = spark, pipeline
        self.rows = Rows(pipeline)
        self._views = {name: f"tailrace_{pipeline.name}_{name}_{uuid.uuid4().hex[:8]}" for name in _VIEWS}
        view = self._views
        self._partials = partials(pipeline, view["bundle"], view["clock"])
        self._transitions = transitions(pipeline, met(pipeline, view["state"], view["partials"], view["clock"]))
        self._said = self.rows.of_transitions(view["transitions"])
        self._late = self.rows.of_late(late(pipeline, view["bundle"], view["clock"]))
        self._refused = self.rows.of_late(refused(pipeline, view["bundle"], view["clock"], view["transitions"]))
        self._remains = self.rows.state(view["transitions"])

    def nothing(self, generation: int = 0) -> NativeState:
        """The state before the first epoch."""
        return NativeState(self.spark.createDataFrame([], self._state_schema()), None, generation)

    def restore(self, ledger: DataFrame, clock: Clock, generation: int) -> NativeState:
        """The state that a ledger's partials add up to, after the epoch of `clock`."""
        view = self._views["ledger"]
        ledger.createOrReplaceTempView(view)
        rules = Transition(self.pipeline, Sql())
        gone = rules.out_of_reach("window_end", f"{clock.watermark}L")
        frame = self.spark.sql(f"SELECT * FROM ({self.rows.restored(view)}) WHERE NOT {gone}")
        windows = frame.localCheckpoint()
        return NativeState(windows, clock, generation, (windows,))

    def consume(self, bundle: DataFrame, state: NativeState) -> Consumed:
        """Aggregate a bundle to partials. `bundle` has the log's columns and where each record came from."""
        bundle.createOrReplaceTempView(self._views["bundle"])
        watermark = state.clock.watermark if state.clock else BEGINNING
        self._clock_view(state, Clock(-1, watermark, 0))
        seen = Observation()
        frame = self.spark.sql(self._partials).observe(
            seen,
            F.max("latest").alias("latest"),
            F.max("known").alias("known"),
            F.min("window_end").alias("closest"),
        )
        return Consumed(frame.localCheckpoint(), **seen.get)

    def step(self, state: NativeState, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the open windows through an epoch. Raises `ClockError` if the clock goes back.

        Nothing is computed yet: the first action on `rows` does it, and the state after it is then there.
        """
        clock.after(state.clock)
        state.windows.createOrReplaceTempView(self._views["state"])
        consumed.partials.createOrReplaceTempView(self._views["partials"])
        self._clock_view(state, clock)
        moved = self.spark.sql(self._transitions).localCheckpoint(eager=False)
        moved.createOrReplaceTempView(self._views["transitions"])
        rows = self.spark.sql(self._said)
        if self._any_late(state, consumed):
            rows = rows.unionAll(self.spark.sql(self._late))
        if self.pipeline.finishing == "close":
            rows = rows.unionAll(self.spark.sql(self._refused))
        held = (moved, consumed.partials)
        return Stepped(rows, NativeState(self.spark.sql(self._remains), clock, state.generation, held))

    def _any_late(self, state: NativeState, consumed: Consumed) -> bool:
        """Whether the bundle may hold late records. Partials of windows that merge do not say."""
        if self.pipeline.where.merges:
            return True
        if state.clock is None or consumed.closest is None:
            return False
        return bool(Transition(self.pipeline, Scalars()).closed(consumed.closest, state.clock.watermark))

    def _clock_view(self, state: NativeState, clock: Clock) -> None:
        before = state.clock
        values = {
            "watermark_before": before.watermark if before else BEGINNING,
            "watermark_after": clock.watermark,
            "before": before.processing_time if before else clock.processing_time - 1,
            "now": clock.processing_time,
            "epoch": clock.epoch,
            "new_generation": state.generation,
        }
        # A table of one row, not literals: literals would be compiled into the code, which would change every epoch.
        row = ", ".join(f"{values[name]}L" for name in TIMES)
        frame = self.spark.sql(f"SELECT * FROM VALUES ({row}) AS clock({', '.join(TIMES)})")
        frame.createOrReplaceTempView(self._views["clock"])

    def _state_schema(self) -> StructType:
        columns = {**key_columns(self.pipeline), "window_start": "bigint", "window_end": "bigint"}
        columns |= Transition(self.pipeline, Sql()).columns()
        if self.pipeline.where.merges:
            columns["predecessors"] = spark_type([predecessor_shape(self.pipeline)])
        schema = StructType.fromDDL(", ".join(f"{quoted(name)} {type}" for name, type in columns.items()))
        assert isinstance(schema, StructType)
        return schema


_VIEWS = ("bundle", "clock", "partials", "state", "transitions", "ledger")
