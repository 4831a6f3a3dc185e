"""Find the open windows that an epoch touches, in SQL: a record meets a window, or the clock changes it.

The rules do not change the other windows, so an engine may leave them where they are (MillWheel, 4.1: a computation
runs for a key when a record or a timer comes). The rows of the state are named `s`. The rows named `p` are the epoch's
partials, or its records where Python takes the step.
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
    """Write the condition that a record touches a window: the record is in the window, or with `by_key` has its key.

    Where windows merge, or Python takes the step, a record touches all windows of its key.
    """
    return Condition(equal_in("s", "p", key_names(pipeline), () if by_key else SPAN) or "true")


def changed_by_clock(pipeline: Pipeline) -> Condition:
    """Write the condition that an epoch changes a window without a record, on columns of the window and the clock."""
    rules = Transition(pipeline, Sql())
    row = {name: quoted(name) for name in rules.columns()}
    return Condition(f"COALESCE({rules.changes_without_records(row, 'window_end', clock_terms(pipeline))}, true)")


def touched_windows(pipeline: Pipeline, state: Relation, clock: Relation, records: Relation, *, by_key: bool) -> Query:
    """Write the query of the touched windows in one pass over the state, with DuckDB's row number as `_row`."""
    met = f"EXISTS (SELECT 1 FROM {records} p WHERE {meets_record(pipeline, by_key=by_key)})"
    found = f"SELECT s.*, s.rowid AS _row FROM {state} s CROSS JOIN {clock} c"
    return Query(f"{found} WHERE {met} OR {changed_by_clock(pipeline)}")


def windows_with_records(pipeline: Pipeline, state: Relation, records: Relation, *, by_key: bool, few: bool) -> Query:
    """Write the query of the windows that records meet; `few` has Spark broadcast the records."""
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
    """Write the query of the windows that the clock changes, without the windows `within` reach that records meet."""
    found = Query(f"SELECT s.* FROM {state} s CROSS JOIN {clock} c WHERE {changed_by_clock(pipeline)}")
    if records is None:
        return found
    met = f"EXISTS (SELECT 1 FROM {records} p WHERE {meets_record(pipeline, by_key=by_key)})"
    return Query(f"SELECT s.* FROM ({found}) s WHERE NOT ({within} AND {met})")
