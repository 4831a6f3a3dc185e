"""A definition's step on DuckDB: bundles come as Arrow tables, the open windows are a table of the database.

An epoch costs what it touches: the windows that a record or the clock touches go through the rules, and the others are
only scanned to find these. The table of open windows is a cache of what the ledger's partials add up to: after a
failure between two steps it is restored from the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.database.connection import in_one_transaction
from tailrace.engines.duckdb.database.dialect import column_type, in_duckdb, in_duckdb_once, literal_row, name_of
from tailrace.engines.duckdb.preparation import Connection, Stepping, Steps, Taken
from tailrace.engines.python.assigned import assigned_windows
from tailrace.engines.python.window_step import PythonStep
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import shape_of
from tailrace.lake.schema.shapes import arrow_schema
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PLACE, SIGN
from tailrace.model.step.transition import Transition
from tailrace.sql.epoch.clock_row import clock_values
from tailrace.sql.epoch.holds import due_items, holds_back, next_due, oldest_held
from tailrace.sql.epoch.ledger_rows import Rows, state_types
from tailrace.sql.epoch.partials import closed, late, may_be_late, may_have_passed, partials, put_together, refused
from tailrace.sql.epoch.state_merge import met
from tailrace.sql.epoch.touched_windows import touched
from tailrace.sql.epoch.transition_rows import transitions
from tailrace.sql.records.assignment import WINDOWS, keep_clause
from tailrace.sql.records.stage_records import changes
from tailrace.sql.records.ways import Way, way
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


class SqlExecution(DuckExecution):
    """The step as SQL: nothing in Python per record or per window."""

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        names = self._names
        self._partials = in_duckdb(partials(pipeline, names["bundle"], names["clock"], by_slices=True))
        self._transitions = in_duckdb(
            transitions(pipeline, met(pipeline, names["awake"], names["partials"], names["clock"], joined=True))
        )
        self._kind = "TABLE"
        self._moved = tuple(self.rows.apart(names["transitions"]))
        text = refused(pipeline, names["bundle"], names["clock"], names["transitions"])
        self._refused = in_duckdb(self.rows.of_late(text)) if pipeline.finishing == "close" else None
        behind = may_have_passed(pipeline, names["bundle"], names["clock"])
        self._late = in_duckdb(self.rows.of_late(late(pipeline, behind, names["clock"])))
        self._remains = in_duckdb(self.rows.state(names["transitions"]))

    def consume(self, bundle: pa.Table, state: Windows) -> Taken:
        taken, names = self._placed(self._prepared(bundle)), self._names
        watermark = state.clock.watermark if state.clock else BEGINNING
        self._clock(state, Clock(-1, watermark, 0))
        self.connection.register(names["bundle"], taken.records)
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {names['partials']} AS {self._partials}")
        return Taken(taken.records, taken.rejected, self._closest())

    def put_together(self, parts: pa.Table) -> int:
        """Put partials of parts of a bundle together, for `taken`; return how many there are.

        A share of the windows at a time, as grouping takes several times the memory of what it gives.
        """
        name, shares = self._names["partials"], 1 + parts.num_rows // ROWS_A_SHARE
        with registered(self.connection, parts) as rows:
            for share in range(shares):
                own = f"hash({', '.join(map(name_of, [*self.pipeline.key, *SPAN]))}) % {shares} = {share}"
                some = rows if shares == 1 else Relation(f"{name}_share")
                if shares > 1:
                    self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {some} AS SELECT * FROM {rows} WHERE {own}")
                text = in_duckdb_once(put_together(self.pipeline, some, counted=True))
                made = f"INSERT INTO {name}" if share else f"CREATE OR REPLACE TEMP TABLE {name} AS"
                self.connection.execute(f"{made} {text}")
        return self._count(name)

    def late_among(self, watermark: int) -> int:
        """Count how many times records of the partials came too late for a window at a watermark, in microseconds."""
        expired = closed(self.pipeline, "window_end", f"{watermark}L")
        text = Query(f"SELECT COALESCE(SUM(arrived), 0) FROM {self._names['partials']} WHERE {expired}")
        return int(self._value(in_duckdb_once(text)))

    def taken(self, late: Callable[[Clock], pa.Table]) -> Taken:
        """Take the partials that were put together; `late` finds records that came too late, asked where some did."""
        return Taken(pa.table({}), None, self._closest(), late)

    def _closest(self) -> int | None:
        closest: int | None = self._value(f"SELECT MIN(window_end) FROM {self._names['partials']}")
        return closest

    def step(self, state: Windows, taken: Taken, clock: Clock) -> Moved:
        clock.after(state.clock)
        names, execute = self._names, self.connection.execute
        self._clock(state, clock)
        with in_one_transaction(self.connection):
            execute(f"CREATE OR REPLACE TEMP TABLE {names['awake']} AS {self._awake}")
            # Many rows are computed for each query of them, as they would take more memory than all else.
            later = self._count(names["awake"]) + self._count(names["partials"]) >= MANY
            kind = "VIEW" if later else "TABLE"
            if kind != self._kind:
                execute(f"DROP {self._kind} IF EXISTS {names['transitions']}")
            execute(f"CREATE OR REPLACE TEMP {kind} {names['transitions']} AS {self._transitions}")
            rows = self._not_taken(state, taken, clock)
            if not later:
                rows = pa.concat_tables([*map(self._of_transitions, self._moved), rows])
            after = self._stepped(self._remains, state, clock)
        self._kind = kind
        self.connection.unregister(names["bundle"])
        rows = self._with_rejected(rows, taken, clock)
        return Moved(rows, after, self._moved, self._of_transitions) if later else Moved(rows, after)

    def _of_transitions(self, text: Query) -> pa.Table:
        """Return the rows of a query of the transitions, as the ledger has them."""
        return self._typed(self.connection.execute(in_duckdb(text)).to_arrow_table())

    def _not_taken(self, state: Windows, taken: Taken, clock: Clock) -> pa.Table:
        """Return the ledger's rows of the records that no window took: they came too late, or to one that is done."""
        found = [self.schema.empty_table()]
        texts = [] if self._refused is None else [self._refused]
        if self._any_late(state, taken):
            if taken.late is not None:
                found.append(self._typed(taken.late(clock)))
            else:
                texts.append(self._late)
        return pa.concat_tables([*found, *(self._typed(self.connection.execute(t).to_arrow_table()) for t in texts)])

    def _placed(self, taken: Taken) -> Taken:
        """Add the windows that the definition's own windowing code assigns; a windowing in SQL adds nothing here."""
        return taken

    def _any_late(self, state: Windows, taken: Taken) -> bool:
        """Tell whether the bundle may hold late records. Partials of windows that merge do not say."""
        some = bool(taken.records.num_rows) or taken.late is not None
        return some and may_be_late(self.pipeline, taken.closest, state.clock)

    @property
    def _by_key(self) -> bool:
        return self.pipeline.where.merges


class AssignedExecution(SqlExecution):
    """The step as SQL, over records whose windows the definition's own code assigned, called once for each record.

    Windows that merge do not take this execution: they may merge by a rule of their own.
    """

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        kept = Query(f"SELECT * FROM {self._names['bundle']}{keep_clause(pipeline)}")
        self._records_text = in_duckdb(kept)

    def _placed(self, taken: Taken) -> Taken:
        records = self._queried(taken.records, self._records_text) if self.pipeline.keep is not None else taken.records
        return replace(taken, records=records.append_column(WINDOWS, assigned_windows(self.pipeline, records)))


class PythonExecution(DuckExecution):
    """The reference step itself, in this process: for a definition's own combiners, and its own windows that merge."""

    def __init__(self, connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> None:
        super().__init__(connection, pipeline, steps)
        self._open = arrow_schema({name: shape_of(type) for name, type in self._types.items()})
        more = [SIGN] if pipeline.takes_back else []
        items = ", ".join([*map(quoted, pipeline.columns), *PLACE, *more])
        kept = Query(f"SELECT {items} FROM {self._names['bundle']}{keep_clause(pipeline)}")
        self._records_text = in_duckdb(kept)

    def consume(self, bundle: pa.Table, state: Windows) -> Taken:
        taken = self._prepared(bundle)
        return Taken(self._queried(taken.records, self._records_text), taken.rejected)

    def step(self, state: Windows, taken: Taken, clock: Clock) -> Moved:
        clock.after(state.clock)
        names, execute = self._names, self.connection.execute
        self._clock(state, clock)
        step = PythonStep(self.pipeline, clock, state.clock, state.generation, self._open, self.schema)
        with in_one_transaction(self.connection):
            self.connection.register(names["partials"], taken.records)
            execute(f"CREATE OR REPLACE TEMP TABLE {names['awake']} AS {self._awake}")
            self.connection.unregister(names["partials"])
            awake = execute(f"SELECT * EXCLUDE (_row) FROM {names['awake']}").to_arrow_table()
            remains, rows = step(awake, taken.records)
            self.connection.register(names["transitions"], remains)
            after = self._stepped(f"SELECT * FROM {names['transitions']}", state, clock)
            self.connection.unregister(names["transitions"])
        return Moved(self._with_rejected(self._typed(rows), taken, clock), after)


MANY = 100_000
"""The number of windows that an epoch takes through the rules from which on their rows are not computed all at once."""


ROWS_A_SHARE = 500_000
"""The approximate number of rows of parts that are put together at once."""


def executed(connection: Connection, pipeline: Pipeline, steps: Steps | None = None) -> DuckExecution:
    """Compile a definition into the execution that it takes on DuckDB."""
    return _EXECUTIONS[way(pipeline)](connection, pipeline, steps)


_EXECUTIONS: dict[Way, type[DuckExecution]] = {
    Way.SQL: SqlExecution,
    Way.ASSIGNED: AssignedExecution,
    Way.PYTHON: PythonExecution,
}


_NAMES = ("clock", "partials", "state", "awake", "transitions", "ledger", "told")
