"""The SQL for the table that holds the state of a computation's keys: its columns, and the query that restores its
rows.

The table has one row per key. A row has columns of the ledger and the columns `LOOKED_AT`: the key's next due times,
and the earliest event time at which a timer of the key holds back the watermark. Each epoch reads the columns
`LOOKED_AT` for all keys, and reads the other columns only for the keys that the epoch processes.
"""

from __future__ import annotations

from tailrace.lake.schema.column_groups import SOURCE
from tailrace.lake.schema.computation_tables import computation_contract
from tailrace.lake.schema.contracts import FEEDBACK, PARTIAL
from tailrace.model.definition.computation import EVENT, PROCESSING, Computation
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.query_shapes import first_of
from tailrace.sql.terms import Condition, Query, Relation, quoted

DUE, WALL, HOLDS = "_due", "_wall", "_holds"
"""The columns with a key's next due time in event time, its next due time in processing time, and the earliest event
time at which one of its timers holds back the watermark. Each value is in microseconds, or null.
"""

LOOKED_AT = (DUE, WALL, HOLDS)

IS_DUE = Condition(f"COALESCE({DUE} <= _watermark, false) OR COALESCE({WALL} <= _now, false)")
"""The condition that a key is due without a record; `_watermark` and `_now` are columns of the clock."""

OF_TIMER = Condition("source_epoch IS NULL")
"""The condition that a ledger row about a rejection is about a rejected timer, not about a rejected record."""


def ledger_types(computation: Computation) -> dict[str, str]:
    """Map the name of each column of a computation's ledger to the column's type."""
    return computation_contract(computation).types


def key_row_columns(computation: Computation) -> list[str]:
    """Return the names of those columns of a key's row that are also columns of the ledger."""
    state = ["state"] if computation.fields else []
    return [*computation.key, *state, "timers", *(["waiting"] if computation.ordered else [])]


def key_row_types(computation: Computation) -> dict[str, str]:
    """Map the name of each column of a key's row to the column's type."""
    types = ledger_types(computation)
    return {name: types[name] for name in key_row_columns(computation)} | dict.fromkeys(LOOKED_AT, "bigint")


def loop_types(computation: Computation) -> dict[str, str]:
    """Return the ledger columns of a record in flight (fed back, but not yet received), as a mapping from names to
    types.
    """
    types = ledger_types(computation)
    fed_back = ["feedback"] if "feedback" in types else []
    return {name: types[name] for name in (*computation.key, PANE_TIME, *fed_back, *SOURCE)}


def latest_partials(computation: Computation, ledger: Relation, epoch: int) -> Query:
    """Return the query for the latest partial of each key in a ledger. A partial is a ledger row with the state of a
    key.

    Partials of epochs after `epoch` are ignored. Keys whose state was removed are left out.
    """
    partials = Relation(f"(SELECT * FROM {ledger} WHERE kind = '{PARTIAL}' AND epoch <= {epoch}L)")
    keys = [quoted(name) for name in computation.key]
    return Query(f"SELECT * FROM ({first_of(partials, keys, ['epoch DESC'])}) WHERE NOT gone")


def restored_keys(computation: Computation, ledger: Relation, epoch: int) -> Query:
    """Return the query for the rows of all keys at the end of an epoch.

    The rows are restored from the ledger, which contains the latest state of each key as a partial.
    """
    due = [_least("timers", f"_t.domain = '{EVENT.value}'", "_t.`at`")]
    if computation.ordered:
        due.append(f"{_least('waiting', None, f'_t.{quoted(computation.log.event_time)}')} + 1L")
    wall, holds = _least("timers", f"_t.domain = '{PROCESSING.value}'", "_t.`at`"), _least("timers", None, "_t.holds")
    items = [quoted(name) for name in key_row_columns(computation)]
    least = f"LEAST({', '.join(due)})" if len(due) > 1 else due[0]
    items += [f"{least} AS {DUE}", f"{wall} AS {WALL}", f"{holds} AS {HOLDS}"]
    return Query(f"SELECT {', '.join(items)} FROM ({latest_partials(computation, ledger, epoch)})")


def restored_loop(computation: Computation, ledger: Relation, epoch: int) -> Query:
    """Return the query that reads, from the ledger, the records that were in flight (fed back) at the end of an
    epoch.
    """
    items = ", ".join(map(quoted, loop_types(computation)))
    return Query(f"SELECT {items} FROM {ledger} WHERE kind = '{FEEDBACK}' AND epoch = {epoch}L")


def _least(items: str, where: str | None, at: str) -> str:
    """Return the SQL expression for the earliest instant in a list, in microseconds.

    `at` is the instant of a list element `_t`, and `where` is a condition on `_t`.
    """
    some = items if where is None else f"FILTER({items}, _t -> {where})"
    return f"ARRAY_MIN(TRANSFORM({some}, _t -> UNIX_MICROS({at})))"
