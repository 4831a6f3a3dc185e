"""The `python` execution: the reference step itself on the executors, for what nobody can compile.

State and bundle are brought together by a hash of the key, in buckets: Python is called once for a bucket, not for a
key or a record, with Arrow batches of both. Of many windows those that an epoch does nothing to rest
(`spark.resting`). What comes back holds the ledger's rows and the windows that stay open, in the same columns as the
native execution's, so that tables, restarts and backfills are the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tailrace.engines.python.step import PLACE, PythonStep
from tailrace.model.clock import Clock
from tailrace.model.log import SIGN
from tailrace.model.pipeline import Pipeline
from tailrace.model.transition import Transition
from tailrace.spark.execution import Consumed, Execution, OpenWindows, Stepped, checkpointed, schema_of
from tailrace.spark.preparing import queried
from tailrace.spark.resting import brought, told_apart, with_resting
from tailrace.sql.algebra import Sql, quoted
from tailrace.sql.clock import clock_row, times
from tailrace.sql.windows import kept

BUCKETS = 16
"""How many buckets the keys are hashed to: Python calls an epoch. A bucket's windows are in memory at once."""

FEW = 20_000
"""How many open windows go through the workers in less time than it takes to tell apart those that rest."""

BUCKET = "_bucket"


class PerKey(Execution):
    """One definition, run by the reference step in the session's Python workers."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        super().__init__(spark, pipeline)
        state, said = self._state_schema(), schema_of(self.rows.types)
        self._schema = StructType([StructField("state", state), StructField("said", said)])
        rules = Transition(pipeline, Sql())
        row = {name: quoted(name) for name in rules.columns()}
        self._stirs = rules.stirs(row, "window_end", times(pipeline))

    def consume(self, bundle: DataFrame, state: OpenWindows) -> Consumed:
        """The bundle after the definition's steps; its records are looked at in the step."""
        prepared = self._prepared(bundle)
        columns = [*map(quoted, self.pipeline.columns), *PLACE, f"{bucketed(self.pipeline.key)} AS {BUCKET}"]
        columns += [SIGN] if self.pipeline.earlier is not None else []
        items, where = ", ".join(columns), kept(self.pipeline)
        records = queried(self.spark, prepared.records, lambda view: f"SELECT {items} FROM {view}{where}")
        return Consumed(records, None, prepared)

    def step(self, state: OpenWindows, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the open windows through an epoch, a bucket at a time."""
        clock.after(state.clock)
        one = PythonStep(self.pipeline, clock, state.clock, state.generation, to_arrow_schema(self._schema))
        windows = state.windows.selectExpr("*", f"{bucketed(self.pipeline.key)} AS {BUCKET}")
        there, resting = tuple[DataFrame, ...](), None
        if state.count is None or state.count() >= FEW:
            there = (brought(consumed.partials, self.pipeline.key),)
            now = self.spark.sql(clock_row(self.pipeline, state.clock, clock, state.generation))
            windows, resting = told_apart(windows, *there, self.pipeline.key, now, self._stirs)
        both = windows.groupBy(BUCKET).cogroup(consumed.partials.groupBy(BUCKET))
        stepped = both.applyInArrow(lambda left, right: one(left, right), self._schema)
        if resting is not None:
            stepped = with_resting(self.spark, stepped, resting, self._schema)
        made, count = checkpointed(stepped, F.col("state").isNotNull())
        rows, after = (made.where(f"{part} IS NOT NULL").select(f"{part}.*") for part in ("said", "state"))
        held = (made, *there, *consumed.prepared.held)
        onward = OpenWindows(after, clock, state.generation, held, count)
        return Stepped(self._with_rejected(rows, consumed, clock), onward, count)


def bucketed(key: Sequence[str]) -> str:
    """The bucket of a row with the key's columns, as SQL."""
    return f"PMOD(HASH({', '.join(map(quoted, key))}), {BUCKETS})" if key else "0"
