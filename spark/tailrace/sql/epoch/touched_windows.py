"""Find, in SQL, the open windows that an epoch touches: windows that a record touches or that the clock changes.

The rules change only touched windows, so an engine need not read or write any other window (MillWheel, 4.1: a
computation runs for a key when a record or a timer arrives). In the queries, `s` is a row of the state. `p` is a
partial of the epoch (one row per key and window of its records), or a record if the step runs in Python.
"""

from __future__ import annotations

from tailrace.lake.schema.column_groups import SPAN
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.transition import Transition
from tailrace.sql.epoch.clock_row import clock_terms
from tailrace.sql.query_shapes import equal_in
from tailrace.sql.records.assignment import key_names
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, Sql, quoted


def meets_record(pipeline: Pipeline, *, by_key: bool) -> Condition:
    """Return the condition that a record touches a window.

    With `by_key`, a record touches all windows of its key. Otherwise, a record touches only the windows that contain
    it. `by_key` must be true if windows merge, or if the step runs in Python.
    """
    return Condition(equal_in("s", "p", key_names(pipeline), () if by_key else SPAN) or "true")


def changed_by_clock(pipeline: Pipeline) -> Condition:
    """Return the condition that the clock of an epoch changes a window that no record touches.

    The condition is on the columns of the window and of the clock.
    """
    rules = Transition(pipeline, Sql())
    row = {name: quoted(name) for name in rules.columns()}
    return Condition(f"COALESCE({rules.changes_without_records(row, 'window_end', clock_terms(pipeline))}, true)")


def touched_windows(pipeline: Pipeline, state: Relation, clock: Relation, records: Relation, *, by_key: bool) -> Query:
    """Return DuckDB's query for the touched windows.

    The query reads the state once, and adds the column `_row` with the row number of the window in the state.
    """
    met = f"EXISTS (SELECT 1 FROM {records} p WHERE {meets_record(pipeline, by_key=by_key)})"
    found = f"SELECT s.*, s.rowid AS _row FROM {state} s CROSS JOIN {clock} c"
    return Query(f"{found} WHERE {met} OR {changed_by_clock(pipeline)}")


def windows_with_records(pipeline: Pipeline, state: Relation, records: Relation, *, by_key: bool, few: bool) -> Query:
    """Return the query for the windows that records touch.

    If `few` is True, the query tells Spark to broadcast the records.
    """
    hint = "/*+ BROADCAST(p) */ " if few else ""
    met = f"EXISTS (SELECT {hint}1 FROM {records} p WHERE {meets_record(pipeline, by_key=by_key)})"
    return Query(f"SELECT s.* FROM {state} s WHERE {met}")


def windows_changed_by_clock(
    pipeline: Pipeline,
    state: Relation,
    clock: Relation,
    records: Relation | None,
    *,
    by_key: bool,
    within: Condition = ALWAYS,
) -> Query:
    """Return the query for the windows that the clock changes, except windows that records touch.

    `within` is a condition that every window touched by a record meets. Other windows need not be compared with the
    records.
    """
    found = Query(f"SELECT s.* FROM {state} s CROSS JOIN {clock} c WHERE {changed_by_clock(pipeline)}")
    if records is None:
        return found
    met = f"EXISTS (SELECT 1 FROM {records} p WHERE {meets_record(pipeline, by_key=by_key)})"
    return Query(f"SELECT s.* FROM ({found}) s WHERE NOT ({within} AND {met})")
