"""A map's step on DuckDB: a bundle comes as an Arrow table, and one query makes the ledger's rows of it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tailrace.engines.choose import EngineChoice
from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.database.dialect import in_duckdb, in_duckdb_once
from tailrace.engines.duckdb.database.scans import scanned
from tailrace.engines.duckdb.preparation import Connection, Stepping, Steps
from tailrace.engines.map_side import MapSide, SteppedMap
from tailrace.engines.protocol import EpochCounts
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.lake.schema.filters import equal, every
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.sql.records.stage_records import productions
from tailrace.sql.results import map_rows
from tailrace.sql.terms import Relation


class MapExecution(Stepping):
    """A map on a connection."""

    def __init__(self, connection: Connection, definition: Map, steps: Steps | None = None) -> None:
        super().__init__(connection, definition, steps)
        self.map = definition
        self._text = None if steps is not None else map_rows.stepped(definition, self._names["bundle"])

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


class DuckMap(MapSide[pa.Table]):
    """A map of a stream on DuckDB, for small work."""

    direct = True

    def __init__(
        self, connection: Connection, lake: Lake, definition: Map, choice: EngineChoice, steps: Steps | None = None
    ) -> None:
        super().__init__(lake, definition, choice)
        self.connection, self.execution = connection, MapExecution(connection, definition, steps)

    def made(self, bundle: pa.Table, clock: Clock, generation: int) -> pa.Table:
        return self.execution.rows(bundle, clock, generation)

    def write(self, stepped: SteppedMap[pa.Table], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        branch.hold(FileChange(tuple(self.lake.written(self.ledger, stepped.rows))), properties)
        rejected = stepped.rows.num_rows - stepped.rows["reason"].null_count
        return EpochCounts(rejected=rejected, productions=stepped.rows.num_rows - rejected)

    def passed(self, stepped: SteppedMap[pa.Table]) -> pa.Table:
        with registered(self.connection, stepped.rows) as rows:
            return self.connection.execute(in_duckdb(productions(self.map, rows))).to_arrow_table()

    def passed_again(self, epoch: int) -> pa.Table:
        where = every(equal("kind", PRODUCTION), equal("epoch", epoch))
        with scanned(self.connection, self.lake, self.ledger, where) as rows:
            text = productions(self.map, Relation(f"(SELECT * FROM {rows} WHERE epoch = {epoch}L)"))
            return self.connection.execute(in_duckdb_once(text)).to_arrow_table()
