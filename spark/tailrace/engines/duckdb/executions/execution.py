"""The base class for advancing a pipeline's open windows on DuckDB.

Bundles are Arrow tables, and the open windows are a table of the database. In each epoch, the rules for windows are
applied only to windows that the epoch's records or clock affect; other windows are only scanned. The ledger stores the
state of each open window in rows that are called partials, and the table of open windows is a cache of these partials.
After a failure in the middle of an epoch, the table is restored from the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import single_value
from tailrace.engines.duckdb.database.dialect import in_duckdb, in_duckdb_once, literal_row, name_of, table_columns
from tailrace.engines.duckdb.executions.preparation import Connection, DuckBundle, Stepping, Steps
from tailrace.engines.protocol import EpochState
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.clock_row import clock_values
from tailrace.sql.epoch.epoch_texts import VIEWS, EpochTexts
from tailrace.sql.epoch.holds import due_items, holds_back, next_due, oldest_held
from tailrace.sql.epoch.ledger_rows import Rows, state_types
from tailrace.sql.records.stage_records import changes
from tailrace.sql.terms import Query, Relation, quoted


@dataclass(frozen=True)
class DuckResult:
    """The result of an epoch: the rows to write to the ledger, and the state after the epoch.

    If an epoch has many ledger rows, `computed` contains only some of the rows, and `queries` return the others. A
    writer then computes only one file's rows at a time. `read` runs one of these queries and returns ledger rows;
    `read` can be used until the next epoch is consumed.
    """

    computed: pa.Table
    state: EpochState
    queries: tuple[Query, ...] = ()
    read: Callable[[Query], pa.Table] | None = None

    @cached_property
    def rows(self) -> pa.Table:
        """All ledger rows of the epoch, as one table."""
        if self.read is None:
            return self.computed
        return pa.concat_tables([self.computed, *map(self.read, self.queries)])


class DuckExecution(Stepping):
    """The base class of executions on DuckDB. An execution runs the steps of one pipeline on a DuckDB connection.

    A subclass advances the pipeline's open windows by an epoch. `steps` is a function that runs the definition's steps
    on a bundle. It is needed only if DuckDB itself cannot run the steps (`sql.records.selections.needs_spark`).
    """

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        self.pipeline = pipeline
        self.rows = Rows(pipeline)
        self._names |= {name: Relation(f"{self._own}_{name}") for name in _NAMES}
        self._types = state_types(pipeline)
        self._made = f"CREATE OR REPLACE TABLE {self._names['state']} ({table_columns(self._types)})"
        self._texts = EpochTexts(pipeline, self._names, in_process=True)
        self._touched = in_duckdb(self._texts.touched(by_key=self._by_key))
        self._changes = in_duckdb(changes(pipeline, self._names["passed"]))

    def nothing(self, generation: int = 0) -> EpochState:
        """Empty the table of open windows, and return the state before the first epoch."""
        self.connection.execute(self._made)
        return EpochState(None, generation)

    def restore(self, ledger: Relation, clock: Clock, generation: int) -> EpochState:
        """Restore the state as it was after the epoch of `clock`.

        `ledger` is a relation of a ledger's partials, the rows that store the states of open windows.
        """
        names = self._names
        self.connection.execute(self._made)
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {names['ledger']} AS SELECT * FROM {ledger}")
        own = ", ".join(map(quoted, self._types))
        query = Query(f"SELECT {own} FROM ({self.rows.within_reach(names['ledger'], clock.watermark)})")
        self.connection.execute(f"INSERT INTO {names['state']} BY NAME {in_duckdb_once(query)}")
        self.connection.execute(f"DROP VIEW {names['ledger']}")
        return EpochState(clock, generation, self._count(names["state"]))

    @property
    def reads_files(self) -> bool:
        """True if bundles may be `RecordFiles`."""
        return False

    def consume(self, bundle: Any, state: EpochState) -> DuckBundle:
        """Prepare a bundle for the step.

        The bundle must contain the log's columns and each record's position in its source.
        """
        raise NotImplementedError

    def step(self, state: EpochState, bundle: DuckBundle, clock: Clock) -> DuckResult:
        """Advance the open windows by one epoch. Raises `ClockError` if the clock goes back."""
        raise NotImplementedError

    @property
    def holds(self) -> bool:
        """True if open windows can ever hold back a later stage's watermark."""
        return holds_back(self.pipeline)

    def onward(self, state: EpochState) -> int:
        """Return the upper limit of a later stage's watermark after this state's epoch, in microseconds (rule T3)."""
        assert state.clock is not None
        if not self.holds:
            return state.clock.watermark
        oldest = Query(f"SELECT {oldest_held(self.pipeline)} FROM {self._names['state']}")
        held = single_value(self.connection, in_duckdb(oldest))
        return state.clock.watermark if held is None else min(state.clock.watermark, int(held))

    def due(self, state: EpochState, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        """Return the next processing time, in microseconds, at which an open window may fire without a new record.

        Returns None if no open window can fire without a new record. `periods` and `delays` are the periods and delays
        of the pipeline's trigger.
        """
        if state.clock is None:
            return None
        now = state.clock.processing_time
        items = ", ".join(due_items(self.pipeline, now, delays))
        query = Query(f"SELECT {items} FROM {self._names['state']}")
        found = self.connection.execute(in_duckdb_once(query))
        return next_due(now, periods, *(found.fetchone() or (0,)))

    def changed(self, rows: pa.Table) -> pa.Table:
        """Convert an epoch's ledger rows into the records that a later stage reads."""
        with register(self.connection, rows, self._names["passed"]):
            return self.connection.execute(self._changes).to_arrow_table()

    def close(self) -> None:
        """Drop the table of open windows."""
        self.connection.execute(f"DROP TABLE IF EXISTS {self._names['state']}")

    @property
    def _by_key(self) -> bool:
        """True if a record affects all windows of its key, rather than only the windows that contain it."""
        return True

    def _clock(self, state: EpochState, clock: Clock) -> None:
        row = literal_row(clock_values(self.pipeline, state.clock, clock, state.generation))
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {self._names['clock']} AS {row}")

    def _stepped(self, remains: str, awake: int, state: EpochState, clock: Clock) -> EpochState:
        """Replace the affected windows in the table of open windows with the rows of `remains`; return the new state.

        `awake` is the number of the affected windows. The query `remains` returns those of them that stay open.
        """
        names, execute = self._names, self.connection.execute
        own = ", ".join(map(name_of, self._types))
        if awake == state.count:
            execute(self._made)
        elif awake:
            execute(f"DELETE FROM {names['state']} WHERE rowid IN (SELECT _row FROM {names['touched']})")
        stay = self._changed(f"INSERT INTO {names['state']} BY NAME SELECT {own} FROM ({remains})")
        return EpochState(clock, state.generation, state.count - awake + stay)

    def _with_rejected(self, rows: pa.Table, bundle: DuckBundle, clock: Clock) -> pa.Table:
        if bundle.rejected is None or not bundle.rejected.num_rows:
            return rows
        text = in_duckdb_once(self.rows.of_rejected(self._names["bundle"], clock))
        return pa.concat_tables([rows, self._typed(self._queried(bundle.rejected, text))])

    def _changed(self, text: str) -> int:
        """Run a statement that creates a table or inserts rows; return the number of rows."""
        return int(single_value(self.connection, text))

    def _count(self, table: Relation) -> int:
        return int(single_value(self.connection, f"SELECT COUNT(*) FROM {table}"))


_NAMES = (*VIEWS, "ledger", "passed")
