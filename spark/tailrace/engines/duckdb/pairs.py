"""A join on DuckDB: the kept records of each side are a table of the database, which an epoch adds to and takes from.

The tables are a cache of what the logs have: after a failure between two steps they are restored from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.choose import EngineChoice
from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.database.connection import in_one_transaction
from tailrace.engines.duckdb.database.dialect import column_type, in_duckdb_once, name_of
from tailrace.engines.duckdb.database.scans import scanned
from tailrace.engines.duckdb.session import DuckSession
from tailrace.engines.join_side import JoinKept, JoinSide, SteppedJoin, Streamed
from tailrace.engines.protocol import EpochCounts
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import LATE, PRODUCTION, join_contract
from tailrace.lake.schema.filters import equal, every
from tailrace.lake.schema.shapes import iceberg_schema
from tailrace.model.base.clock import Clock
from tailrace.model.definition.join import SIDES, Join
from tailrace.sql.epoch import join_rows
from tailrace.sql.records.stage_records import productions
from tailrace.sql.terms import Query, Relation


class DuckJoin(JoinSide[pa.Table]):
    """A join of a stream on DuckDB, for small work. Bundles are Arrow tables."""

    direct = True

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, lake: Lake, join: Join, choice: EngineChoice, streamed: Streamed
    ) -> None:
        super().__init__(lake, join, choice, streamed)
        self.connection = connection
        self.schema: pa.Schema = iceberg_schema(join_contract(join)).as_arrow()
        name = f"tailrace_{join.name}_{uuid.uuid4().hex[:8]}"
        self._held = {side: Relation(f"{name}_{side}") for side in SIDES}
        self._came = {side: Relation(f"{name}_{side}_came") for side in SIDES}
        self._new = {side: Relation(f"{name}_{side}_new") for side in SIDES}

    def nothing(self, generation: int) -> JoinKept:
        for side, table in self._held.items():
            types = join_rows.entry_types(self.join, side)
            listed = ", ".join(f"{name_of(name)} {column_type(type)}" for name, type in types.items())
            self.connection.execute(f"CREATE OR REPLACE TABLE {table} ({listed})")
        return JoinKept(None, generation)

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> JoinKept:
        self.nothing(generation)
        with closing(DuckSession(self.lake, self.choice, self.connection)) as session:
            for side, text in self.held(session, clock, snapshot).items():
                session.connection.execute(f"INSERT INTO {self._held[side]} BY NAME {in_duckdb_once(text)}")
        return JoinKept(clock, generation, self._count())

    def step(self, state: JoinKept, consumed: pa.Table, clock: Clock) -> SteppedJoin[pa.Table]:
        clock.after(state.clock)
        before, after, texts = state.watermark, clock.watermark, list[Query]()
        with in_one_transaction(self.connection), registered(self.connection, consumed) as bundle:
            for side in SIDES:
                late = join_rows.too_late(self.join, before)
                self._make(self._came[side], join_rows.entries(self.join, bundle, side))
                self._make(self._new[side], Query(f"SELECT * FROM {self._came[side]} WHERE NOT ({late})"))
                came = Relation(f"(SELECT * FROM {self._came[side]} WHERE {late})")
                texts.append(join_rows.of_late(self.join, side, came, clock, before))
            found = join_rows.given(self.join, self._new, self._held, before, after)
            texts.append(join_rows.of_epoch(self.join, found, clock, state.generation))
            rows = self.connection.execute(in_duckdb_once(Query(" UNION ALL ".join(texts)))).to_arrow_table()
            for side, table in self._held.items():
                gone = join_rows.closed(self.join, side, after)
                self.connection.execute(f"INSERT INTO {table} SELECT * FROM {self._new[side]}")
                which = in_duckdb_once(Query(f"SELECT rowid FROM {table} WHERE {gone}"))
                self.connection.execute(f"DELETE FROM {table} WHERE rowid IN ({which})")
                for made in (self._came[side], self._new[side]):
                    self.connection.execute(f"DROP TABLE {made}")
        return SteppedJoin(rows.cast(self.schema), JoinKept(clock, state.generation, self._count()))

    def write(self, stepped: SteppedJoin[pa.Table], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        branch.hold(FileChange(tuple(self.lake.written(self.ledger, stepped.rows))), properties)
        kinds = {one["values"]: one["counts"] for one in pc.value_counts(stepped.rows["kind"]).to_pylist()}
        return EpochCounts(productions=kinds.get(PRODUCTION, 0), late=kinds.get(LATE, 0))

    def passed(self, stepped: SteppedJoin[pa.Table]) -> pa.Table:
        with registered(self.connection, stepped.rows) as rows:
            return self.connection.execute(in_duckdb_once(productions(self.join, rows))).to_arrow_table()

    def passed_again(self, epoch: int) -> pa.Table:
        where = every(equal("kind", PRODUCTION), equal("epoch", epoch))
        with scanned(self.connection, self.lake, self.ledger, where) as rows:
            text = productions(self.join, Relation(f"(SELECT * FROM {rows} WHERE epoch = {epoch}L)"))
            return self.connection.execute(in_duckdb_once(text)).to_arrow_table()

    def close(self) -> None:
        """Drop the tables of kept records."""
        for table in self._held.values():
            self.connection.execute(f"DROP TABLE IF EXISTS {table}")

    def _make(self, table: Relation, text: Query) -> None:
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {in_duckdb_once(text)}")

    def _count(self) -> int:
        counts = (f"(SELECT COUNT(*) FROM {table})" for table in self._held.values())
        found = self.connection.execute(f"SELECT {' + '.join(counts)}").fetchone()
        return int(found[0]) if found else 0
