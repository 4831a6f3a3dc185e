"""A definition's step on DuckDB: bundles come as Arrow tables, the open windows are a table of the database.

An epoch costs what it touches: the windows that a record or the clock touches go through the rules, and the others are
only scanned to find these. The table of open windows is a cache of what the ledger's partials add up to: after a
failure between two steps it is restored from the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from tailrace.engines.duckdb.database.dialect import column_type, in_duckdb, in_duckdb_once, literal_row, name_of
from tailrace.engines.duckdb.executions.preparation import Connection, Stepping, Steps, Taken
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.transition import Transition
from tailrace.sql.epoch.clock_row import clock_values
from tailrace.sql.epoch.holds import due_items, holds_back, next_due, oldest_held
from tailrace.sql.epoch.ledger_rows import Rows, state_types
from tailrace.sql.epoch.touched_windows import touched
from tailrace.sql.records.stage_records import changes
from tailrace.sql.terms import Query, Relation, Sql, quoted


@dataclass(frozen=True)
class Windows:
    """The open windows after an epoch: its clock, the stream's generation, and the number of windows.

    The windows themselves are in the execution's table, which only has those of the last epoch.
    """

    clock: Clock | None
    generation: int
    count: int = 0

    def forget(self) -> None:
        """Do nothing: no memory is held for this state alone."""


@dataclass(frozen=True)
class Moved:
    """The result of an epoch: the rows to write to the ledger, and the state after it.

    Where they are many, only a few are `computed`, and `queries` give the others, for a writer that takes a file's
    worth at a time. `read` answers a query with rows as the ledger has them; it can until the next epoch is consumed.
    """

    computed: pa.Table
    state: Windows
    queries: tuple[Query, ...] = ()
    read: Callable[[Query], pa.Table] | None = None

    @cached_property
    def rows(self) -> pa.Table:
        """All rows at once."""
        if self.read is None:
            return self.computed
        return pa.concat_tables([self.computed, *map(self.read, self.queries)])


class DuckExecution(Stepping):
    """A definition on a connection; a subclass takes its windows through an epoch.

    `steps` takes a bundle through the definition's steps where DuckDB cannot (`sql.records.selections.needs_spark`).
    """

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        self.pipeline = pipeline
        self.rows, self.rules = Rows(pipeline), Transition(pipeline, Sql())
        self._names |= {name: Relation(f"{self._own}_{name}") for name in _NAMES}
        self._types = state_types(pipeline)
        columns = ", ".join(f"{name_of(name)} {column_type(type)}" for name, type in self._types.items())
        self._made = f"CREATE OR REPLACE TABLE {self._names['state']} ({columns})"
        names = self._names
        self._awake = in_duckdb(
            touched(pipeline, names["state"], names["clock"], names["partials"], by_key=self._by_key)
        )
        self._changes = in_duckdb(changes(pipeline, self._names["told"]))

    def nothing(self, generation: int = 0) -> Windows:
        """Empty the table of open windows, and return the state before the first epoch."""
        self.connection.execute(self._made)
        return Windows(None, generation)

    def restore(self, ledger: Relation, clock: Clock, generation: int) -> Windows:
        """Restore the state after the epoch of `clock` from a ledger's partials; `ledger` is a relation of them."""
        names = self._names
        self.connection.execute(self._made)
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {names['ledger']} AS SELECT * FROM {ledger}")
        own = ", ".join(map(quoted, self._types))
        query = Query(f"SELECT {own} FROM ({self.rows.within_reach(names['ledger'], clock.watermark)})")
        self.connection.execute(f"INSERT INTO {names['state']} BY NAME {in_duckdb_once(query)}")
        self.connection.execute(f"DROP VIEW {names['ledger']}")
        return Windows(clock, generation, self._count(names["state"]))

    def consume(self, bundle: pa.Table, state: Windows) -> Taken:
        """Take a bundle through the definition's steps: the log's columns, and where each record came from."""
        raise NotImplementedError

    def step(self, state: Windows, taken: Taken, clock: Clock) -> Moved:
        """Take the open windows through an epoch. Raises `ClockError` if the clock goes back."""
        raise NotImplementedError

    @property
    def holds(self) -> bool:
        """Whether open windows can hold a later stage's watermark at all."""
        return holds_back(self.pipeline)

    def onward(self, state: Windows) -> int:
        """Return the bound, in microseconds, of a later stage's watermark after this state's epoch (rule T3)."""
        assert state.clock is not None
        if not self.holds:
            return state.clock.watermark
        oldest = Query(f"SELECT {oldest_held(self.pipeline)} FROM {self._names['state']}")
        held = self._value(in_duckdb(oldest))
        return state.clock.watermark if held is None else min(state.clock.watermark, int(held))

    def due(self, state: Windows, periods: Iterable[tuple[int, int]], delays: Iterable[int]) -> int | None:
        """Return when, in microseconds of processing time, an open window may fire without a record; None if none."""
        if state.clock is None:
            return None
        now = state.clock.processing_time
        items = ", ".join(due_items(self.pipeline, now, delays))
        query = Query(f"SELECT {items} FROM {self._names['state']}")
        found = self.connection.execute(in_duckdb_once(query))
        return next_due(now, periods, *(found.fetchone() or (0,)))

    def changed(self, rows: pa.Table) -> pa.Table:
        """Turn an epoch's rows into the records that a later stage reads."""
        self.connection.register(self._names["told"], rows)
        try:
            return self.connection.execute(self._changes).to_arrow_table()
        finally:
            self.connection.unregister(self._names["told"])

    def close(self) -> None:
        """Drop the table of open windows."""
        self.connection.execute(f"DROP TABLE IF EXISTS {self._names['state']}")

    @property
    def _by_key(self) -> bool:
        """Whether a record touches all windows of its key, and not those alone that it is in."""
        return True

    def _clock(self, state: Windows, clock: Clock) -> None:
        row = literal_row(clock_values(self.pipeline, state.clock, clock, state.generation))
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {self._names['clock']} AS {row}")

    def _stepped(self, remains: str, state: Windows, clock: Clock) -> Windows:
        """Replace the touched windows in the table by those that remain of them; return the state after the epoch."""
        names, execute = self._names, self.connection.execute
        own = ", ".join(map(name_of, self._types))
        awake = self._count(names["awake"])
        if awake == state.count:
            execute(self._made)
        elif awake:
            execute(f"DELETE FROM {names['state']} WHERE rowid IN (SELECT _row FROM {names['awake']})")
        execute(f"INSERT INTO {names['state']} BY NAME SELECT {own} FROM ({remains})")
        return Windows(clock, state.generation, self._count(names["state"]))

    def _with_rejected(self, rows: pa.Table, taken: Taken, clock: Clock) -> pa.Table:
        if taken.rejected is None or not taken.rejected.num_rows:
            return rows
        text = in_duckdb_once(self.rows.of_rejected(self._names["bundle"], clock))
        return pa.concat_tables([rows, self._typed(self._queried(taken.rejected, text))])

    def _count(self, table: Relation) -> int:
        return int(self._value(f"SELECT COUNT(*) FROM {table}"))

    def _value(self, text: str) -> Any:
        return (self.connection.execute(text).fetchone() or (None,))[0]


_NAMES = ("clock", "partials", "state", "awake", "transitions", "ledger", "told")
