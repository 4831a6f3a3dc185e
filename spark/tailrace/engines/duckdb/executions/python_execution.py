"""Run the reference step, the rules for windows written in Python, on DuckDB's tables.

The reference step is needed for definitions with code that SQL cannot call.
"""

from __future__ import annotations

import pyarrow as pa

from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import in_one_transaction
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.executions.execution import DuckExecution, DuckResult
from tailrace.engines.duckdb.executions.preparation import Connection, DuckBundle, Steps
from tailrace.engines.protocol import EpochState
from tailrace.engines.python.window_step import PythonStep
from tailrace.lake.schema.iceberg_types import arrow_schema
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE, SIGN
from tailrace.sql.records.assignment import keep_clause
from tailrace.sql.terms import Query, quoted


class PythonExecution(DuckExecution):
    """The execution that applies the rules for windows in Python, in this process (the reference step).

    This execution is for pipelines with user-defined combiners, or with user-defined windows that merge.
    """

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        self._open = arrow_schema(self._types)
        more = [SIGN] if pipeline.takes_back else []
        items = ", ".join([*map(quoted, pipeline.columns), *PLACE, *more])
        kept = Query(f"SELECT {items} FROM {self._names['bundle']}{keep_clause(pipeline)}")
        self._records_text = in_duckdb(kept)

    def consume(self, bundle: pa.Table, state: EpochState) -> DuckBundle:
        taken = self._prepared(bundle)
        return DuckBundle(self._queried(taken.records, self._records_text), taken.rejected)

    def step(self, state: EpochState, bundle: DuckBundle, clock: Clock) -> DuckResult:
        clock.after(state.clock)
        names, execute = self._names, self.connection.execute
        self._clock(state, clock)
        step = PythonStep(self.pipeline, clock, state.clock, state.generation, self._open, self.schema)
        with in_one_transaction(self.connection):
            with register(self.connection, bundle.records, names["partials"]):
                execute(f"CREATE OR REPLACE TEMP TABLE {names['touched']} AS {self._touched}")
            awake = execute(f"SELECT * EXCLUDE (_row) FROM {names['touched']}").to_arrow_table()
            remains, rows = step(awake, bundle.records)
            with register(self.connection, remains) as stay:
                after = self._stepped(f"SELECT * FROM {stay}", awake.num_rows, state, clock)
        return DuckResult(self._with_rejected(self._typed(rows), bundle, clock), after)
