"""Run a computation on DuckDB.

The state of the computation's keys is a table of the database, and the step runs in Python in this process. An epoch's
step processes only the keys that have a record or a due timer. Other keys are only scanned. The ledger stores the state
of each key in rows that are called partials, and the table of keys is a cache of these partials. After a failure in the
middle of an epoch, the table is restored from the ledger.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.choose import EngineChoice
from tailrace.engines.claims import CLAIM_PLACE, Claiming
from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import in_one_transaction, single_value
from tailrace.engines.duckdb.database.dialect import in_duckdb_once, literal_row, name_of, table_columns
from tailrace.engines.duckdb.database.scans import scan_table
from tailrace.engines.duckdb.known_claims import KnownClaims
from tailrace.engines.duckdb.productions import DuckProducer
from tailrace.engines.duckdb.session import ROWS_A_CALL, DuckSession
from tailrace.engines.protocol import EpochState, SteppedRows
from tailrace.engines.python.keys import KeyStep
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.computation_tables import computation_contract
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, PARTIAL, PRODUCTION
from tailrace.lake.schema.filters import among
from tailrace.lake.schema.iceberg_types import arrow_schema, iceberg_schema
from tailrace.model.base.clock import Clock
from tailrace.model.definition.computation import Computation
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.epoch.key_state import HOLDS, IS_DUE, WALL, key_row_types, loop_types, restored_keys, restored_loop
from tailrace.sql.terms import Query, Relation, quoted


@dataclass(frozen=True, kw_only=True)
class DuckKeyState(EpochState):
    """The state of a computation's keys after an epoch.

    `loop` contains the ledger rows of the records that the computation has sent back to its own input in this epoch.
    """

    loop: pa.Table

    @property
    def in_flight(self) -> int:
        """The number of records in flight: the computation has fed them back to itself, but not yet processed them."""
        return int(self.loop.num_rows)


class DuckKeys(DuckProducer):
    """The implementation of `Side` that runs computations on DuckDB. Bundles are Arrow tables.

    This implementation is for amounts of data that fit into this process.
    """

    holds = True

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, lake: Lake, computation: Computation, choice: EngineChoice
    ) -> None:
        super().__init__(connection, lake, computation, choice)
        self.computation, self.weak = computation, computation.productions == "weak"
        self._known: KnownClaims | None = None
        self.schema: pa.Schema = iceberg_schema(computation_contract(computation)).as_arrow()
        types = key_row_types(computation)
        self._state_schema, self._loop = (arrow_schema(some) for some in (types, loop_types(computation)))
        self._table = Relation(f"tailrace_{computation.name}_{uuid.uuid4().hex[:8]}")
        self._awake, self._bundle, self._back, self._clock = (
            Relation(f"{self._table}_{name}") for name in ("awake", "bundle", "back", "clock")
        )
        self._made = f"CREATE OR REPLACE TABLE {self._table} ({table_columns(types)})"

    def nothing(self, generation: int = 1) -> DuckKeyState:
        self.connection.execute(self._made)
        return DuckKeyState(None, loop=self._loop.empty_table())

    def restored(self, snapshot: int | None, clock: Clock, generation: int = 1) -> DuckKeyState:
        kinds = [PARTIAL, FEEDBACK] if self.computation.loops else [PARTIAL]
        with scan_table(self.connection, self.lake, self.ledger, among("kind", kinds), snapshot) as rows:
            return self.restore(rows, clock)

    def restore(self, ledger: Relation, clock: Clock) -> DuckKeyState:
        """Restore the keys' state as it was after the epoch of `clock`. `ledger` is a relation of ledger rows."""
        self.connection.execute(self._made)
        text = in_duckdb_once(restored_keys(self.computation, ledger, clock.epoch))
        self.connection.execute(f"INSERT INTO {self._table} BY NAME {text}")
        loop = self._loop.empty_table()
        if self.computation.loops:
            text = in_duckdb_once(restored_loop(self.computation, ledger, clock.epoch))
            loop = self.connection.execute(text).to_arrow_table().cast(self._loop)
        return DuckKeyState(clock, count=self._count(), loop=loop)

    def consume(self, bundle: pa.Table, state: DuckKeyState) -> pa.Table:
        return bundle

    def step(self, state: DuckKeyState, consumed: pa.Table, clock: Clock) -> SteppedRows[pa.Table, DuckKeyState]:
        clock.after(state.clock)
        step = KeyStep(
            self.computation, clock, state.clock, self._state_schema, self.schema, self.lake.settings.poison == "stop"
        )
        with in_one_transaction(self.connection):
            with self._there(consumed, state.loop, clock):
                awake = self.connection.execute(self._touched).to_arrow_table()
                touched = awake.num_rows
                with register(self.connection, awake, self._awake):
                    made = [step(*some) for some in self._parts(awake, consumed, state.loop)]
            if touched and touched == state.count:
                self.connection.execute(self._made)
            elif touched:
                with register(self.connection, awake.select(["_row"])) as gone:
                    self.connection.execute(f"DELETE FROM {self._table} WHERE rowid IN (SELECT _row FROM {gone})")
            for one in made:
                with register(self.connection, one.states) as states:
                    self.connection.execute(f"INSERT INTO {self._table} BY NAME SELECT * FROM {states}")
        rows = pa.concat_tables([one.ledger for one in made])
        in_flight = rows.filter(pc.equal(rows["kind"], FEEDBACK)).select(self._loop.names).cast(self._loop)
        return SteppedRows(rows, DuckKeyState(clock, count=self._count(), loop=in_flight))

    def settled(
        self, stepped: SteppedRows[pa.Table, DuckKeyState], claiming: Claiming, epoch: int
    ) -> SteppedRows[pa.Table, DuckKeyState]:
        with closing(DuckSession(self.lake, self.choice, self.connection)) as session:
            rows = session.lent(stepped.rows)
            others = claiming.left_out(session, rows, epoch, self._claims(claiming))
            if others is None:
                return stepped
            places = session.connection.execute(f"SELECT {', '.join(CLAIM_PLACE)} FROM {others}").fetchall()
        return replace(stepped, rows=_left_out(stepped.rows, set(places)))

    def onward(self, state: DuckKeyState) -> int:
        assert state.clock is not None
        flying = pc.min(state.loop[PANE_TIME]).cast(pa.int64()).as_py() if state.in_flight else None
        held = (self._least(HOLDS), flying)
        return min([self.computation.reached(state.clock.watermark), *(one for one in held if one is not None)])

    def due(
        self, state: DuckKeyState, periods: Iterable[tuple[int, int]] = (), delays: Iterable[int] = ()
    ) -> int | None:
        return self._least(WALL)

    def close(self) -> None:
        """Drop the table of keys and the cache of claims."""
        if self._known is not None:
            self._known.close()
        self.connection.execute(f"DROP TABLE IF EXISTS {self._table}")

    def _claims(self, claiming: Claiming) -> KnownClaims:
        """Return the cache of the registry's claims. The first call creates the cache."""
        if self._known is None:
            self._known = KnownClaims(self.connection, claiming.registry.lake, claiming.registry.table)
        return self._known

    @cached_property
    def _touched(self) -> str:
        """The query of the keys that have a due timer, a record in the bundle, or a record that was fed back."""
        keys = [quoted(name) for name in self.computation.key]
        same = " AND ".join(f"b.{name} <=> s.{name}" for name in keys) or "true"
        brought = [self._bundle, *([self._back] if self.computation.loops else [])]
        met = " OR ".join(f"EXISTS (SELECT 1 FROM {one} b WHERE {same})" for one in brought)
        found = f"SELECT s.*, s.rowid AS _row FROM {self._table} s CROSS JOIN {self._clock} c"
        return in_duckdb_once(Query(f"{found} WHERE {IS_DUE} OR {met}"))

    @contextmanager
    def _there(self, records: pa.Table, in_flight: pa.Table, clock: Clock) -> Iterator[None]:
        """Register three relations: an epoch's records, its clock, and the records that were fed back.

        The relations exist for the duration of the block.
        """
        now = literal_row({"_watermark": clock.watermark, "_now": clock.processing_time})
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {self._clock} AS {now}")
        with register(self.connection, records, self._bundle), register(self.connection, in_flight, self._back):
            yield

    def _parts(
        self, touched: pa.Table, records: pa.Table, in_flight: pa.Table
    ) -> Iterator[tuple[pa.Table, pa.Table, pa.Table]]:
        """Divide the epoch's keys into parts.

        For each part, yield three tables: the states of the keys, the records of the keys, and the records that the
        computation has fed back to the keys. A part is small enough for its rows to be converted to Python objects.
        """
        count = touched.num_rows + records.num_rows + in_flight.num_rows
        parts = 1 + count // ROWS_A_CALL if self.computation.key else 1
        if parts == 1:
            yield touched, records, in_flight
            return
        bucket = f"hash({', '.join(map(name_of, self.computation.key))}) % {parts}"
        for part in range(parts):
            held, some, back = (
                self._some(one, f"{bucket} = {part}") for one in (self._awake, self._bundle, self._back)
            )
            yield held, some, back

    def _some(self, relation: Relation, where: str) -> pa.Table:
        return self.connection.execute(f"SELECT * FROM {relation} WHERE {where}").to_arrow_table()

    def _least(self, column: str) -> int | None:
        found = single_value(self.connection, f"SELECT MIN({column}) FROM {self._table}")
        return None if found is None else int(found)

    def _count(self) -> int:
        return int(single_value(self.connection, f"SELECT COUNT(*) FROM {self._table}"))


def _left_out(rows: pa.Table, places: Collection[tuple[str, int]]) -> pa.Table:
    """In an epoch's ledger rows, change the kind of the output rows at the positions `places` to `claimed`.

    There are only a few such positions.
    """
    produced = pc.indices_nonzero(pc.equal(rows["kind"], PRODUCTION))
    made = zip(*(rows[name].take(produced).to_pylist() for name in CLAIM_PLACE), strict=True)
    gone = [at for at, place in zip(produced.to_pylist(), made, strict=True) if place in places]
    others = pc.is_in(pa.array(range(rows.num_rows), pa.int64()), pa.array(gone, pa.int64()))
    column = rows.schema.get_field_index("kind")
    kinds = pc.if_else(others, pa.scalar(CLAIMED, rows.schema.field(column).type), rows["kind"])
    return rows.set_column(column, rows.schema.field(column), kinds)
