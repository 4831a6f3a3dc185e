"""The native execution. An epoch is two Spark jobs, and no Python code is called per record or per window.

The first job aggregates the bundle to partials. The second job applies the partials and the clock to the open windows;
its results are the ledger rows and the next state. The state and the transitions (the old and new state of each
affected window) are checkpointed on the executors, so query plans do not grow with the number of epochs.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.engines.duckdb.executions.sql_execution import SqlExecution
from tailrace.engines.protocol import EpochState
from tailrace.engines.python.assigned import BOUNDS, assigning_calls
from tailrace.engines.spark.executions.execution import BundlePartials, SparkExecution, SparkResult
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.open_windows import MANY, OpenWindows, checkpoint, storage_level
from tailrace.engines.spark.executions.preparation import PreparedBundle, query_frame, schema_of
from tailrace.engines.spark.executions.resting_files import Reach
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.engines.spark.workers.python_tasks import over_batches, try_on_executors
from tailrace.engines.spark.workers.worker_queries import LogFiles
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE
from tailrace.sql.epoch.clock_row import clock_row
from tailrace.sql.epoch.epoch_texts import VIEWS, EpochTexts
from tailrace.sql.epoch.partials import combine_partials, may_be_late
from tailrace.sql.records.assignment import WINDOWS, keep_clause
from tailrace.sql.records.selections import FAILED
from tailrace.sql.terms import Query, Relation


class Native(SparkExecution):
    """The execution that runs a definition as SQL in a Spark session."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, rest: RestingWindows) -> None:
        super().__init__(spark, pipeline, rest)
        self._schema: pa.Schema | None = None
        self._views = {name: Relation(f"tailrace_{pipeline.name}_{name}_{uuid.uuid4().hex[:8]}") for name in VIEWS}
        self._texts = EpochTexts(pipeline, self._views, in_process=False)

    def consume(self, bundle: DataFrame, state: OpenWindows, files: LogFiles | None = None) -> BundlePartials:
        """Aggregate a bundle to partials, with one row per key and window.

        The bundle must contain the log's columns and each record's position in its source.
        """
        prepared, state = self._prepared(bundle), self.rest.settled(state)
        prepared.records.createOrReplaceTempView(self._views["bundle"])
        self._clock_before(state)
        reaching = self.rest.reaching(state, windows=True)
        ends = F.min("window_end").alias("closest"), F.max("window_end").alias("furthest")
        aggregates = *ends, F.count(F.lit(1)).alias("count"), *reaching
        partials, found = self._computed(self.spark.sql(self._texts.partials), files, aggregates)
        closest, furthest, count = (found.pop(name) for name in ("closest", "furthest", "count"))
        reach = Reach(**found) if reaching else None
        return BundlePartials(partials, closest, furthest, prepared.rejected, (partials, *prepared.held), reach, count)

    def consume_here(self, bundle: pa.Table, state: OpenWindows, here: SqlExecution) -> BundlePartials:
        """Aggregate a small bundle in this process.

        Spark would take longer, because it would first have to plan the query.
        """
        schema = self._partial_schema(bundle, state)
        rows, late = here.add_up(bundle, EpochState(state.clock, state.generation))
        if late or self.pipeline.finishing == "close":
            frame_of(self.spark, bundle).createOrReplaceTempView(self._views["bundle"])
        rows = rows.rename_columns(schema.names).cast(schema)
        ends = pc.min_max(rows["window_end"]).as_py()
        return BundlePartials(
            frame_of(self.spark, rows),
            ends["min"],
            ends["max"],
            count=rows.num_rows,
            records=bundle.num_rows,
            late=late,
        )

    def adds_up_here(self, state: OpenWindows) -> bool:
        """Return True if this process may aggregate a bundle.

        Two conditions must be met: all open windows are in memory (none rests in files), and SQL assigns the log's own
        records to windows.
        """
        return self._by_sql and self.rest.settled(state).resting is None

    @property
    def _by_sql(self) -> bool:
        """True if the definition has no steps, so SQL assigns the log's own records to windows."""
        return not self.pipeline.each

    def _partial_schema(self, bundle: pa.Table, state: OpenWindows) -> pa.Schema:
        """Return the columns and types that partials (records aggregated by key and window) have on Spark."""
        if self._schema is None:
            frame_of(self.spark, bundle.slice(0, 0)).createOrReplaceTempView(self._views["bundle"])
            self._clock_before(state)
            self._schema = to_arrow_schema(self.spark.sql(self._texts.partials).schema)
        return self._schema

    def _computed(
        self, by_spark: DataFrame, files: LogFiles | None, aggregates: Sequence[Column]
    ) -> tuple[DataFrame, dict[str, Any]]:
        """Aggregate a bundle by key and window, if possible with Python workers on the executors.

        Returns the resulting rows (partials), and the values of `aggregates` over these rows.
        """

        def once(frame: DataFrame, rows: int = 0) -> tuple[DataFrame, dict[str, Any]]:
            observed = ObservedCounts(frame, *aggregates)
            return observed.rows.localCheckpoint(storageLevel=storage_level(rows)), observed.read()

        # Python workers read the log files. So they cannot be used if the definition has steps, because the files do
        # not contain the steps' results. They cannot be used either if windows merge, because each record has to be
        # compared with the watermark before the record's window is merged.
        if files is not None and files.worth and self._by_sql and not self.pipeline.where.merges:
            schema = to_arrow_schema(by_spark.schema)
            parts = files.answer(self.spark, self._texts.partials, self._views["bundle"], schema)
            frame = query_frame(self.spark, parts, lambda view: combine_partials(self.pipeline, view, counted=True))
            if (made := try_on_executors(lambda: once(frame, MANY))) is not None:
                return made
        return once(by_spark)

    def step(self, state: OpenWindows, bundle: BundlePartials, clock: Clock) -> SparkResult:
        clock.after(state.clock)
        texts, by_key = self._texts, self.pipeline.where.merges
        windows, resting = self.rest.awake(
            self.rest.settled(state), bundle.partials, bundle.reach, clock, by_key=by_key
        )
        windows.createOrReplaceTempView(self._views["state"])
        bundle.partials.createOrReplaceTempView(self._views["partials"])
        self._clock_view(state, clock)
        moved, count = checkpoint(self.spark.sql(texts.transitions), F.col("remains"), rows=bundle.count)
        moved.createOrReplaceTempView(self._views["transitions"])
        (ledger,) = texts.ledger
        rows, ends = self.spark.sql(ledger), _ends(state, bundle)
        if self._any_late(state, bundle):
            rows, ends = rows.unionAll(self.spark.sql(texts.late)), None
        if texts.refused is not None:
            rows = rows.unionAll(self.spark.sql(texts.refused))
        rows = self._with_rejected(rows, bundle, clock)
        held = (moved, *bundle.held)
        remaining = self.spark.sql(texts.remaining)
        onward = OpenWindows(remaining, clock, state.generation, held, count, resting, count.ends)
        return SparkResult(rows, onward, bundle.count, ends, self._most(state, bundle))

    def _any_late(self, state: OpenWindows, bundle: BundlePartials) -> bool:
        """Return True if some of a bundle's records are late or may be late. Return False if certainly no record is
        late.
        """
        if bundle.late is not None:
            return bundle.late
        return may_be_late(self.pipeline, bundle.closest, state.clock)

    def _most(self, state: OpenWindows, bundle: BundlePartials) -> int | None:
        """Return an upper bound on an epoch's number of windows and late records, or None if no bound is known."""
        if state.resting is not None or bundle.records is None or (state.clock is not None and state.count is None):
            return None
        there = 0 if state.count is None else state.count()
        if self._any_late(state, bundle) or self.pipeline.finishing == "close":
            # A late record is counted once for each of its windows. If windows merge, each record has one window.
            # Otherwise a record may have many windows, so no bound is known.
            return there + bundle.count + bundle.records if self.pipeline.where.merges else None
        return there + bundle.count

    def _clock_before(self, state: OpenWindows) -> None:
        """Create the view of the clock that is used to assign records to windows (`EpochState.watermark`)."""
        self._clock_view(state, Clock(-1, state.clock.watermark if state.clock else BEGINNING, 0))

    def _clock_view(self, state: OpenWindows, clock: Clock) -> None:
        frame = self.spark.sql(clock_row(self.pipeline, state.clock, clock, state.generation))
        frame.createOrReplaceTempView(self._views["clock"])


def _ends(state: OpenWindows, bundle: BundlePartials) -> tuple[int, int] | None:
    """Return the end times of the first and the last window that an epoch can change, or None if they are unknown."""
    if state.resting is not None or (state.clock is not None and state.ends is None) or bundle.furthest is None:
        return None
    there = None if state.ends is None else state.ends()
    assert bundle.closest is not None
    every = [bundle.closest, bundle.furthest, *(there or ())]
    return min(every), max(every)


class Assigned(Native):
    """Executes a definition's step in SQL, after user-defined code has assigned windows to each record.

    The code is called once per record. Windows that merge do not use this execution, because user-defined code may
    define its own rule for merging windows.
    """

    @property
    def _by_sql(self) -> bool:
        return False

    def _prepared(self, bundle: DataFrame) -> PreparedBundle:
        prepared, pipeline = super()._prepared(bundle), self.pipeline
        where = keep_clause(pipeline)
        records = query_frame(self.spark, prepared.records, lambda view: Query(f"SELECT * FROM {view}{where}"))
        schema = StructType([*records.schema.fields, *schema_of({WINDOWS: BOUNDS, FAILED: "string"}).fields])
        # Two queries read the result: one query aggregates the records, and the other query finds the late records. The
        # result is checkpointed, so the code is called only once per record.
        placed = records.mapInArrow(over_batches(assigning_calls(pipeline, to_arrow_schema(schema))), schema)
        placed = placed.localCheckpoint(eager=False)
        place = [pipeline.log.event_time, *PLACE, FAILED]
        bad = placed.where(f"{FAILED} IS NOT NULL").select(*place)
        if prepared.rejected is not None:
            bad = prepared.rejected.select(*place).unionAll(bad)
        good = placed.where(f"{FAILED} IS NULL").drop(FAILED)
        return replace(prepared, records=good, rejected=bad, held=(*prepared.held, placed))
