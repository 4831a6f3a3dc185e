"""Run maps and joins on DuckDB.

This module also defines the base class of all DuckDB folds of definitions whose output other definitions read.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.choose import EngineChoice
from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import in_one_transaction, single_value
from tailrace.engines.duckdb.database.dialect import in_duckdb_once, table_columns
from tailrace.engines.duckdb.database.scans import scan_table
from tailrace.engines.duckdb.executions.preparation import Connection, Stepping, Steps
from tailrace.engines.duckdb.session import DuckSession
from tailrace.engines.protocol import EpochCounts, EpochState, SteppedRows
from tailrace.engines.row_side import JoinSide, MapSide
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.lake.schema.filters import above, at_most, equal, every
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.join_tables import join_contract
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Windowless
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDES
from tailrace.model.definition.map import Map
from tailrace.sql.epoch import join_rows, map_rows
from tailrace.sql.records.selections import accepted_records, may_fail, query_steps, rejected_records
from tailrace.sql.records.stage_records import productions
from tailrace.sql.terms import Query, Relation, bracketed


class DuckProducer:
    """The base class of the DuckDB folds of definitions whose output other definitions read.

    The ledger stores the output rows (productions) of such a definition, unless the definition declares its productions
    as weak. If a reader needs a weak production a second time, the production is computed again.
    """

    definition: Windowless | Computation
    direct = True
    reads_files = False
    weak = False

    def __init__(
        self, connection: Connection, lake: Lake, definition: Windowless | Computation, choice: EngineChoice
    ) -> None:
        self.connection, self.lake, self.definition, self.choice = connection, lake, definition, choice
        self.ledger = ledger_name(definition.name)

    def write(self, stepped: SteppedRows[pa.Table, Any], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        rows = stepped.rows
        kept = rows.filter(pc.not_equal(rows["kind"], PRODUCTION)) if self.weak else rows
        branch.hold(FileChange(tuple(self.lake.write_files(self.ledger, kept))), properties)
        kinds = pc.value_counts(rows["kind"]).to_pylist()
        return EpochCounts.of_kinds({one["values"]: one["counts"] for one in kinds})

    def passed(self, stepped: SteppedRows[pa.Table, Any]) -> pa.Table:
        with register(self.connection, stepped.rows) as rows:
            return self._produced(rows)

    def passed_again(self, epoch: int, after: int | None = None) -> pa.Table:
        after = epoch - 1 if after is None else after
        where = every(equal("kind", PRODUCTION), above("epoch", after), at_most("epoch", epoch))
        with scan_table(self.connection, self.lake, self.ledger, where) as rows:
            return self._produced(Relation(f"(SELECT * FROM {rows} WHERE epoch > {after}L AND epoch <= {epoch}L)"))

    def _produced(self, rows: Relation) -> pa.Table:
        return self.connection.execute(in_duckdb_once(productions(self.definition, rows))).to_arrow_table()


class MapExecution(Stepping):
    """The step of a map on a DuckDB connection: one query computes the ledger rows from a bundle."""

    def __init__(self, connection: Connection, definition: Map, steps: Steps | None = None) -> None:
        super().__init__(connection, definition, steps)
        self.map = definition
        columns = [*definition.log.columns, *map_rows.PLACE.values()]
        self._stepped = None if steps is not None else query_steps(definition, self._names["bundle"], columns)

    def rows(self, bundle: pa.Table, clock: Clock, generation: int) -> pa.Table:
        """Compute the rows that an epoch writes to the ledger, including the rows of rejected records."""
        if (own := self._stepped) is None:
            taken, good = self._prepared(bundle), self._names["bundle"]
            records, rejected, bad = taken.records, taken.rejected, good
        elif may_fail(self.map):
            # Only the columns that decide about rejection are read to find the rejected records, so no other columns
            # are copied.
            records = rejected = bundle
            good, bad = accepted_records(own), bracketed(rejected_records(own))
        else:
            records, rejected, good, bad = bundle, None, own, own
        texts = [(records, map_rows.of_epoch(self.map, good, clock, generation))]
        if rejected is not None:
            texts.append((rejected, map_rows.of_rejected(self.map, bad, clock)))
        return pa.concat_tables([self._typed(self._queried(table, in_duckdb_once(text))) for table, text in texts])


class DuckMap(DuckProducer, MapSide[pa.Table]):
    """The implementation of `Side` that runs maps on DuckDB."""

    definition: Map

    def __init__(
        self, connection: Connection, lake: Lake, definition: Map, choice: EngineChoice, steps: Steps | None = None
    ) -> None:
        super().__init__(connection, lake, definition, choice)
        self.execution = MapExecution(connection, definition, steps)

    def made(self, bundle: pa.Table, clock: Clock, generation: int) -> pa.Table:
        return self.execution.rows(bundle, clock, generation)


class DuckJoin(DuckProducer, JoinSide[pa.Table]):
    """The implementation of `Side` that runs joins on DuckDB.

    For each input of the join, a database table contains the records that the join keeps. The two tables are a cache of
    the logs, and each epoch updates them. After a failure in the middle of an epoch, the tables are restored from the
    logs.
    """

    definition: Join

    def __init__(self, connection: Connection, lake: Lake, join: Join, choice: EngineChoice) -> None:
        super().__init__(connection, lake, join, choice)
        whole: pa.Schema = iceberg_schema(join_contract(join)).as_arrow()
        self.schema = pa.schema([whole.field(one) for one in join_rows.row_types(join)])
        self._name = f"tailrace_{join.name}_{uuid.uuid4().hex[:8]}"
        self._held = {side: Relation(f"{self._name}_{side}") for side in SIDES}

    def nothing(self, generation: int) -> EpochState:
        for side, table in self._held.items():
            columns = table_columns(join_rows.entry_types(self.definition, side))
            self.connection.execute(f"CREATE OR REPLACE TABLE {table} ({columns})")
        return EpochState(None, generation)

    def restored(self, snapshot: int | None, clock: Clock, generation: int) -> EpochState:
        self.nothing(generation)
        with closing(DuckSession(self.lake, self.choice, self.connection)) as session:
            for side, text in self.held(session, clock, snapshot).items():
                session.connection.execute(f"INSERT INTO {self._held[side]} BY NAME {in_duckdb_once(text)}")
        return EpochState(clock, generation, self._count())

    def step(self, state: EpochState, consumed: pa.Table, clock: Clock) -> SteppedRows[pa.Table, EpochState]:
        clock.after(state.clock)
        made, execute = list[Relation](), self.connection.execute

        def name(side: str, kind: str, text: Query) -> Relation:
            if kind == "stay" and not execute(f"SELECT 1 FROM {self._name}_{side}_gone LIMIT 1").fetchone():
                return self._held[side]
            made.append(Relation(f"{self._name}_{side}_{kind}"))
            execute(f"CREATE OR REPLACE TEMP TABLE {made[-1]} AS {in_duckdb_once(text)}")
            return made[-1]

        with in_one_transaction(self.connection), register(self.connection, consumed) as bundle:
            text, entries = join_rows.epoch_rows(
                self.definition, bundle, self._held, name, clock, state.watermark, state.generation
            )
            rows = execute(in_duckdb_once(text)).to_arrow_table()
            for side, table in self._held.items():
                if entries.stay[side] != table:
                    execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM {entries.stay[side]}")
                execute(f"INSERT INTO {table} BY NAME SELECT * FROM {entries.new[side]}")
                closed = join_rows.closed(self.definition, side, clock.watermark)
                which = in_duckdb_once(Query(f"SELECT rowid FROM {table} WHERE {closed}"))
                execute(f"DELETE FROM {table} WHERE rowid IN ({which})")
            for table in made:
                execute(f"DROP TABLE {table}")
        return SteppedRows(rows.cast(self.schema), EpochState(clock, state.generation, self._count()))

    def close(self) -> None:
        """Drop the tables that contain the kept records of the join's two inputs."""
        for table in self._held.values():
            self.connection.execute(f"DROP TABLE IF EXISTS {table}")

    def _count(self) -> int:
        counts = (f"(SELECT COUNT(*) FROM {table})" for table in self._held.values())
        return int(single_value(self.connection, f"SELECT {' + '.join(counts)}"))
