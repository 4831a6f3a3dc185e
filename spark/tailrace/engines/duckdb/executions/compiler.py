"""Compile a definition into its execution on DuckDB."""

from __future__ import annotations

from tailrace.engines.duckdb.executions.execution import DuckExecution
from tailrace.engines.duckdb.executions.preparation import Connection, Steps
from tailrace.engines.duckdb.executions.python_execution import PythonExecution
from tailrace.engines.duckdb.executions.sql_execution import AssignedExecution, SqlExecution
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.records.ways import Way, way


def executed(connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> DuckExecution:
    """Compile a definition into the execution that it takes on DuckDB."""
    return _EXECUTIONS[way(pipeline)](connection, pipeline, steps)


_EXECUTIONS: dict[Way, type[DuckExecution]] = {
    Way.SQL: SqlExecution,
    Way.ASSIGNED: AssignedExecution,
    Way.PYTHON: PythonExecution,
}
