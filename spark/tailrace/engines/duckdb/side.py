"""Run one stage of a stream on DuckDB.

The stage's state is restored from the ledger, and this process writes the stage's ledger rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tailrace.engines.choose import EngineChoice
from tailrace.engines.duckdb.database.dialect import in_duckdb, in_duckdb_once
from tailrace.engines.duckdb.database.scans import scan_table
from tailrace.engines.duckdb.database.written_rows import write_rows
from tailrace.engines.duckdb.executions.combined_execution import CombinedExecution
from tailrace.engines.duckdb.executions.execution import DuckExecution, DuckResult
from tailrace.engines.duckdb.executions.preparation import Connection, DuckBundle, Steps
from tailrace.engines.duckdb.executions.python_execution import PythonExecution
from tailrace.engines.duckdb.executions.sql_execution import AssignedExecution, SqlExecution
from tailrace.engines.protocol import GROUPED_BY, EpochCounts, EpochState, RecordFiles, as_table, count_rows
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import PANE, PARTIAL
from tailrace.lake.schema.filters import above, at_most, equal, every
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import UNANSWERED, Pipeline
from tailrace.sql.records.stage_records import corrected_before, sent_with
from tailrace.sql.records.ways import Way, combines_in_sql, way
from tailrace.sql.terms import Condition, Query, Relation


class DuckSide:
    """The implementation of `Side` that runs a stage of a pipeline on DuckDB. Bundles are Arrow tables.

    This implementation is for amounts of data that fit into this process.
    """

    direct = True

    def __init__(self, lake: Lake, execution: DuckExecution, choice: EngineChoice) -> None:
        self.lake, self.execution, self.choice = lake, execution, choice
        self.connection, self.pipeline = execution.connection, execution.pipeline
        self.ledger = ledger_name(self.pipeline.name)
        self.holds = self.execution.holds
        self._restored_at: int | None = None

    @property
    def reads_files(self) -> bool:
        return self.direct and self.execution.reads_files

    def nothing(self, generation: int) -> EpochState:
        return self.execution.nothing(generation)

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> EpochState:
        # A backfill may have corrected the restored state. Remember the epoch, because a later stage must read these
        # corrections together with the next epoch.
        self._restored_at = clock.epoch
        where = every(equal("kind", PARTIAL), at_most("epoch", clock.epoch))
        with scan_table(self.connection, self.lake, self.ledger, where, snapshot) as rows:
            until = Relation(f"(SELECT * FROM {rows} WHERE epoch <= {clock.epoch})")
            return self.execution.restore(until, clock, generation)

    def consume(self, bundle: pa.Table | RecordFiles, state: EpochState) -> DuckBundle:
        as_files = isinstance(bundle, RecordFiles) and self.execution.reads_files
        return self.execution.consume(bundle if as_files else as_table(bundle), state)

    def step(self, state: EpochState, consumed: DuckBundle, clock: Clock) -> DuckResult:
        return self.execution.step(state, consumed, clock)

    def write(self, stepped: DuckResult, branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        files, groups = list(self.lake.write_files(self.ledger, stepped.computed)), count_rows(stepped.computed)
        for query in stepped.queries:
            files += write_rows(self.connection, query, self.lake, self.ledger)
            groups += self._counted(query)
        branch.hold(FileChange(tuple(files)), properties)
        return EpochCounts.of_groups(groups, stepped.state.count)

    def _counted(self, query: Query) -> list[dict[str, Any]]:
        """Count the ledger rows that a query returns, in the same groups as `count_rows`."""
        by, own = ", ".join(GROUPED_BY), f", COUNT({UNANSWERED}) AS {UNANSWERED}" if self.pipeline.leaves else ""
        text = in_duckdb_once(Query(f"SELECT {by}, COUNT(*) AS rows{own} FROM ({query}) GROUP BY {by}"))
        found: list[dict[str, Any]] = self.connection.execute(text).to_arrow_table().to_pylist()
        return found

    def onward(self, state: EpochState) -> int:
        return self.execution.onward(state)

    def due(self, state: EpochState, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        return self.execution.due(state, periods, delays)

    def passed(self, stepped: DuckResult) -> pa.Table:
        passed, clock = self.execution.changed(stepped.rows), stepped.state.clock
        if clock is None or clock.epoch - 1 != self._restored_at:
            return passed
        corrected = self._read(corrected_before(clock.epoch), clock.epoch - 1, clock.epoch)
        return pa.concat_tables([passed, corrected])

    def passed_again(self, epoch: int, after: int | None = None) -> pa.Table:
        return self._read(sent_with(epoch, after), epoch - 1 if after is None else after, epoch)

    def _read(self, which: Condition, first: int, last: int) -> pa.Table:
        """Return the records that a later stage reads from this stage.

        The records are computed from those ledger rows of the epochs `first` to `last` that meet the condition `which`.
        """
        where = every(equal("kind", PANE), above("epoch", first - 1), at_most("epoch", last))
        with scan_table(self.connection, self.lake, self.ledger, where) as rows:
            found = self.connection.execute(in_duckdb(Query(f"SELECT * FROM {rows} WHERE {which}")))
            return self.execution.changed(found.to_arrow_table())

    def close(self) -> None:
        self.execution.close()


def execution_of(connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> DuckExecution:
    """Create the object that executes a pipeline on DuckDB.

    Depending on the pipeline, the step runs in SQL, in SQL after Python code has assigned windows to the records, in
    SQL that calls custom combiners, or in Python.
    """
    if combines_in_sql(pipeline):
        return CombinedExecution(connection, pipeline, steps)
    return _EXECUTIONS[way(pipeline)](connection, pipeline, steps)


_EXECUTIONS: dict[Way, type[DuckExecution]] = {
    Way.SQL: SqlExecution,
    Way.ASSIGNED: AssignedExecution,
    Way.PYTHON: PythonExecution,
}
