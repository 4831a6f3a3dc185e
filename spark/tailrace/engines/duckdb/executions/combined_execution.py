"""Run a definition with custom combiners on DuckDB: the step is SQL, and only what combines is Python.

The queries call the combiners' code through functions of whole columns: once for the values of all windows that a
bundle touches, once to merge these accumulators into the windows, and once for the results of the panes.
"""

from __future__ import annotations

import pyarrow as pa

from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.database.own_functions import add_own_functions
from tailrace.engines.duckdb.executions.preparation import Connection, DuckBundle, Steps
from tailrace.engines.duckdb.executions.sql_execution import SqlExecution
from tailrace.engines.protocol import EpochState
from tailrace.engines.python.own_calls import FAILURES, rejections
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.records.assignment import keep_clause
from tailrace.sql.terms import Query


class CombinedExecution(SqlExecution):
    """Executes a definition's step in SQL, with calls of the definition's custom combiners.

    A record for which a combiner's code fails is rejected. The functions that add up whole windows notice such a
    failure, but not the record. Only then is the code called for each record by itself, and the bundle is added up
    again without the rejected records. If windows merge, late records are not added up at all, so each record is called
    for first.
    """

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        self._functions = add_own_functions(connection, pipeline.parts.values())
        kept = Query(f"SELECT * FROM {self._names['bundle']}{keep_clause(pipeline)}")
        self._records_text = in_duckdb(kept)
        self._viewed = False
        self._fails = any(one.fails for one in pipeline.own_combiners)

    def consume(self, bundle: pa.Table, state: EpochState) -> DuckBundle:
        if self._fails and self.pipeline.where.merges:
            return self._added(self._accepted(self._prepared(bundle)), state)
        before, prepared = self._failures(), self._prepared(bundle)
        taken = self._added(prepared, state)
        return taken if self._failures() == before else self._added(self._accepted(prepared), state)

    def _added(self, taken: DuckBundle, state: EpochState) -> DuckBundle:
        self.connection.register(self._names["bundle"], taken.records)
        return self._aggregated(taken, state)

    @property
    def _again(self) -> bool:
        return False

    def _failures(self) -> int:
        return sum(FAILURES[name] for name in self._functions)

    def _accepted(self, bundle: DuckBundle) -> DuckBundle:
        """Separate the records for which the combiners' code fails."""
        records = self._queried(bundle.records, self._records_text)
        return bundle.judged(self.pipeline.log.event_time, records, rejections(self.pipeline, records))
