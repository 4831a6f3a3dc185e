"""A map's step on DuckDB: a bundle comes as an Arrow table, and one query makes the ledger's rows of it."""

from __future__ import annotations

import pyarrow as pa

from tailrace.engines.choose import EngineChoice
from tailrace.engines.duckdb.database.dialect import in_duckdb_once
from tailrace.engines.duckdb.executions.preparation import Connection, Stepping, Steps
from tailrace.engines.duckdb.productions import DuckRows
from tailrace.engines.row_side import MapSide
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.sql.epoch import map_rows
from tailrace.sql.records.selections import accepted, may_fail, rejected, stepped
from tailrace.sql.terms import Relation, bracketed


class MapExecution(Stepping):
    """A map on a connection."""

    def __init__(self, connection: Connection, definition: Map, steps: Steps | None = None) -> None:
        super().__init__(connection, definition, steps)
        self.map = definition
        columns = [*definition.log.columns, *map_rows.PLACE.values()]
        own = None if steps is not None else stepped(definition, self._names["bundle"], columns)
        self._stepped, self._may_fail = own, may_fail(definition)

    def rows(self, bundle: pa.Table, clock: Clock, generation: int) -> pa.Table:
        """Make the rows that an epoch writes to the ledger, those of rejected records included."""
        if (own := self._stepped) is not None:
            # Rejected records are looked for apart, by the columns that decide: no other is copied for that.
            good, bad = (accepted(own), bracketed(rejected(own))) if self._may_fail else (own, None)
            return self._made(bundle, good, None if bad is None else bundle, bad, clock, generation)
        taken, name = self._prepared(bundle), self._names["bundle"]
        return self._made(taken.records, name, taken.rejected, name, clock, generation)

    def _made(
        self, records: pa.Table, good: Relation, others: pa.Table | None, bad: Relation | None, clock: Clock,
        generation: int,
    ) -> pa.Table:  # fmt: skip
        """Make the rows of relation `good` over a table of records, and of rejected ones in `bad` over another."""
        made = self._queried(records, in_duckdb_once(map_rows.of_epoch(self.map, good, clock, generation)))
        if others is None or bad is None:
            return self._typed(made)
        gone = self._queried(others, in_duckdb_once(map_rows.of_rejected(self.map, bad, clock)))
        return pa.concat_tables([self._typed(made), self._typed(gone)])


class DuckMap(DuckRows, MapSide[pa.Table]):
    """A map of a stream on DuckDB, for small work."""

    def __init__(
        self, connection: Connection, lake: Lake, definition: Map, choice: EngineChoice, steps: Steps | None = None
    ) -> None:
        super().__init__(lake, definition, choice)
        self.connection, self.execution = connection, MapExecution(connection, definition, steps)

    def made(self, bundle: pa.Table, clock: Clock, generation: int) -> pa.Table:
        return self.execution.rows(bundle, clock, generation)
