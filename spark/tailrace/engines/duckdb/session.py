"""Execute a run in this process: pyiceberg selects the files to read and makes the commits, and DuckDB computes.

No JVM is started. Relations are views and tables of the session's database, so rows that exceed the memory limit are
spilled to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.manifest import DataFile

from tailrace.engines.choose import EngineChoice
from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.dialect import in_duckdb_once, name_of
from tailrace.engines.duckdb.database.own_functions import add_own_functions
from tailrace.engines.duckdb.database.preview import readable_rows
from tailrace.engines.duckdb.database.scans import as_declared, scan_table
from tailrace.engines.duckdb.database.written_rows import write_rows
from tailrace.engines.duckdb.executions.execution import DuckResult
from tailrace.engines.duckdb.follower import ProcessFollower
from tailrace.engines.duckdb.side import DuckSide, execution_of
from tailrace.engines.protocol import EpochState
from tailrace.engines.python.record_calls import OverBatches, step_calls
from tailrace.engines.session_protocol import CountedRelation, OverTables, Together
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.filters import EVERYTHING, Filter
from tailrace.lake.schema.iceberg_types import arrow_schema, iceberg_schema
from tailrace.lake.schema.pipeline_tables import ledger_contract
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Each, ElementWise
from tailrace.model.logs.log import Log
from tailrace.sql.records.selections import FAILED, step_query
from tailrace.sql.records.traced_steps import sure_records, traced, unsure_records
from tailrace.sql.terms import Condition, Query, Relation, all_of, new_relation

ROWS_A_CALL = 200_000
"""The approximate number of rows per call of a Python function. Each call converts its rows to Python objects."""


class DuckGathering:
    """A table of the database that collects the ledger rows of several epochs.

    The rows of several epochs are inserted with one statement.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, relation: Relation) -> None:
        self.connection, self.relation = connection, relation
        self._waiting: list[pa.Table] = []

    def take(self, stepped: DuckResult, before: EpochState) -> None:
        self._waiting.append(stepped.rows)
        if sum(rows.num_rows for rows in self._waiting) >= ROWS_A_CALL:
            self.settle()

    def settle(self) -> None:
        if self._waiting:
            with register(self.connection, pa.concat_tables(self._waiting)) as rows:
                self.connection.execute(f"INSERT INTO {self.relation} SELECT * FROM {rows}")
            self._waiting = []


class DuckSession:
    """The session of a run that DuckDB executes. Small runs use this session."""

    direct = True

    def __init__(
        self,
        lake: Lake,
        choice: EngineChoice,
        database: duckdb.DuckDBPyConnection | None = None,
        *,
        threads: int | None = None,
    ) -> None:
        """Open the session on `database`, or on a new database if `database` is None.

        A new database uses `threads` threads, or `TAILRACE_THREADS` threads if `threads` is None.
        """
        self.lake, self.choice, self._database, self._threads = lake, choice, database, threads
        self._relations: dict[Relation, ExitStack] = {}
        self._cancelled = False

    @cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The session's connection to its database."""
        return connect(self.lake.settings, self._threads) if self._database is None else self._database.cursor()

    def has(self, relation: Relation) -> bool:
        """Return True if a relation belongs to this session."""
        return relation in self._relations

    def read_by(self, text: Query | Relation) -> frozenset[Relation]:
        """Return the set of this session's relations that a query reads."""
        return text.reads & self._relations.keys()

    def table(
        self, table: str, where: Filter = EVERYTHING, snapshot: int | None = None, of: Lake | None = None
    ) -> Relation:
        return self._kept(scan_table(self.connection, of or self.lake, table, where, snapshot))

    def log(self, log: Log, where: Filter = EVERYTHING, snapshot: int | None = None) -> Relation:
        rows = self.table(log.name, where, snapshot)
        return self._named("VIEW", as_declared(self.lake, log, rows, snapshot))

    def relation_of(self, rows: pa.Table) -> Relation:
        return self._taken_over(rows)

    def lent(self, rows: pa.Table) -> Relation:
        """Return a relation over rows that stay in Arrow's memory, outside DuckDB's memory limit."""
        return self._kept(register(self.connection, rows))

    def view(self, text: Query) -> Relation:
        return self._named("VIEW", in_duckdb_once(text))

    def called(self, relation: Relation, text: Query) -> None:
        """Create a view of a query under the name `relation`."""
        self._named("VIEW", in_duckdb_once(text), relation)

    def materialized(self, text: Query) -> Relation:
        return self._named("TABLE", in_duckdb_once(text))

    def brought(self, text: Query, types: Mapping[str, str], together: Together) -> Relation:
        return self.view(text)

    def counted(self, text: Query, counts: Mapping[str, Condition]) -> CountedRelation:
        return self.tallied(self.materialized(text), counts)

    def tallied(self, relation: Relation, counts: Mapping[str, Condition]) -> CountedRelation:
        """For each condition, count the rows of a relation that meet the condition.

        The relation's rows must already be computed.
        """
        items = ", ".join(f"COUNT_IF({condition}) AS {name}" for name, condition in counts.items())
        (row,) = self.rows(Query(f"SELECT {items} FROM {relation}"))
        return CountedRelation(relation, {name: int(row[name]) for name in counts})

    def rows(self, text: Query) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.fetched(text).to_pylist()
        return found

    def readable_rows(self, text: Query) -> list[dict[str, Any]]:
        return readable_rows(self.fetched(text))

    def count(self, relation: Relation) -> int:
        (row,) = self.rows(Query(f"SELECT COUNT(*) AS n FROM {relation}"))
        return int(row["n"])

    def prepared(self, source: Relation, pipeline: Ranged) -> Relation:
        if not pipeline.each:
            return source
        types, relation = dict(pipeline.log.columns), self.view(all_of(source))
        for one in pipeline.each:
            step = self._called if isinstance(one, Each) else self._taken
            relation = step(relation, one, types)
            types = dict(one.columns(types))
        return relation

    def mapped(self, text: Query, function: Callable[[pa.Schema], OverBatches], types: Mapping[str, str]) -> Relation:
        schema = arrow_schema(types)
        return self._taken_over(pa.RecordBatchReader.from_batches(schema, function(schema)(self._read(text))))

    def calls_combiners(self, pipeline: Pipeline) -> bool:
        add_own_functions(self.connection, pipeline.parts.values())
        return True

    def by_key(
        self, text: Query, key: Sequence[str], function: Callable[[pa.Schema], OverTables], types: Mapping[str, str]
    ) -> Relation:
        schema, source = arrow_schema(types), self.materialized(text)
        parts = 1 + self.count(source) // ROWS_A_CALL if key else 1
        bucket = f"hash({', '.join(map(name_of, key))}) % {parts}" if key else "0"
        made, call = self._taken_over(schema.empty_table()), function(schema)
        for part in range(parts):
            rows = self.connection.execute(f"SELECT * FROM {source} WHERE {bucket} = {part}").to_arrow_table()
            if rows.num_rows:
                with register(self.connection, call(rows)) as some:
                    self.connection.execute(f"INSERT INTO {made} SELECT * FROM {some}")
        self.free(source)
        return made

    def side(self, pipeline: Pipeline) -> DuckSide:
        return DuckSide(self.lake, execution_of(self.connection, pipeline), self.choice)

    def bundles(self, text: Query, epochs: Iterable[int]) -> Iterator[pa.Table]:
        # The rows are copied once, because otherwise each epoch's query would open all files again.
        rows = self.materialized(text)
        for epoch in epochs:
            yield self.connection.execute(f"SELECT * FROM {rows} WHERE _epoch = {epoch}").to_arrow_table()
        self.free(rows)

    def gathered(self, pipeline: Pipeline) -> DuckGathering:
        schema = iceberg_schema(ledger_contract(pipeline)).as_arrow()
        return DuckGathering(self.connection, self._taken_over(schema.empty_table()))

    def write(self, text: Query, branch: Branch, properties: Mapping[str, str], of: Lake | None = None) -> None:
        branch.hold(FileChange(tuple(write_rows(self.connection, text, of or self.lake, branch.table))), properties)

    def files(self, text: Query, table: str, times: tuple[int, int] | None = None) -> Sequence[DataFile]:
        try:
            return write_rows(self.connection, text, self.lake, table, times)
        except duckdb.InterruptException:
            if self._cancelled or times is None:
                raise
            # If rows are read while they are computed, DuckDB may say only that a failed query was interrupted. Rows
            # that are sorted first are computed before they are read, so this query fails with its own error.
            return write_rows(self.connection, text, self.lake, table)

    def new_panes(self, text: Query, pipeline: Pipeline) -> tuple[Sequence[DataFile], Sequence[DataFile]]:
        return ProcessFollower(self.connection, self.lake, pipeline, "").write_new(text)

    def follower(self, pipeline: Pipeline, owner: str) -> ProcessFollower:
        return ProcessFollower(self.connection, self.lake, pipeline, owner)

    def free(self, relation: Relation) -> None:
        self._relations.pop(relation).close()

    def cancel(self) -> None:
        self._cancelled = True
        self.connection.interrupt()

    def close(self) -> None:
        while self._relations:
            self._relations.popitem()[1].close()
        if "connection" in self.__dict__:
            self.connection.close()

    def _called(self, relation: Relation, step: Any, types: dict[str, str]) -> Relation:
        """Call a step's Python function for each record, and return a relation of the records returned by the calls.

        If the function is traced, it is called only for the records of which SQL is not sure.
        """
        if (found := traced(step, types)) is None:
            return self._called_for(all_of(relation), step, types)
        columns = [name for name, *_ in self.connection.execute(f"DESCRIBE {relation}").fetchall()]
        failing = FAILED in columns
        sure = sure_records(found, relation, columns, step.gives, failing=failing)
        called = self._called_for(unsure_records(found, relation, columns, failing=failing), step, types)
        if self.count(called):
            return self.view(Query(f"{sure} UNION ALL SELECT * FROM {called}"))
        self.free(called)
        return self.view(sure)

    def _called_for(self, text: Query, step: Any, types: dict[str, str]) -> Relation:
        reader = self._read(text)
        fields = [field for field in reader.schema if field.name != FAILED]
        schema = pa.schema([*fields, *arrow_schema(step.gives), pa.field(FAILED, pa.string())])
        return self._taken_over(pa.RecordBatchReader.from_batches(schema, step_calls(step, types, schema)(reader)))

    def _taken(self, relation: Relation, step: ElementWise, types: Mapping[str, str]) -> Relation:
        """Run a step on a relation's records in SQL."""
        columns = [name for name, *_ in self.connection.execute(f"DESCRIBE {relation}").fetchall()]
        text = step_query(step, relation, types, columns, failing=FAILED in columns)
        assert text is not None, f"{step!r} is a step for Spark"
        return self.view(text)

    def fetched(self, text: Query) -> pa.Table:
        """Fetch all rows of a query. The query must return only a few rows, such as the rows of an epoch."""
        return self.connection.execute(in_duckdb_once(text)).to_arrow_table()

    def _read(self, text: Query) -> pa.RecordBatchReader:
        """Read the rows of a query in batches.

        The query runs on a separate connection, because results are written on the session's connection at the same
        time.
        """
        return self.connection.cursor().execute(in_duckdb_once(text)).to_arrow_reader(ROWS_A_CALL)

    def _kept(self, relation: AbstractContextManager[Relation]) -> Relation:
        """Keep a relation until it is freed; return its name."""
        held = ExitStack()
        name = held.enter_context(relation)
        self._relations[name] = held
        return name

    def _named(self, kind: str, text: str, name: Relation | None = None) -> Relation:
        """Create a view or a table from a query in DuckDB's dialect, and return the name of the view or table."""
        name = name or new_relation()
        self.connection.execute(f"CREATE {kind} {name} AS {text}")
        held = ExitStack()
        held.callback(self.connection.execute, f"DROP {kind} IF EXISTS {name}")
        self._relations[name] = held
        return name

    def _taken_over(self, rows: pa.Table | pa.RecordBatchReader) -> Relation:
        with register(self.connection, rows) as there:
            return self._named("TABLE", f"SELECT * FROM {there}")
