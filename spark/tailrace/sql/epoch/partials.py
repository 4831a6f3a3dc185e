"""Write the first half of an epoch in SQL: aggregate a bundle of records into one row for each key and window.

Each row has the accumulator of its records, and the number of its records (`arrived`). The bounds of windows are in
microseconds here.
"""

from __future__ import annotations

from tailrace.lake.schema.column_groups import SPAN
from tailrace.model.base.algebra import Scalars
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.transition import Transition
from tailrace.sql.query_shapes import equal_in, islands
from tailrace.sql.records.assignment import (
    NATIVE,
    end_by_start,
    has_overlap,
    join_items,
    key_names,
    lifted_terms,
    slice_rows,
    slices_in_windows,
    window_rows,
)
from tailrace.sql.terms import Condition, Query, Relation, Sql, bracketed, quoted, totals


def is_closed(pipeline: Pipeline, end: str, watermark: str) -> Condition:
    """Return the condition that a window is closed at a watermark (rule M1); `end` is the SQL expression for the
    window's end.
    """
    return Condition(str(Transition(pipeline, Sql()).closed(end, watermark)))


def merged_items(pipeline: Pipeline, *, lifted: bool = False) -> list[str]:
    """Return the select-list items that merge the accumulators of a group of rows.

    If `lifted` is True, each row is a record; otherwise, each row is an accumulator of several records.
    """
    terms = lifted_terms(pipeline) if lifted else None
    # If records can be retracted, the values of a record already have the wide type of a sum.
    merged = totals(pipeline.parts, quoted, lifted=terms, narrow=not pipeline.takes_back)
    return [f"{term} AS {quoted(name)}" for name, term in merged.items()]


def partials(pipeline: Pipeline, source: Relation, clock: Relation, *, by_slices: bool = False) -> Query:
    """Return the query for a bundle's partials: for each key and window, a row with the accumulator of the bundle's
    records.

    With `by_slices`, records that are in several windows are aggregated by slices of time first
    (`finished_accumulators`).

    If windows do not merge, only the window decides whether its records are late, so the step later compares whole
    partials with the watermark. If windows merge, this query first compares each record's window with the watermark and
    leaves out late records, and then merges the windows (rule M1).
    """
    if not pipeline.where.merges:
        return (
            finished_accumulators(pipeline, source) if by_slices else _grouped(pipeline, window_rows(pipeline, source))
        )
    expired = is_closed(pipeline, "window_end", "c.watermark_before")
    alive = Query(f"SELECT r.* FROM ({window_rows(pipeline, source)}) r CROSS JOIN {clock} c WHERE NOT {expired}")
    return _sessions(pipeline, alive)


def window_accumulators(pipeline: Pipeline, rows: Query) -> Query:
    """Return the query for each window's accumulator in a backfill, where the input is complete.

    `rows` is a query for records with windows. If the pipeline's windows merge, the query merges overlapping windows.
    """
    return _sessions(pipeline, rows) if pipeline.where.merges else _grouped(pipeline, rows)


def combine_partials(pipeline: Pipeline, rows: Relation, *, counted: bool = False) -> Query:
    """Return the query that combines the accumulators of each window into one accumulator.

    If windows merge, the accumulators of overlapping windows are also combined. Each row of `rows` has the accumulator
    of some of a window's records. With `counted`, `rows` and the result also have the number of records, `arrived`.
    """
    arrived = ["CAST(SUM(arrived) AS bigint) AS arrived"] if counted else []
    totals = join_items(arrived, merged_items(pipeline))
    if pipeline.where.merges:
        return _spans(pipeline, islands(rows, key_names(pipeline), SPAN), totals)
    by = join_items(key_names(pipeline), list(SPAN))
    return Query(f"SELECT {by}, {totals} FROM {rows} GROUP BY {by}")


def finished_accumulators(pipeline: Pipeline, source: Relation) -> Query:
    """Return the query for each window's accumulator; `source` is a relation of the records after the steps.

    If windows overlap, the query first aggregates the records of each slice of time, and then the slices of each
    window. So each record is aggregated once, rather than once per window that contains it.
    """
    if not has_overlap(pipeline):
        return window_accumulators(pipeline, window_rows(pipeline, source))
    by, carried = join_items(key_names(pipeline), ["at"]), [quoted(name) for name in pipeline.parts]
    slices = Query(f"SELECT {by}, {_totals(pipeline)} FROM ({slice_rows(pipeline, source)}) GROUP BY {by}")
    rows = slices_in_windows(pipeline, [*key_names(pipeline), "arrived", *carried], slices)
    return _grouped(pipeline, rows, "CAST(SUM(arrived) AS bigint)")


def _totals(pipeline: Pipeline, arrived: str = "COUNT(*)") -> str:
    return join_items([f"{arrived} AS arrived"], merged_items(pipeline, lifted=arrived == "COUNT(*)"))


def _grouped(pipeline: Pipeline, rows: Query, arrived: str = "COUNT(*)") -> Query:
    keys, end = key_names(pipeline), end_by_start(pipeline)
    if end is None:
        by = join_items(keys, list(SPAN))
        return Query(f"SELECT {by}, {_totals(pipeline, arrived)} FROM ({rows}) GROUP BY {by}")
    # A window's end can be computed from its start. Grouping without the end takes a quarter less time.
    by, carried = join_items(keys, ["window_start"]), [quoted(name) for name in pipeline.parts]
    grouped = f"SELECT {by}, {_totals(pipeline, arrived)} FROM ({rows}) GROUP BY {by}"
    items = join_items(keys, ["window_start", f"{end} AS window_end", "arrived"], carried)
    return Query(f"SELECT {items} FROM ({grouped})")


def _sessions(pipeline: Pipeline, rows: Query) -> Query:
    # All sessions have the same gap. So a record starts a new island of overlapping windows if its event time is at
    # least a gap later than the event time of the previous record.
    return _spans(pipeline, islands(bracketed(rows), key_names(pipeline), ["at"], alike=True), _totals(pipeline))


def _spans(pipeline: Pipeline, rows: Query, totals: str) -> Query:
    """Return the query that merges each island of overlapping windows into one window, from the first start to the last
    end.
    """
    span = "MIN(window_start) AS window_start, MAX(window_end) AS window_end"
    by = join_items(key_names(pipeline), ["island"])
    return Query(f"SELECT {join_items(key_names(pipeline), [span])}, {totals} FROM ({rows}) GROUP BY {by}")


def may_be_late(pipeline: Pipeline, closest: int | None, before: Clock | None) -> bool:
    """Return True if a bundle may have late records, given the clock `before` the epoch.

    `closest` is the earliest end of a window in the bundle: if this window is not closed, no record is late. If windows
    merge, the result is always True: the partials do not contain late records, so `closest` does not show whether there
    were late records.
    """
    if pipeline.where.merges:
        return True
    if before is None or closest is None:
        return False
    return bool(Transition(pipeline, Scalars()).closed(closest, before.watermark))


def late_records(pipeline: Pipeline, source: Relation, clock: Relation) -> Query:
    """Return the query for a bundle's late records: one row for each record and each of its windows that is closed
    (rule M1).

    The columns are the keys, `at`, the window, the record's position, the clock's columns, and the `reason`.
    """
    expired = is_closed(pipeline, "r.window_end", "c.watermark_before")
    return _too_late(
        pipeline, "r.window_start, r.window_end", "expired", source, f"CROSS JOIN {clock} c WHERE {expired}"
    )


def may_have_passed(pipeline: Pipeline, source: Relation, clock: Relation) -> Relation:
    """Return a relation of the records that may be too late; other records need not be assigned to windows.

    A built-in window ends after the event times of its records, so it is enough to compare event times with the
    watermark. A custom window may end earlier; if the pipeline has custom windows, all records are returned.
    """
    if type(pipeline.where) not in NATIVE:
        return source
    at = f"UNIX_MICROS(b.{quoted(pipeline.log.event_time)})"
    # At the end of time, every window is closed, whatever the allowed lateness is.
    passed = f"{at} < c.watermark_before - {pipeline.lateness}L OR c.watermark_before >= {END_OF_TIME}L"
    return Relation(f"(SELECT b.* FROM {source} b CROSS JOIN {clock} c WHERE {passed})")


def refused_records(pipeline: Pipeline, source: Relation, clock: Relation, transitions: Relation) -> Query:
    """Return the query for a bundle's records that are refused because their window's trigger has finished (rule M4).

    The query has the columns of `late_records`.
    """
    alive = f"NOT {is_closed(pipeline, 'r.window_end', 'c.watermark_before')}"
    if pipeline.where.merges:
        inside = "r.window_start >= t.window_start AND r.window_end <= t.window_end"
    else:
        inside = "r.window_start = t.window_start AND r.window_end = t.window_end"
    on = " AND ".join(filter(None, [equal_in("r", "t", key_names(pipeline)), inside]))
    joined = f"CROSS JOIN {clock} c JOIN {transitions} t ON {on} WHERE t.refused AND {alive}"
    return _too_late(pipeline, "t.window_start, t.window_end", "finished", source, joined)


def _too_late(pipeline: Pipeline, span: str, reason: str, source: Relation, joined: str) -> Query:
    items = [*(f"r.{name}" for name in key_names(pipeline)), "r.at", span, "r._source", "r._offset"]
    items += ["c.watermark_before", "c.epoch", "c.now", f"'{reason}' AS reason"]
    return Query(f"SELECT {join_items(items)} FROM ({window_rows(pipeline, source)}) r {joined}")
