"""A join on DuckDB: the kept records of each side are a table of the database, which an epoch adds to and takes from.

The tables are a cache of what the logs have: after a failure between two steps they are restored from there.
"""

from __future__ import annotations

import uuid
from contextlib import closing

import duckdb
import pyarrow as pa

from tailrace.engines.choose import EngineChoice
from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.database.connection import in_one_transaction
from tailrace.engines.duckdb.database.dialect import column_type, in_duckdb_once, name_of
from tailrace.engines.duckdb.productions import DuckRows
from tailrace.engines.duckdb.session import DuckSession
from tailrace.engines.join_side import JoinSide
from tailrace.engines.row_side import RowState, SteppedRows
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.join_tables import join_contract
from tailrace.model.base.clock import Clock
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDES
from tailrace.sql.epoch import join_rows
from tailrace.sql.terms import Query, Relation


class DuckJoin(DuckRows, JoinSide[pa.Table]):
    """A join of a stream on DuckDB, for small work. Bundles are Arrow tables."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, lake: Lake, join: Join, choice: EngineChoice) -> None:
        super().__init__(lake, join, choice)
        self.connection = connection
        whole: pa.Schema = iceberg_schema(join_contract(join)).as_arrow()
        self.schema = pa.schema([whole.field(one) for one in join_rows.row_types(join)])
        name = f"tailrace_{join.name}_{uuid.uuid4().hex[:8]}"
        self._held = {side: Relation(f"{name}_{side}") for side in SIDES}
        self._came, self._new, self._gone, self._stay = (
            {side: Relation(f"{name}_{side}_{kind}") for side in SIDES} for kind in ("came", "new", "gone", "stay")
        )

    def nothing(self, generation: int) -> RowState:
        for side, table in self._held.items():
            types = join_rows.entry_types(self.join, side)
            listed = ", ".join(f"{name_of(name)} {column_type(type)}" for name, type in types.items())
            self.connection.execute(f"CREATE OR REPLACE TABLE {table} ({listed})")
        return RowState(None, generation)

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> RowState:
        self.nothing(generation)
        with closing(DuckSession(self.lake, self.choice, self.connection)) as session:
            for side, text in self.held(session, clock, snapshot).items():
                session.connection.execute(f"INSERT INTO {self._held[side]} BY NAME {in_duckdb_once(text)}")
        return RowState(clock, generation, self._count())

    def step(self, state: RowState, consumed: pa.Table, clock: Clock) -> SteppedRows[pa.Table]:
        clock.after(state.clock)
        before, after, texts = state.watermark, clock.watermark, list[Query]()
        with in_one_transaction(self.connection), registered(self.connection, consumed) as bundle:
            for side in SIDES:
                late = join_rows.too_late(self.join, before)
                self._make(self._came[side], join_rows.entries(self.join, bundle, side))
                good, bad = (Relation(f"(SELECT * FROM {self._came[side]} WHERE {which})")
                             for which in (f"NOT ({late})", late))  # fmt: skip
                texts.append(join_rows.of_late(self.join, side, bad, clock, before))
                if self.join.set_aside:
                    texts.append(join_rows.of_set_aside(self.join, side, bundle, clock))
                self._make(self._new[side], join_rows.added(self.join, side, good))
                if self.join.side(side).takes_back:
                    self._make(self._gone[side], join_rows.taken_back(self.join, side, good))
            moved = self._moved()
            found = join_rows.given(self.join, moved, before, after)
            texts.append(join_rows.of_epoch(self.join, found, clock, state.generation))
            rows = self.connection.execute(in_duckdb_once(Query(" UNION ALL ".join(texts)))).to_arrow_table()
            for side, table in self._held.items():
                closed = join_rows.closed(self.join, side, after)
                if moved.stay[side] != table:
                    self.connection.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM {moved.stay[side]}")
                self.connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM {self._new[side]}")
                which = in_duckdb_once(Query(f"SELECT rowid FROM {table} WHERE {closed}"))
                self.connection.execute(f"DELETE FROM {table} WHERE rowid IN ({which})")
                for made in (self._came[side], self._new[side], self._gone[side], self._stay[side]):
                    self.connection.execute(f"DROP TABLE IF EXISTS {made}")
        return SteppedRows(rows.cast(self.schema), RowState(clock, state.generation, self._count()))

    def close(self) -> None:
        """Drop the tables of kept records."""
        for table in self._held.values():
            self.connection.execute(f"DROP TABLE IF EXISTS {table}")

    def _moved(self) -> join_rows.Moved:
        """Return what the epoch does with the entries; where it takes none of a side back, all that are held stay."""
        stay = dict(self._held)
        for side, gone in self._gone.items():
            takes_back = self.join.side(side).takes_back
            if takes_back and self.connection.execute(f"SELECT 1 FROM {gone} LIMIT 1").fetchone():
                self._make(self._stay[side], join_rows.stays(self.join, side, self._held[side], gone))
                stay[side] = self._stay[side]
        return join_rows.Moved(self._held, self._gone, stay, self._new)

    def _make(self, table: Relation, text: Query) -> None:
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {in_duckdb_once(text)}")

    def _count(self) -> int:
        counts = (f"(SELECT COUNT(*) FROM {table})" for table in self._held.values())
        found = self.connection.execute(f"SELECT {' + '.join(counts)}").fetchone()
        return int(found[0]) if found else 0
