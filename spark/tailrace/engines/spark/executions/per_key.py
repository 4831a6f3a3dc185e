"""The `python` execution: the executors apply the rules for windows in Python, for definitions that SQL cannot express.

If there are many windows, Python does not process the windows that an epoch does not touch
(`engines.spark.executions.buckets`). The result contains the ledger rows and the windows that stay open. The result's
columns are the same as in the native execution, so tables, restarts and backfills work in the same way for both
executions.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.python.window_step import PythonStep
from tailrace.engines.spark.executions.buckets import BUCKET, BucketStep, bucket_term, keys_of, split_state
from tailrace.engines.spark.executions.execution import BundlePartials, SparkExecution, SparkResult
from tailrace.engines.spark.executions.open_windows import OpenWindows, checkpoint
from tailrace.engines.spark.executions.preparation import query_frame, schema_of
from tailrace.engines.spark.executions.resting_files import Reach
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.engines.spark.workers.worker_queries import LogFiles
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE, SIGN
from tailrace.sql.epoch.clock_row import clock_row
from tailrace.sql.epoch.touched_windows import changed_by_clock
from tailrace.sql.records.assignment import keep_clause
from tailrace.sql.terms import Query, quoted

FEW = 20_000
"""The minimum number of open windows for which an epoch first determines which windows it can leave as they are.

With fewer open windows, it is faster to run the step on all windows than to determine this.
"""


class PerKey(SparkExecution):
    """The execution that applies the rules for windows in Python workers of the Spark session (the reference step)."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, rest: RestingWindows) -> None:
        super().__init__(spark, pipeline, rest)
        self._step = BucketStep(spark, self._state_schema(), schema_of(self.rows.types))
        self._due = changed_by_clock(pipeline)

    def consume(self, bundle: DataFrame, state: OpenWindows, files: LogFiles | None = None) -> BundlePartials:
        """Run the definition's steps on a bundle, without aggregating the records."""
        prepared = self._prepared(bundle)
        columns = [*map(quoted, self.pipeline.columns), *PLACE, f"{bucket_term(self.pipeline.key)} AS {BUCKET}"]
        columns += [SIGN] if self.pipeline.takes_back else []
        items, where = ", ".join(columns), keep_clause(self.pipeline)
        records = query_frame(self.spark, prepared.records, lambda view: Query(f"SELECT {items} FROM {view}{where}"))
        return BundlePartials(records, None, None, prepared.rejected, prepared.held)

    def step(self, state: OpenWindows, bundle: BundlePartials, clock: Clock) -> SparkResult:
        clock.after(state.clock)
        call = PythonStep(self.pipeline, clock, state.clock, state.generation, *self._step.schemas)
        keys, reach, there = bundle.partials, None, tuple[DataFrame, ...]()
        state = self.rest.settled(state)
        many = state.resting is not None or state.count is None or state.count() >= FEW
        if many:
            keys, reach = self._keys(state, bundle)
            there = (keys,)
        awake, after_rest = self.rest.awake(state, keys, reach, clock, by_key=True)
        windows, resting = awake.selectExpr("*", f"{bucket_term(self.pipeline.key)} AS {BUCKET}"), None
        if many:
            now = self.spark.sql(clock_row(self.pipeline, state.clock, clock, state.generation))
            windows, resting = split_state(windows, keys, self.pipeline.key, now, self._due)
        stepped = self._step.frame(windows, bundle.partials, call, resting)
        made, count = checkpoint(stepped, F.col("state").isNotNull(), end="state.window_end")
        rows, after = self._step.parts(made)
        onward = OpenWindows(after, clock, state.generation, (made, *there, *bundle.held), count, after_rest)
        return SparkResult(self._with_rejected(rows, bundle, clock), onward)

    def _keys(self, state: OpenWindows, bundle: BundlePartials) -> tuple[DataFrame, Reach | None]:
        """Return the distinct keys of a bundle's records, and bounds on the resting windows of these keys (`Reach`).

        The `Reach` is None if all open windows are in memory, so that no window rests in files.
        """
        keys = keys_of(bundle.partials, self.pipeline.key)
        if not (reaching := self.rest.reaching(state, windows=False)):
            return keys, None
        (found,) = keys.agg(*reaching).collect()
        return keys, Reach(**found.asDict())
