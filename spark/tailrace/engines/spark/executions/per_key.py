"""The `python` execution: the reference step itself on the executors, for definitions that cannot be compiled to SQL.

State and bundle are brought together by a hash of the key, in buckets: Python is called once for a bucket, not for a
key or a record, with Arrow batches of both. Where there are many windows, those that an epoch does not touch rest
(`engines.spark.executions.resting_state`). The result holds the ledger's rows and the windows that stay open, in the
same columns as the native execution's, so that tables, restarts and backfills are the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tailrace.engines.python.window_step import PythonStep
from tailrace.engines.spark.executions.execution import Consumed, SparkExecution, Stepped
from tailrace.engines.spark.executions.open_windows import OpenWindows, checkpointed
from tailrace.engines.spark.executions.preparation import queried, schema_of
from tailrace.engines.spark.executions.resting_files import Reach
from tailrace.engines.spark.executions.resting_state import brought, split_state, with_resting
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.engines.spark.workers.python_tasks import over_group
from tailrace.engines.spark.workers.worker_queries import LogFiles
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE, SIGN
from tailrace.sql.epoch.clock_row import clock_row
from tailrace.sql.epoch.touched_windows import changed_by_clock
from tailrace.sql.records.assignment import keep_clause
from tailrace.sql.terms import Query, quoted

BUCKETS = 16
"""The number of buckets for keys, and of Python calls in an epoch. A bucket's windows are in memory at once."""

FEW = 20_000
"""The number of open windows below which to step them all takes less time than to tell apart those that rest."""

BUCKET = "_bucket"


class PerKey(SparkExecution):
    """A definition run by the reference step in the session's Python workers."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, rest: RestingWindows | None = None) -> None:
        super().__init__(spark, pipeline, rest)
        state, ledger = self._state_schema(), schema_of(self.rows.types)
        self._schema = StructType([StructField("state", state), StructField("ledger", ledger)])
        self._due = changed_by_clock(pipeline)

    def consume(self, bundle: DataFrame, state: OpenWindows, files: LogFiles | None = None) -> Consumed:
        """Take a bundle through the definition's steps; only the step looks at its records."""
        prepared = self._prepared(bundle)
        columns = [*map(quoted, self.pipeline.columns), *PLACE, f"{bucketed(self.pipeline.key)} AS {BUCKET}"]
        columns += [SIGN] if self.pipeline.takes_back else []
        items, where = ", ".join(columns), keep_clause(self.pipeline)
        records = queried(self.spark, prepared.records, lambda view: Query(f"SELECT {items} FROM {view}{where}"))
        return Consumed(records, None, None, prepared.rejected, prepared.held)

    def step(self, state: OpenWindows, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the open windows through an epoch, a bucket at a time."""
        clock.after(state.clock)
        schema = to_arrow_schema(self._schema)
        parts = (pa.schema(list(schema.field(part).type)) for part in ("state", "ledger"))
        bucket = _BucketOfWindows(PythonStep(self.pipeline, clock, state.clock, state.generation, *parts), schema)
        keys, reach, there = consumed.partials, None, tuple[DataFrame, ...]()
        state = self._settled(state)
        many = state.resting is not None or state.count is None or state.count() >= FEW
        if many:
            keys, reach = self._keys(state, consumed)
            there = (keys,)
        awake, after_rest = self._awake(state, keys, reach, clock, by_key=True)
        windows, resting = awake.selectExpr("*", f"{bucketed(self.pipeline.key)} AS {BUCKET}"), None
        if many:
            now = self.spark.sql(clock_row(self.pipeline, state.clock, clock, state.generation))
            windows, resting = split_state(windows, keys, self.pipeline.key, now, self._due)
        both = windows.groupBy(BUCKET).cogroup(consumed.partials.groupBy(BUCKET))
        stepped = both.applyInArrow(lambda left, right: over_group(bucket, left, right), self._schema)
        if resting is not None:
            stepped = with_resting(self.spark, stepped, resting, self._schema)
        made, count = checkpointed(stepped, F.col("state").isNotNull(), end="state.window_end")
        rows, after = (made.where(f"{part} IS NOT NULL").select(f"{part}.*") for part in ("ledger", "state"))
        held = (made, *there, *consumed.held)
        onward = OpenWindows(after, clock, state.generation, held, count, after_rest)
        return Stepped(self._with_rejected(rows, consumed, clock), onward)

    def _keys(self, state: OpenWindows, consumed: Consumed) -> tuple[DataFrame, Reach | None]:
        """Return the keys that have records, and what of the windows that rest they can reach, where some rest."""
        keys = brought(consumed.partials, self.pipeline.key)
        reaching = () if self._rest is None else self._rest.reaching(state, windows=False)
        if not reaching:
            return keys, None
        (found,) = keys.agg(*reaching).collect()
        return keys, Reach(**found.asDict())


@dataclass(frozen=True)
class _BucketOfWindows:
    """The call of a Python worker on one bucket: its open windows and its records, as Arrow tables."""

    step: PythonStep
    schema: pa.Schema

    def __call__(self, held: pa.Table, bundle: pa.Table) -> pa.Table:
        return as_pair(self.schema, *self.step(held, bundle))


def as_pair(schema: pa.Schema, state: pa.Table, ledger: pa.Table) -> pa.Table:
    """Stack rows of the state and of the ledger in one table, as structs in a column each."""
    parts = []
    for name, part in (("state", state), ("ledger", ledger)):
        rows = part.to_struct_array()
        nothing = {one.name: pa.nulls(len(rows), one.type) for one in schema}
        parts.append(pa.table([*(nothing | {name: rows}).values()], schema=schema))
    return pa.concat_tables(parts)


def bucketed(key: Sequence[str]) -> str:
    """Write the SQL of a row's bucket, by the key's columns."""
    return f"PMOD(HASH({', '.join(map(quoted, key))}), {BUCKETS})" if key else "0"
