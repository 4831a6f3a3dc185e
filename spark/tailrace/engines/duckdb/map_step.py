"""A map's step on DuckDB: a bundle comes as an Arrow table, and one query makes the ledger's rows of it."""

from __future__ import annotations

import pyarrow as pa

from tailrace.engines.choose import EngineChoice
from tailrace.engines.duckdb.database.dialect import in_duckdb_once
from tailrace.engines.duckdb.executions.preparation import Connection, Stepping, Steps
from tailrace.engines.duckdb.productions import DuckRows
from tailrace.engines.map_side import MapSide
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.sql.records.selections import stepped
from tailrace.sql.results import map_rows


class MapExecution(Stepping):
    """A map on a connection."""

    def __init__(self, connection: Connection, definition: Map, steps: Steps | None = None) -> None:
        super().__init__(connection, definition, steps)
        self.map = definition
        columns = [*definition.log.columns, *map_rows.PLACE.values()]
        self._text = None if steps is not None else stepped(definition, self._names["bundle"], columns)

    def rows(self, bundle: pa.Table, clock: Clock, generation: int) -> pa.Table:
        """Make the rows that an epoch writes to the ledger, those of rejected records included."""
        source, name = bundle, self._names["bundle"]
        if self._text is None:
            taken = self._prepared(bundle)
            source = taken.records
        text = map_rows.of_epoch(self.map, self._text or name, clock, generation)
        made = self._typed(self._queried(source, in_duckdb_once(text)))
        if self._text is not None or taken.rejected is None or not taken.rejected.num_rows:
            return made
        text = map_rows.of_rejected(self.map, name, clock)
        return pa.concat_tables([made, self._typed(self._queried(taken.rejected, in_duckdb_once(text)))])


class DuckMap(DuckRows, MapSide[pa.Table]):
    """A map of a stream on DuckDB, for small work."""

    def __init__(
        self, connection: Connection, lake: Lake, definition: Map, choice: EngineChoice, steps: Steps | None = None
    ) -> None:
        super().__init__(lake, definition, choice)
        self.connection, self.execution = connection, MapExecution(connection, definition, steps)

    def made(self, bundle: pa.Table, clock: Clock, generation: int) -> pa.Table:
        return self.execution.rows(bundle, clock, generation)
