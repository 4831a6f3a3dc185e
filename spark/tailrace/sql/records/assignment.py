"""Assign a bundle's records to windows in SQL: each kind of window has an SQL expression over a record's columns.

The bounds of windows are in microseconds here. `NATIVE` has the kinds of windows that can be written as an expression;
a definition with another kind of window cannot assign its windows in SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from tailrace.model.base.algebra import Term
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration
from tailrace.model.combiners.basic import Merge, without_negative_zeros
from tailrace.model.combiners.own import OwnCombiner
from tailrace.model.combiners.retraction import taken_back
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.pipeline import MEASURED, NET, Pipeline
from tailrace.model.logs.log import PLACE, SIGN
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.windows import PHASE_STEP, Fixed, Global, Sessions, Sliding
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, Sql, Tally, null, quoted


def key_names(pipeline: Pipeline) -> list[str]:
    """Return the names of the key columns, quoted."""
    return [quoted(name) for name in pipeline.key]


def join_items(*groups: list[str]) -> str:
    """Join the select-list items of several groups to one text, separated by commas."""
    return ", ".join(item for group in groups for item in group)


def lifted_terms(pipeline: Pipeline) -> dict[str, str]:
    """Map each part of the accumulator to the expression for the value that a record adds to the part.

    A part that counts records is the sum of 1 and 0 (`Tally`), if no record can be retracted.
    """
    o, found, columns = Sql(), dict[str, str](), _columns(pipeline)
    later = pipeline.takes_back
    for name, combiner in pipeline.combiners.items():
        type_ = pipeline.type_of(combiner)
        read = without_negative_zeros(o, columns, combiner.reals(pipeline.columns))
        value = combiner.read(o, read, _at(pipeline))
        terms = own_values(combiner, value) if isinstance(combiner, OwnCombiner) else combiner.lift(o, value, type_)
        if later:
            back = taken_back(o, combiner, terms, type_)
            # The value of a retraction is negative, so its records cannot be counted: a plain text is no `Tally`.
            terms = tuple(str(o.choose(f"({SIGN} < 0)", *pair)) for pair in zip(back, terms, strict=True))
        for part, term in zip(combiner.parts(type_), terms, strict=True):
            found[f"{name}__{part.name}"] = term if part.merge is Merge.ADD else str(term)
    for name, measure in pipeline.when.measures().items():
        found[f"{MEASURED}__{name}"] = measure.of(o, _columns(pipeline), pipeline.columns)
    if later:
        found[NET] = f"CAST({SIGN} AS bigint)"
    if pipeline.stamp is not None:
        found[pipeline.stamp] = _at(pipeline)
    return found


def lifted_items(pipeline: Pipeline) -> list[str]:
    """Return the select-list items with the values that a record adds to the parts of the accumulator.

    The item of a part that counts records is not a number, but is null in the rows that are not counted (`Tally`).
    """
    terms = lifted_terms(pipeline).items()
    return [f"{term.counted if isinstance(term, Tally) else term} AS {quoted(name)}" for name, term in terms]


def own_values(combiner: OwnCombiner, value: Term) -> tuple[Term, ...]:
    """Return what a record has in place of a custom combiner's accumulator: its value, to which no code is applied yet.

    The values of a window's records are passed to the combiner's code together (`own_total`). If the combiner reads no
    column, the value only counts the record.
    """
    given = "true" if combiner.column is None else value
    return (given, null("string")) if combiner.fails else (given,)


def window_rows(pipeline: Pipeline, source: Relation) -> Query:
    """Return the query for a bundle's records with their windows: one row for each record and each of its windows.

    The columns are the keys, `at` (event time), `window_start`, `window_end`, the values that the record adds to the
    accumulator's parts, and the record's position in the source. `source` is a relation of records after the
    definition's steps. If custom code assigns the windows, `source` has the assigned windows in the column `WINDOWS`.
    """
    where, places = pipeline.where, list(PLACE)
    carried = join_items(key_names(pipeline), ["at"], [quoted(name) for name in pipeline.parts], places)
    native = NATIVE.get(type(where))
    more = [] if native else [WINDOWS]
    records = _lifted_records(pipeline, source, _at(pipeline), [*places, *more])
    if native is None:
        return _own_windows(carried, records)
    return _cut(pipeline, carried, native(where, carried, records))


WINDOWS = "_windows"
"""The column with the windows that custom code has assigned to a record, as a list of window bounds."""


def has_overlap(pipeline: Pipeline) -> bool:
    """Return True if each record is in so many windows that it is faster to aggregate slices of time first."""
    where = pipeline.where
    return type(where) is Sliding and duration(where.size) >= LEAST_WINDOWS * duration(where.every)


LEAST_WINDOWS = 3
"""The minimum number of windows per record for which slices of time are used.

With fewer windows per record, the time to combine the slices may exceed the time that the slices save.
"""


def slice_rows(pipeline: Pipeline, source: Relation) -> Query:
    """Return the query for a bundle's records, with the values that each record adds to the accumulator.

    `at` is the start of the slice of time that contains the record. A window contains a slice completely or not at all:
    the length of a slice is the greatest common divisor of the windows' size and period, and slices are aligned with
    the starts of windows.
    """
    where = pipeline.where
    assert isinstance(where, Sliding)
    at, slice_ = _at(pipeline), gcd(duration(where.size), duration(where.every))
    return _lifted_records(pipeline, source, f"{at} - PMOD({at} - {duration(where.offset)}L, {slice_}L)", [])


def slices_in_windows(pipeline: Pipeline, carried: list[str], slices: Query) -> Query:
    """Return the query for slices of time with their windows: one row for each slice and each window that contains it.

    `carried` are the columns of slices to pass on.
    """
    return _cut(
        pipeline, join_items(carried), NATIVE[type(pipeline.where)](pipeline.where, join_items(carried), slices)
    )


def _cut(pipeline: Pipeline, carried: str, windows: Query) -> Query:
    """Return the query that limits windows to the time between the beginning and the end of time.

    If `Pipeline.exceeds_time` is False, the windows are returned unchanged.
    """
    if not pipeline.exceeds_time:
        return windows
    start, end = f"GREATEST(window_start, {BEGINNING}L)", f"LEAST(window_end, {END_OF_TIME}L)"
    return Query(f"SELECT {carried}, {start} AS window_start, {end} AS window_end FROM ({windows})")


def _at(pipeline: Pipeline) -> str:
    """Return the SQL expression for a record's event time in microseconds."""
    return f"UNIX_MICROS({quoted(pipeline.log.event_time)})"


def _lifted_records(pipeline: Pipeline, source: Relation, at: str, places: list[str]) -> Query:
    items = join_items(key_names(pipeline), [f"{at} AS at"], lifted_items(pipeline), places)
    return Query(f"SELECT {items} FROM {source}{keep_clause(pipeline)}")


def keep_clause(pipeline: Ranged) -> str:
    """Return the WHERE clause for the definition's `keep`; the clause is empty if the definition keeps all records."""
    return "" if pipeline.keep is None else f" WHERE {keep_condition(pipeline)}"


def keep_condition(pipeline: Ranged) -> Condition:
    """Return the condition that the definition's `keep` accepts a record. The record has gone through the steps."""
    holds = ALWAYS if pipeline.keep is None else pipeline.keep.holds(Sql(), _columns(pipeline), pipeline.columns)
    return Condition(str(holds))


def _columns(pipeline: Ranged) -> dict[str, str]:
    return {column: quoted(column) for column in pipeline.columns}


def end_by_start(pipeline: Pipeline) -> str | None:
    """Return a simple SQL expression that computes a window's end from its start, or None if there is no such
    expression.

    >>> from tailrace.model.samples.examples import figure
    >>> end_by_start(figure(12))
    'window_start + 120000000L'
    """
    match where := pipeline.where:
        case _ if type(where) not in NATIVE or pipeline.exceeds_time:
            # There is no simple SQL expression for windows that may be cut at the beginning or the end of time. Custom
            # code assigns windows in its own way, even if its class is derived from a built-in class.
            return None
        case Global():
            return f"{END_OF_TIME}L"
        case Fixed() | Sliding():
            return f"window_start + {duration(where.size)}L"
    return None


def _own_windows(carried: str, records: Query) -> Query:
    bounds = ", ".join(f"_window.{name} AS {name}" for name in ("window_start", "window_end"))
    return Query(f"SELECT {carried}, {bounds} FROM (SELECT *, EXPLODE({WINDOWS}) AS _window FROM ({records}))")


def _global(where: Global, carried: str, records: Query) -> Query:
    return Query(f"SELECT {carried}, {BEGINNING}L AS window_start, {END_OF_TIME}L AS window_end FROM ({records})")


def _fixed(where: Fixed, carried: str, records: Query) -> Query:
    size, since = duration(where.size), f"{duration(where.offset)}L"
    if where.phase is not None:
        # The SQL expression for the phase must have the same value as `model.windows.windows.phase_of`.
        since += f" - CRC32(CAST(COALESCE(CAST({quoted(where.phase)} AS string), '') AS binary)) * {PHASE_STEP}L"
    start = f"(at - PMOD(at - {since}, {size}L))"
    return Query(f"SELECT {carried}, {start} AS window_start, {start} + {size}L AS window_end FROM ({records})")


def _sliding(where: Sliding, carried: str, records: Query) -> Query:
    size, every, offset = duration(where.size), duration(where.every), duration(where.offset)
    last = f"(at - PMOD(at - {offset}L, {every}L))"
    starts = ", ".join(f"{last} - {place * every}L" for place in range(-(-size // every)))
    return Query(
        f"SELECT {carried}, window_start, window_start + {size}L AS window_end "
        f"FROM (SELECT *, EXPLODE(ARRAY({starts})) AS window_start FROM ({records})) "
        f"WHERE window_start + {size}L > at"
    )


def _sessions(where: Sessions, carried: str, records: Query) -> Query:
    gap = duration(where.gap)
    return Query(f"SELECT {carried}, at AS window_start, at + {gap}L AS window_end FROM ({records})")


def _calendar(where: Calendar, carried: str, records: Query) -> Query:
    zone, unit = Sql().literal(where.zone, "string"), where.unit.upper()
    # In this query, a local time is represented by the UTC instant with the same clock reading. If clocks show a local
    # time twice, Spark takes the earlier of the two instants. If clocks skip a local time, Spark takes the instant of
    # the skip. The model does the same in both cases.
    local = f"DATE_TRUNC('{unit}', FROM_UTC_TIMESTAMP(TIMESTAMP_MICROS(at), {zone}))"
    ends = {bound: f"UNIX_MICROS(TO_UTC_TIMESTAMP({local_}, {zone})) AS window_{bound}" for bound, local_ in (
        ("start", "local"), ("end", f"local + {_STEPS[where.unit]}"))}  # fmt: skip
    return Query(f"SELECT {carried}, {ends['start']}, {ends['end']} FROM (SELECT *, {local} AS local FROM ({records}))")


_STEPS = {
    "day": "INTERVAL '1' DAY",
    "week": "INTERVAL '7' DAY",
    "month": "INTERVAL '1' MONTH",
    "quarter": "INTERVAL '3' MONTH",
    "year": "INTERVAL '12' MONTH",
}

NATIVE: dict[type, Callable[[Any, str, Query], Query]] = {
    Global: _global,
    Fixed: _fixed,
    Sliding: _sliding,
    Sessions: _sessions,
    Calendar: _calendar,
}
"""The functions that write each kind of window as SQL. A function takes the windowing, the columns to pass on, and the
query for the records.
"""
