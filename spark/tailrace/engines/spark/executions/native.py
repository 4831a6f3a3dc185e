"""The native execution: `step` as two Spark jobs, with nothing in Python per record or per window.

The first job aggregates the bundle to partials; the second takes the open windows through the epoch, and its result
gives the ledger's rows and the next state. State and transitions are checkpointed on the executors, so that a plan
never grows with the number of epochs.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.engines.python.assigned import BOUNDS, placer
from tailrace.engines.spark.executions.brought_partials import BroughtPartials
from tailrace.engines.spark.executions.execution import Consumed, PreparedBundle, SparkExecution, Stepped
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.open_windows import MANY, OpenWindows, checkpointed, kept
from tailrace.engines.spark.executions.preparation import queried, schema_of
from tailrace.engines.spark.executions.resting_files import Reach
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.engines.spark.workers.python_tasks import over_batches, tried
from tailrace.engines.spark.workers.worker_queries import LogFiles
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE
from tailrace.sql.epoch.clock_row import clock_row
from tailrace.sql.epoch.partials import late, may_be_late, partials, put_together, refused
from tailrace.sql.epoch.state_merge import met
from tailrace.sql.epoch.transition_rows import transitions
from tailrace.sql.records.assignment import WINDOWS, keep_clause
from tailrace.sql.records.selections import FAILED
from tailrace.sql.terms import Query, Relation


class Native(SparkExecution):
    """A definition compiled for a Spark session."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, rest: RestingWindows | None = None) -> None:
        super().__init__(spark, pipeline, rest)
        self._schema: pa.Schema | None = None
        self._views = {name: Relation(f"tailrace_{pipeline.name}_{name}_{uuid.uuid4().hex[:8]}") for name in _VIEWS}
        view = self._views
        self._partials = partials(pipeline, view["bundle"], view["clock"])
        self._transitions = transitions(pipeline, met(pipeline, view["state"], view["partials"], view["clock"]))
        self._ledger_rows = self.rows.of_transitions(view["transitions"])
        self._late = self.rows.of_late(late(pipeline, view["bundle"], view["clock"]))
        self._refused = self.rows.of_late(refused(pipeline, view["bundle"], view["clock"], view["transitions"]))
        self._remains = self.rows.state(view["transitions"])

    def consume(self, bundle: DataFrame, state: OpenWindows, files: LogFiles | None = None) -> Consumed:
        """Aggregate a bundle to partials. `bundle` has the log's columns and where each record came from."""
        prepared, state = self._prepared(bundle), self._settled(state)
        prepared.records.createOrReplaceTempView(self._views["bundle"])
        watermark = state.clock.watermark if state.clock else BEGINNING
        self._clock_view(state, Clock(-1, watermark, 0))
        reaching = () if self._rest is None else self._rest.reaching(state, windows=True)
        ends = F.min("window_end").alias("closest"), F.max("window_end").alias("furthest")
        aggregates = *ends, F.count(F.lit(1)).alias("count"), *reaching
        partials, found = self._computed(self.spark.sql(self._partials), files, aggregates)
        closest, furthest, count = (found.pop(name) for name in ("closest", "furthest", "count"))
        reach = Reach(**found) if reaching else None
        return Consumed(partials, closest, furthest, prepared.rejected, (partials, *prepared.held), reach, count)

    def consume_brought(self, bundle: pa.Table, state: OpenWindows, here: BroughtPartials) -> Consumed:
        """Take the partials of a bundle that is in this process, which are added up here."""
        schema = self._partial_schema(bundle, state)
        found = here.of(bundle, schema, state.clock, state.generation)
        if found.late or self.pipeline.finishing == "close":
            frame_of(self.spark, bundle).createOrReplaceTempView(self._views["bundle"])
        return Consumed(
            frame_of(self.spark, found.rows), found.closest, found.furthest, None, (), None,
            found.rows.num_rows, bundle.num_rows, found.late,
        )  # fmt: skip

    def takes_brought(self, state: OpenWindows) -> bool:
        """Tell whether partials may be added up elsewhere: windows are in memory, and SQL puts records into them."""
        return self._by_sql and self._settled(state).resting is None

    @property
    def _by_sql(self) -> bool:
        """Whether nothing but SQL puts the log's own records into windows."""
        return not self.pipeline.each

    def _partial_schema(self, bundle: pa.Table, state: OpenWindows) -> pa.Schema:
        """Return the columns of partials, as Spark has them."""
        if self._schema is None:
            frame_of(self.spark, bundle.slice(0, 0)).createOrReplaceTempView(self._views["bundle"])
            self._clock_view(state, Clock(-1, BEGINNING, 0))
            self._schema = to_arrow_schema(self.spark.sql(self._partials).schema)
        return self._schema

    def _computed(
        self, by_spark: DataFrame, files: LogFiles | None, aggregates: Sequence[Column]
    ) -> tuple[DataFrame, dict[str, Any]]:
        """Compute a bundle's partials, by the executors' Python where it can, and aggregates over them."""

        def once(frame: DataFrame, rows: int = 0) -> tuple[DataFrame, dict[str, Any]]:
            observed = ObservedCounts(frame, *aggregates)
            return observed.rows.localCheckpoint(storageLevel=kept(rows)), observed.read()

        # What steps made, and windows that the watermark judges before they merge, is in no file.
        if files is not None and files.worth and self._by_sql and not self.pipeline.where.merges:
            parts = files.answer(self.spark, self._partials, self._views["bundle"], to_arrow_schema(by_spark.schema))
            frame = queried(self.spark, parts, lambda view: put_together(self.pipeline, view, counted=True))
            if (made := tried(lambda: once(frame, MANY))) is not None:
                return made
        return once(by_spark)

    def step(self, state: OpenWindows, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the open windows through an epoch, as two texts of SQL."""
        clock.after(state.clock)
        windows, resting = self._awake(
            state, consumed.partials, consumed.reach, clock, by_key=self.pipeline.where.merges
        )
        windows.createOrReplaceTempView(self._views["state"])
        consumed.partials.createOrReplaceTempView(self._views["partials"])
        self._clock_view(state, clock)
        moved, count = checkpointed(self.spark.sql(self._transitions), F.col("remains"), rows=consumed.count)
        moved.createOrReplaceTempView(self._views["transitions"])
        rows, ends = self.spark.sql(self._ledger_rows), _ends(state, consumed)
        if self._any_late(state, consumed):
            rows, ends = rows.unionAll(self.spark.sql(self._late)), None
        if self.pipeline.finishing == "close":
            rows = rows.unionAll(self.spark.sql(self._refused))
        rows = self._with_rejected(rows, consumed, clock)
        held = (moved, *consumed.held)
        remain = self.spark.sql(self._remains)
        onward = OpenWindows(remain, clock, state.generation, held, count, resting, count.ends)
        return Stepped(rows, onward, consumed.count, ends, self._most(state, consumed))

    def _any_late(self, state: OpenWindows, consumed: Consumed) -> bool:
        """Tell whether records came too late, or may have where nobody has looked."""
        if consumed.late is not None:
            return consumed.late
        return may_be_late(self.pipeline, consumed.closest, state.clock)

    def _most(self, state: OpenWindows, consumed: Consumed) -> int | None:
        """Return how many windows and late records an epoch can be about; None where that is not known."""
        if state.resting is not None or consumed.records is None or (state.clock is not None and state.count is None):
            return None
        there = 0 if state.count is None else state.count()
        if self._any_late(state, consumed) or self.pipeline.finishing == "close":
            # A record that is late is so for each of its windows.
            return there + consumed.count + consumed.records if self.pipeline.where.merges else None
        return there + consumed.count

    def _clock_view(self, state: OpenWindows, clock: Clock) -> None:
        frame = self.spark.sql(clock_row(self.pipeline, state.clock, clock, state.generation))
        frame.createOrReplaceTempView(self._views["clock"])


def _ends(state: OpenWindows, consumed: Consumed) -> tuple[int, int] | None:
    """Return when the first and the last window end that an epoch can be about; None where that is not known."""
    if state.resting is not None or (state.clock is not None and state.ends is None) or consumed.furthest is None:
        return None
    there = None if state.ends is None else state.ends()
    assert consumed.closest is not None
    every = [consumed.closest, consumed.furthest, *(there or ())]
    return min(every), max(every)


class Assigned(Native):
    """The step as SQL, over records whose windows the definition's own code assigned, called once for each record.

    Windows that merge do not take this execution: they may merge by a rule of their own.
    """

    @property
    def _by_sql(self) -> bool:
        return False

    def _prepared(self, bundle: DataFrame) -> PreparedBundle:
        prepared, pipeline = super()._prepared(bundle), self.pipeline
        where = keep_clause(pipeline)
        records = queried(self.spark, prepared.records, lambda view: Query(f"SELECT * FROM {view}{where}"))
        schema = StructType([*records.schema.fields, *schema_of({WINDOWS: BOUNDS, FAILED: "string"}).fields])
        # Checkpointed, so that the code is called once for a record although partials and late records are read apart.
        placed = records.mapInArrow(over_batches(placer(pipeline, to_arrow_schema(schema))), schema)
        placed = placed.localCheckpoint(eager=False)
        place = [pipeline.log.event_time, *PLACE, FAILED]
        bad = placed.where(f"{FAILED} IS NOT NULL").select(*place)
        if prepared.rejected is not None:
            bad = prepared.rejected.select(*place).unionAll(bad)
        good = placed.where(f"{FAILED} IS NULL").drop(FAILED)
        return replace(prepared, records=good, rejected=bad, held=(*prepared.held, placed))


_VIEWS = ("bundle", "clock", "partials", "state", "transitions")
