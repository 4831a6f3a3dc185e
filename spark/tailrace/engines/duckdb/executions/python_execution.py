"""A definition's step on DuckDB as the reference computes it, for code of one's own that SQL cannot call."""

from __future__ import annotations

import pyarrow as pa

from tailrace.engines.duckdb.database.connection import in_one_transaction
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.executions.execution import DuckExecution, Moved, Windows
from tailrace.engines.duckdb.executions.preparation import Connection, Steps, Taken
from tailrace.engines.python.window_step import PythonStep
from tailrace.lake.schema.iceberg_types import arrow_schema
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE, SIGN
from tailrace.sql.records.assignment import keep_clause
from tailrace.sql.terms import Query, quoted


class PythonExecution(DuckExecution):
    """The reference step itself, in this process: for a definition's own combiners, and its own windows that merge."""

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        self._open = arrow_schema(self._types)
        more = [SIGN] if pipeline.takes_back else []
        items = ", ".join([*map(quoted, pipeline.columns), *PLACE, *more])
        kept = Query(f"SELECT {items} FROM {self._names['bundle']}{keep_clause(pipeline)}")
        self._records_text = in_duckdb(kept)

    def consume(self, bundle: pa.Table, state: Windows) -> Taken:
        taken = self._prepared(bundle)
        return Taken(self._queried(taken.records, self._records_text), taken.rejected)

    def step(self, state: Windows, taken: Taken, clock: Clock) -> Moved:
        clock.after(state.clock)
        names, execute = self._names, self.connection.execute
        self._clock(state, clock)
        step = PythonStep(self.pipeline, clock, state.clock, state.generation, self._open, self.schema)
        with in_one_transaction(self.connection):
            self.connection.register(names["partials"], taken.records)
            execute(f"CREATE OR REPLACE TEMP TABLE {names['awake']} AS {self._awake}")
            self.connection.unregister(names["partials"])
            awake = execute(f"SELECT * EXCLUDE (_row) FROM {names['awake']}").to_arrow_table()
            remains, rows = step(awake, taken.records)
            self.connection.register(names["transitions"], remains)
            after = self._stepped(f"SELECT * FROM {names['transitions']}", state, clock)
            self.connection.unregister(names["transitions"])
        return Moved(self._with_rejected(self._typed(rows), taken, clock), after)
