"""A grid of counts, with a column for each unit of event time, and lines for the stream, backfills and late records.

To count the rows, DuckDB reads only a few columns of the answers and of the late records. Files without a row in the
range are not opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.read.late_records import taken_in_until
from tailrace.model.base.time import END_OF_TIME
from tailrace.serve.reading.event_time import Column, TimeRange, choose_unit, columns_of, start_sql
from tailrace.serve.reading.lake_reader import Session, cut_columns, digest_of
from tailrace.serve.reading.shown_text import value_text
from tailrace.serve.reading.stage_rows import RowRelation, StageRows

MOST_LINES = 10
"""The maximum number of backfills with a separate line in a grid; the remaining backfills share one line."""


@dataclass(frozen=True)
class GridLine:
    """A line of a grid: the kind of rows that the line counts, and the number of these rows in each column.

    `kind` is `stream` (rows that a stream computed), `backfill` (rows that a backfill computed), `taken` (late records
    that a backfill has included in an answer) or `late` (late records that are in no answer). `generation` is None for
    late records, and for the line that several backfills share.
    """

    kind: str
    name: str
    note: str
    counts: tuple[int, ...]
    generation: int | None = None
    run: str | None = None

    @property
    def most(self) -> int:
        """The largest count in the line."""
        return max(self.counts, default=0)


@dataclass(frozen=True)
class EventGrid:
    """A grid over a range of event time.

    `outside` is the number of rows that are in no column of the grid, because their windows cover all of event time.
    """

    range: TimeRange
    unit: str
    columns: tuple[Column, ...]
    lines: tuple[GridLine, ...]
    outside: int


def extent(session: Session, named: RowRelation, late: RowRelation | None) -> TimeRange | None:
    """Return the range from the first to the last event time of a stage's rows and late records.

    Returns None if no row and no late record has an event time before the end of time.
    """
    found = _bounds(session, named) + ([] if late is None else _bounds(session, late))
    return TimeRange(min(found), max(found) + 1) if found else None


def _bounds(session: Session, named: RowRelation) -> list[int]:
    """Return the first and the last event time of the rows. Rows whose event time is the end of time do not count.

    The result is empty if no row has an event time before the end of time.
    """
    if named.span is not None and named.span[1] < END_OF_TIME - 1:
        return [*named.span]
    query = f"SELECT min({named.at}) AS first, max({named.at}) AS last FROM {named.name} WHERE {named.at} < ?"
    return [one for one in session.one(query, [END_OF_TIME - 1]).values() if one is not None]


def whole_units(range: TimeRange, step: int) -> TimeRange:
    """Extend a range to whole units of the grid at both ends. The result is the range that the grid shows."""
    columns = columns_of(choose_unit(range, step), range)
    return TimeRange(columns[0].range.first, columns[-1].range.last)


def event_grid(
    session: Session,
    named: RowRelation,
    late: RowRelation | None,
    range: TimeRange,
    runs: Sequence[Run],
    *,
    step: int = 0,
    unbounded: bool,
) -> EventGrid:
    """Count a stage's rows in a range, for each run and each unit of event time.

    The unit is chosen so that the columns fit on a page. `step` is the time between the ends of consecutive windows, in
    microseconds. If `unbounded` is True, rows whose event time is the end of time are counted as well, in `outside`.
    """
    unit = choose_unit(range, step)
    columns = columns_of(unit, range)
    whole = TimeRange(columns[0].range.first, columns[-1].range.last)
    places = {column.range.first: place for place, column in enumerate(columns)}
    lines = list(_lines(_count_by_line(session, named, unit, whole, "generation"), places, len(columns), runs))
    lines += [] if late is None else _late_lines(session, late, unit, whole, places, runs)
    outside = 0
    if unbounded and (named.span is None or named.span[1] >= END_OF_TIME - 1):
        query = f"SELECT count(*) AS n FROM {named.name} WHERE {named.at} >= ?"
        outside = int(session.one(query, [END_OF_TIME - 1])["n"])
    return EventGrid(whole, unit, tuple(columns), tuple(lines), outside)


def _count_by_line(
    session: Session, named: RowRelation, unit: str, whole: TimeRange, by: str
) -> dict[object, dict[int, int]]:
    query = (
        f"SELECT {by} AS line, {start_sql(unit, named.at)} AS start, count(*) AS n FROM {named.name} "
        f"WHERE {named.at} >= ? AND {named.at} < ? GROUP BY ALL"
    )
    found: dict[object, dict[int, int]] = {}
    for row in session.all(query, [whole.first, min(whole.last, END_OF_TIME - 1)]):
        found.setdefault(row["line"], {})[row["start"]] = row["n"]
    return found


def _fill(starts: Mapping[int, int], places: Mapping[int, int], width: int) -> tuple[int, ...]:
    counts = [0] * width
    for start, n in starts.items():
        if start in places:
            counts[places[start]] += n
    return tuple(counts)


def _lines(
    counted: Mapping[object, Mapping[int, int]], places: Mapping[int, int], width: int, runs: Sequence[Run]
) -> Iterator[GridLine]:
    """Yield a line for each generation that no backfill wrote, and then the lines of the backfills.

    The `MOST_LINES` backfills that computed the most rows have a separate line each. All other backfills share one
    line.
    """
    by_generation = {run.generation: run for run in runs}
    backfills: list[GridLine] = []
    for generation in sorted(one for one in counted if isinstance(one, int)):
        run = by_generation.get(generation)
        counts = _fill(counted[generation], places, width)
        if run is None or run.kind != "backfill":
            kind = "stream" if run is None else run.kind
            yield GridLine("stream", kind, f"generation {generation}", counts, generation, run.run if run else None)
        else:
            note = f"generation {generation}" + (f": {value_text(run.reason)}" if run.reason else "")
            backfills.append(GridLine("backfill", "backfill", note, counts, generation, run.run))
    kept = sorted(backfills, key=lambda line: -sum(line.counts))[:MOST_LINES]
    yield from (line for line in backfills if line in kept)
    others = [line for line in backfills if line not in kept]
    if others:
        counts = tuple(map(sum, zip(*(line.counts for line in others), strict=True)))
        yield GridLine("backfill", "other backfills", f"{len(others)} of them", counts)


def _late_lines(
    session: Session, late: RowRelation, unit: str, whole: TimeRange, places: Mapping[int, int], runs: Sequence[Run]
) -> Iterator[GridLine]:
    """Yield a line for the late records that a backfill has included, and a line for all other late records."""
    taken = session.known_as("taken_in", _steps(taken_in_until(runs)))
    judged = (
        f"(SELECT r._at, coalesce(t.epoch >= r.epoch, false) AS taken "
        f"FROM (SELECT *, {late.at} AS _at FROM {late.name}) r ASOF LEFT JOIN {taken} t ON r._at >= t._from)"
    )
    counted = _count_by_line(session, RowRelation(judged, "_at"), unit, whole, "taken")
    names = {True: ("taken", "late, taken in", "by a backfill"), False: ("late", "late, not taken in", "in no answer")}
    for is_taken, (kind, name, note) in names.items():
        if starts := counted.get(is_taken):
            yield GridLine(kind, name, note, _fill(starts, places, len(places)))


def _steps(steps: Iterable[tuple[int, int]]) -> pa.Table:
    rows = list(steps)
    columns = {"_from": [at for at, _ in rows], "epoch": [epoch for _, epoch in rows]}
    return pa.table(columns, pa.schema([("_from", pa.int64()), ("epoch", pa.int64())]))


@dataclass(frozen=True)
class AnswerList:
    """One page of a stage's rows in a range: the columns, the cells, and whether more rows follow."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    page: int
    more: bool


def answer_list(
    session: Session, rows: StageRows, named: RowRelation, range: TimeRange, page: int, generation: int | None = None
) -> AnswerList:
    """Read one page of a stage's rows in a range, ordered by event time and key. DuckDB cuts long texts."""
    columns = (*rows.keys, *rows.values, *rows.version)
    items = [*cut_columns(rows.table.schema(), columns), f"{digest_of(rows.keys)} AS _key"]
    spans = ["epoch_us(window_start) AS _start", "epoch_us(window_end) AS _end"] if rows.windowed else []
    spans = spans or [f"{named.at} AS _start"]
    of = "" if generation is None else "AND generation = ?"
    order = ", ".join([spans[0].partition(" AS ")[0], *map(name_of, rows.keys)])
    # Select the page's rows first, so that digests are computed and texts are cut for these rows only.
    chosen = (
        f"SELECT * FROM {named.name} WHERE {named.at} >= ? AND {named.at} < ? {of} ORDER BY {order} LIMIT ? OFFSET ?"
    )
    query = f"SELECT {', '.join([*items, *spans])} FROM ({chosen}) ORDER BY {order}"
    values = [range.first, range.last, *([] if generation is None else [generation])]
    found = session.all(query, [*values, session.rows + 1, page * session.rows])
    return AnswerList(columns, tuple(found[: session.rows]), page, len(found) > session.rows)
