"""Run a definition's steps on a bundle's records in DuckDB. Each step in SQL is one query."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.executions.shared_work import SharedWork
from tailrace.engines.python.record_calls import step_calls
from tailrace.lake.schema.iceberg_types import arrow_schema, iceberg_schema
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.base.clock import Clock
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.record_steps import Each
from tailrace.model.logs.log import PLACE
from tailrace.sql.records.selections import FAILED, may_fail, step_query
from tailrace.sql.records.traced_steps import Traced, sure_records, traced, unsure_records
from tailrace.sql.terms import Relation

Connection = duckdb.DuckDBPyConnection

Steps: TypeAlias = Callable[[pa.Table], pa.Table]
"""A function that runs a definition's steps on records. The function adds the column `selections.FAILED` if a step can
fail.
"""


@dataclass(frozen=True)
class DuckBundle:
    """A bundle to which the definition's steps have been applied.

    `closest` is the earliest end of the windows that the bundle affects, in microseconds. `late` takes an epoch's clock
    and returns the ledger rows of the records that are late in that epoch; `late` is None if the bundle has no records.
    If executors aggregated the bundle, `records` is empty.
    """

    records: pa.Table
    rejected: pa.Table | None
    closest: int | None = None
    late: Callable[[Clock], pa.Table] | None = None

    def judged(self, event_time: str, records: pa.Table, reasons: pa.Array) -> DuckBundle:
        """Return the bundle with the given records; a record that has a reason is rejected.

        `event_time` is the name of the log's column of event times.
        """
        if reasons.null_count == len(reasons):
            return replace(self, records=records)
        # Select only the columns that the ledger stores for a rejected record: its event time, its position in its
        # source, and the reason.
        bad = records.select([event_time, *PLACE]).append_column(FAILED, reasons).filter(reasons.is_valid())
        others = [] if self.rejected is None else [self.rejected.select(bad.column_names)]
        return replace(self, records=records.filter(reasons.is_null()), rejected=pa.concat_tables([*others, bad]))


class Stepping:
    """The base of classes that run a definition's steps on a DuckDB connection and compute ledger rows.

    `steps` is a function that runs the definition's steps on a bundle. It is needed only if DuckDB itself cannot run
    the steps (`sql.records.selections.needs_spark`).
    """

    def __init__(self, connection: Connection, definition: Ranged, steps: Steps | None = None) -> None:
        self.connection, self.definition, self._steps = connection, definition, steps or self._own_steps
        self.schema: pa.Schema = iceberg_schema(tables_of(definition).ledger).as_arrow()
        self._own = f"tailrace_{definition.name}_{uuid.uuid4().hex[:8]}"
        self._shared: tuple[SharedWork, int] | None = None
        self._names = {"bundle": Relation(f"{self._own}_bundle")}

    def share(self, shared: SharedWork) -> None:
        """Run the definition's steps only once on a bundle for all definitions of a stream with equal steps."""
        if self.definition.each:
            self._shared = shared, shared.kind("steps", self.definition.each, dict(self.definition.log.columns))

    def _prepared(self, bundle: pa.Table) -> DuckBundle:
        """Run the definition's steps on a bundle, and separate the rejected records."""
        if self._shared is None:
            return self._separated(bundle)
        shared, kind = self._shared
        return shared.once(bundle, kind, partial(self._separated, bundle), lambda made: int(made.records.nbytes))

    def _separated(self, bundle: pa.Table) -> DuckBundle:
        table = self._steps(bundle)
        if not may_fail(self.definition):
            return DuckBundle(table, None)
        if table[FAILED].null_count == table.num_rows:
            return DuckBundle(table.drop_columns([FAILED]), None)
        good, bad = (
            self._selected(table, f"* EXCLUDE ({FAILED})" if which == "NULL" else "*", f"{FAILED} IS {which}")
            for which in ("NULL", "NOT NULL")
        )
        return DuckBundle(good, bad)

    @cached_property
    def _plan(self) -> list[tuple[Any, Mapping[str, str], Traced | None]]:
        """The steps, each with the columns before it, and with its function as SQL if the function is traced."""
        found, types = list[tuple[Any, Mapping[str, str], Traced | None]](), self.definition.log.columns
        for one in self.definition.each:
            found.append((one, dict(types), traced(one, types) if isinstance(one, Each) else None))
            types = one.columns(types)
        return found

    def _own_steps(self, table: pa.Table) -> pa.Table:
        for step in self._plan:
            table = self._taken(table, *step)
        return table

    def _taken(self, table: pa.Table, step: Any, types: Mapping[str, str], found: Traced | None) -> pa.Table:
        columns, source, failing = table.column_names, self._names["bundle"], FAILED in table.column_names
        if found is not None:
            sure = self._queried(table, in_duckdb(sure_records(found, source, columns, step.gives, failing=failing)))
            unsure = self._queried(table, in_duckdb(unsure_records(found, source, columns, failing=failing)))
            return pa.concat_tables([sure, self._called(unsure, step, types).cast(sure.schema)])
        if isinstance(step, Each):
            return self._called(table, step, types)
        text = step_query(step, source, types, columns, failing=failing)
        assert text is not None, f"{step!r} is a step for Spark"
        return self._queried(table, in_duckdb(text))

    @staticmethod
    def _called(table: pa.Table, step: Each, types: Mapping[str, str]) -> pa.Table:
        """Call a step's Python function for each record of a table."""
        fields = [field for field in table.schema if field.name != FAILED]
        schema = pa.schema([*fields, *arrow_schema(step.gives), pa.field(FAILED, pa.string())])
        return pa.Table.from_batches(step_calls(step, dict(types), schema)(table.to_batches()), schema)

    def _selected(self, table: pa.Table, items: str, where: str) -> pa.Table:
        return self._queried(table, f"SELECT {items} FROM {self._names['bundle']} WHERE {where}")

    def _queried(self, table: pa.Table, text: str) -> pa.Table:
        with register(self.connection, table, self._names["bundle"]):
            return self.connection.execute(text).to_arrow_table()

    def _typed(self, rows: pa.Table) -> pa.Table:
        """Select the columns of the ledger table, and cast them to the table's types."""
        return rows.select(self.schema.names).cast(self.schema)
