"""A definition's step on DuckDB over records that are elsewhere: parts of a bundle are added up there, and come here.

What is large of an epoch are its records. Their partials are a row for each key and window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.database.dialect import in_duckdb, in_duckdb_once
from tailrace.engines.duckdb.executions.execution import Windows
from tailrace.engines.duckdb.executions.preparation import Connection, Taken
from tailrace.engines.duckdb.executions.sql_execution import SqlExecution, clock_before
from tailrace.lake.schema.column_groups import SPAN
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.clock_row import clock_row
from tailrace.sql.epoch.partials import closed, late, may_have_passed, partials, put_together
from tailrace.sql.terms import Query, Relation


class PartsExecution(SqlExecution):
    """The step as SQL over the partials of parts of a bundle; bundles that are here are taken as well.

    `records` is what its texts call the records of a part, `windowed_by` are the columns of partials that say of which
    window they are.
    """

    def __init__(self, connection: Connection, pipeline: Pipeline) -> None:
        super().__init__(connection, pipeline)
        self.records = Relation(f"{self._own}_records")
        self.windowed_by = (*pipeline.key, *SPAN)
        self._together = in_duckdb(put_together(pipeline, _SHARE, counted=True))

    @property
    def adds_up(self) -> bool:
        """Whether partials say all that the rules ask of records that are as the log has them.

        They do not where steps make other records of them, or where a trigger that is done refuses them one by one.
        """
        return not self.pipeline.each and self.pipeline.finishing != "close"

    def adding(self, state: Windows) -> Query:
        """Write the query of the partials of a part of the bundle after a state."""
        return partials(self.pipeline, self.records, self._row(state, clock_before(state)), by_slices=True)

    def adding_gives(self, records: pa.Schema) -> pa.Schema:
        """Find the schema of partials of records that have a schema."""
        self.connection.register(self.records, records.empty_table())
        try:
            return self.connection.execute(in_duckdb(self.adding(Windows(None, 0)))).to_arrow_table().schema
        finally:
            self.connection.unregister(self.records)

    def late_rows(self, state: Windows, clock: Clock) -> Query:
        """Write the query of the ledger's rows of the records of a part that came too late for an epoch."""
        row = self._row(state, clock)
        return self.rows.of_late(late(self.pipeline, may_have_passed(self.pipeline, self.records, row), row))

    def _row(self, state: Windows, clock: Clock) -> Relation:
        return Relation(f"({clock_row(self.pipeline, state.clock, clock, state.generation)})")

    def put_together(self, shares: Iterable[pa.Table]) -> int:
        """Put the partials of parts together, to be taken through the rules; return how many there are.

        They come in shares, the first of which may be empty; no window is in two. Grouping takes several times the
        memory of what it gives, so it is done share by share. Windows that merge do so with those that are open.
        """
        name = self._names["partials"]
        text = Query(f"SELECT * FROM {_SHARE}") if self._by_key else self._together
        for place, share in enumerate(shares):
            made = f"INSERT INTO {name}" if place else f"CREATE OR REPLACE TEMP TABLE {name} AS"
            with registered(self.connection, share) as rows:
                self.connection.execute(f"{made} {text.replace(_SHARE, rows)}")
        return self._count(name)

    def late(self, state: Windows) -> int | None:
        """Count how many times records of the partials came too late for a window; None where these do not say."""
        if self._by_key:
            return None
        expired = closed(self.pipeline, "window_end", f"{clock_before(state).watermark}L")
        text = Query(f"SELECT COALESCE(SUM(arrived), 0) FROM {self._names['partials']} WHERE {expired}")
        return int(self._value(in_duckdb_once(text)))

    def taken(self, late: Callable[[Clock], pa.Table]) -> Taken:
        """Take the partials that were put together; `late` finds records that came too late, asked where some may."""
        return Taken(pa.table({}), None, self._closest(), late)


_SHARE = Relation("tailrace_share")
