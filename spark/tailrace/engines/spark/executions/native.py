"""The native execution: `step` as two Spark jobs, with nothing in Python per record or per window.

The first job aggregates the bundle to partials; the second takes the open windows through the epoch, and its result
gives the ledger's rows and the next state. State and transitions are checkpointed on the executors, so that a plan
never grows with the number of epochs.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tailrace.engines.python.assigned import BOUNDS, placer
from tailrace.engines.spark.executions.execution import Consumed, PreparedBundle, SparkExecution, Stepped
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.open_windows import OpenWindows, checkpointed
from tailrace.engines.spark.executions.preparation import queried, schema_of
from tailrace.engines.spark.executions.resting_files import Reach
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.clock_row import clock_row
from tailrace.sql.epoch.partials import late, may_be_late, partials, refused
from tailrace.sql.epoch.state_merge import met
from tailrace.sql.epoch.transition_rows import transitions
from tailrace.sql.records.assignment import WINDOWS, keep_clause
from tailrace.sql.terms import Query, Relation


class Native(SparkExecution):
    """A definition compiled for a Spark session."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, rest: RestingWindows | None = None) -> None:
        super().__init__(spark, pipeline, rest)
        self._views = {name: Relation(f"tailrace_{pipeline.name}_{name}_{uuid.uuid4().hex[:8]}") for name in _VIEWS}
        view = self._views
        self._partials = partials(pipeline, view["bundle"], view["clock"])
        self._transitions = transitions(pipeline, met(pipeline, view["state"], view["partials"], view["clock"]))
        self._ledger_rows = self.rows.of_transitions(view["transitions"])
        self._late = self.rows.of_late(late(pipeline, view["bundle"], view["clock"]))
        self._refused = self.rows.of_late(refused(pipeline, view["bundle"], view["clock"], view["transitions"]))
        self._remains = self.rows.state(view["transitions"])

    def consume(self, bundle: DataFrame, state: OpenWindows) -> Consumed:
        """Aggregate a bundle to partials. `bundle` has the log's columns and where each record came from."""
        prepared, state = self._prepared(bundle), self._settled(state)
        prepared.records.createOrReplaceTempView(self._views["bundle"])
        watermark = state.clock.watermark if state.clock else BEGINNING
        self._clock_view(state, Clock(-1, watermark, 0))
        reaching = () if self._rest is None else self._rest.reaching(state, windows=True)
        observed = ObservedCounts(self.spark.sql(self._partials), F.min("window_end").alias("closest"), *reaching)
        partials = observed.rows.localCheckpoint()
        found = observed.read()
        return Consumed(partials, found.pop("closest"), prepared, Reach(**found) if reaching else None)

    def step(self, state: OpenWindows, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the open windows through an epoch, as two texts of SQL."""
        clock.after(state.clock)
        windows, resting = self._awake(
            state, consumed.partials, consumed.reach, clock, by_key=self.pipeline.where.merges
        )
        windows.createOrReplaceTempView(self._views["state"])
        consumed.partials.createOrReplaceTempView(self._views["partials"])
        self._clock_view(state, clock)
        moved, count = checkpointed(self.spark.sql(self._transitions), F.col("remains"))
        moved.createOrReplaceTempView(self._views["transitions"])
        rows = self.spark.sql(self._ledger_rows)
        if may_be_late(self.pipeline, consumed.closest, state.clock):
            rows = rows.unionAll(self.spark.sql(self._late))
        if self.pipeline.finishing == "close":
            rows = rows.unionAll(self.spark.sql(self._refused))
        rows = self._with_rejected(rows, consumed, clock)
        held = (moved, consumed.partials, *consumed.prepared.held)
        onward = OpenWindows(self.spark.sql(self._remains), clock, state.generation, held, count, resting)
        return Stepped(rows, onward)

    def _clock_view(self, state: OpenWindows, clock: Clock) -> None:
        frame = self.spark.sql(clock_row(self.pipeline, state.clock, clock, state.generation))
        frame.createOrReplaceTempView(self._views["clock"])


class Assigned(Native):
    """The step as SQL, over records whose windows the definition's own code assigned, called once for each record.

    Windows that merge do not take this execution: they may merge by a rule of their own.
    """

    def _prepared(self, bundle: DataFrame) -> PreparedBundle:
        prepared, pipeline = super()._prepared(bundle), self.pipeline
        where = keep_clause(pipeline)
        records = queried(self.spark, prepared.records, lambda view: Query(f"SELECT * FROM {view}{where}"))
        schema = StructType([*records.schema.fields, *schema_of({WINDOWS: BOUNDS}).fields])
        # Checkpointed, so that the code is called once for a record although partials and late records are read apart.
        placed = records.mapInArrow(placer(pipeline, to_arrow_schema(schema)), schema).localCheckpoint(eager=False)
        return replace(prepared, records=placed, held=(*prepared.held, placed))


_VIEWS = ("bundle", "clock", "partials", "state", "transitions")
