"""The first half of an epoch in Spark SQL: a bundle becomes one row for each key and window it touches.

The rows carry the accumulator of their records, how many there were (`arrived`), the latest event time (`latest`) and,
where the log says when records became known, the latest of those (`known`). Windows are microseconds in here.
"""

from __future__ import annotations

from tailrace.model.combiners import Merge
from tailrace.model.pipeline import Pipeline
from tailrace.model.time import BEGINNING, END_OF_TIME, duration
from tailrace.model.windows import Fixed, Global, Sessions, Sliding
from tailrace.spark.algebra import Sql, quoted

_AGGREGATE = {Merge.ADD: "SUM", Merge.LEAST: "MIN", Merge.GREATEST: "MAX"}


def names(pipeline: Pipeline) -> list[str]:
    """The key columns, quoted."""
    return [quoted(name) for name in pipeline.key]


def listed(*groups: list[str]) -> str:
    """Select-list items of several groups, with commas."""
    return ", ".join(item for group in groups for item in group)


def lifted(pipeline: Pipeline) -> list[str]:
    """What each record adds to each part of the accumulator, as select-list items."""
    o, items = Sql(), []
    for name, combiner in pipeline.what.items():
        value = None if combiner.column is None else quoted(combiner.column)
        parts = combiner.parts(pipeline.type_of(combiner))
        for part, term in zip(parts, combiner.lift(o, value), strict=True):
            items.append(f"{term} AS `{name}__{part.name}`")
    return items


def merged(pipeline: Pipeline) -> list[str]:
    """The accumulator of a group of lifted rows, as select-list items."""
    items = []
    for name, part in pipeline.parts.items():
        total = f"{_AGGREGATE[part.merge]}({quoted(name)})"
        items.append(f"CAST({total} AS {part.type}) AS {quoted(name)}")
    return items


def assigned(pipeline: Pipeline, source: str) -> str:
    """A bundle's records with the windows each is in: one row for a record and window.

    Columns: the keys, `at` (event time), `known`, `window_start`, `window_end`, the lifted parts, and where it came
    from. `source` is a view of the log's columns.
    """
    log, where = pipeline.log, pipeline.where
    known = f"UNIX_MICROS({quoted(log.arrival_time)})" if log.arrival_time else "CAST(NULL AS bigint)"
    records = (
        f"SELECT {listed(names(pipeline))}{', ' if pipeline.key else ''}"
        f"UNIX_MICROS({quoted(log.event_time)}) AS at, {known} AS known, {listed(lifted(pipeline))}, "
        f"_epoch, _source, _offset FROM {source}"
    )
    carried = listed(names(pipeline), ["at", "known"], [quoted(name) for name in pipeline.parts])
    carried += ", _epoch, _source, _offset"
    if isinstance(where, Global):
        return f"SELECT {carried}, {BEGINNING}L AS window_start, {END_OF_TIME}L AS window_end FROM ({records})"
    if isinstance(where, Fixed):
        size, offset = duration(where.size), duration(where.offset)
        start = f"(at - PMOD(at - {offset}L, {size}L))"
        return f"SELECT {carried}, {start} AS window_start, {start} + {size}L AS window_end FROM ({records})"
    if isinstance(where, Sessions):
        gap = duration(where.gap)
        return f"SELECT {carried}, at AS window_start, at + {gap}L AS window_end FROM ({records})"
    if isinstance(where, Sliding):
        return _slid(where, carried, records)
    raise NotImplementedError(f"no native form of {where!r}")


def _slid(where: Sliding, carried: str, records: str) -> str:
    size, every, offset = duration(where.size), duration(where.every), duration(where.offset)
    last = f"(at - PMOD(at - {offset}L, {every}L))"
    starts = ", ".join(f"{last} - {place * every}L" for place in range(-(-size // every)))
    return (
        f"SELECT {carried}, window_start, window_start + {size}L AS window_end "
        f"FROM (SELECT *, EXPLODE(ARRAY({starts})) AS window_start FROM ({records})) "
        f"WHERE window_start + {size}L > at"
    )


def partials(pipeline: Pipeline, source: str, clock: str) -> str:
    """The partials of a bundle.

    Windows that do not merge are judged by the watermark later, as groups: their lateness depends on the window alone.
    Records of windows that merge are judged here, each by its own window before any merging (rule M1).
    """
    if not pipeline.where.merges:
        return _grouped(pipeline, assigned(pipeline, source))
    expired = f"LEAST(window_end + {pipeline.lateness}L, {END_OF_TIME}L) <= c.watermark_before"
    alive = f"SELECT r.* FROM ({assigned(pipeline, source)}) r CROSS JOIN {clock} c WHERE NOT {expired}"
    return _sessions(pipeline, alive)


def aggregated(pipeline: Pipeline, rows: str) -> str:
    """The accumulator of every window of finished input, merged where windows merge: what a backfill reads.

    `rows` is a query of assigned records.
    """
    return _sessions(pipeline, rows) if pipeline.where.merges else _grouped(pipeline, rows)


def _totals(pipeline: Pipeline) -> str:
    return listed(["COUNT(*) AS arrived", "MAX(at) AS latest", "MAX(known) AS known"], merged(pipeline))


def _grouped(pipeline: Pipeline, rows: str) -> str:
    by = listed(names(pipeline), ["window_start", "window_end"])
    return f"SELECT {by}, {_totals(pipeline)} FROM ({rows}) GROUP BY {by}"


def _sessions(pipeline: Pipeline, rows: str) -> str:
    keys = names(pipeline)
    over = f"PARTITION BY {listed(keys)} ORDER BY at" if keys else "ORDER BY at"
    # Sessions have one gap, so a record starts an island just when the one before it is a gap or more away.
    spaced = f"SELECT *, IF(window_start >= LAG(window_end) OVER ({over}), 1L, 0L) AS apart FROM ({rows})"
    frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    islands = f"SELECT *, SUM(apart) OVER ({over} {frame}) AS island FROM ({spaced})"
    span = "MIN(window_start) AS window_start, MAX(window_end) AS window_end"
    return f"SELECT {listed(keys, [span])}, {_totals(pipeline)} FROM ({islands}) GROUP BY {listed(keys, ['island'])}"


def late(pipeline: Pipeline, source: str, clock: str) -> str:
    """The records of a bundle that came too late for one of their windows (rule M1).

    Columns: the keys, `at`, the window, where the record came from, the clock's columns, and the `reason`.
    """
    expired = f"LEAST(r.window_end + {pipeline.lateness}L, {END_OF_TIME}L) <= c.watermark_before"
    return _too_late(
        pipeline, "r.window_start, r.window_end", "expired", source, f"CROSS JOIN {clock} c WHERE {expired}"
    )


def refused(pipeline: Pipeline, source: str, clock: str, transitions: str) -> str:
    """The records of a bundle that came to a window whose trigger is done (rule M4); columns as in `late`."""
    alive = f"LEAST(r.window_end + {pipeline.lateness}L, {END_OF_TIME}L) > c.watermark_before"
    if pipeline.where.merges:
        inside = "r.window_start >= t.window_start AND r.window_end <= t.window_end"
    else:
        inside = "r.window_start = t.window_start AND r.window_end = t.window_end"
    on = " AND ".join([*(f"r.{name} <=> t.{name}" for name in names(pipeline)), inside])
    joined = f"CROSS JOIN {clock} c JOIN {transitions} t ON {on} WHERE t.refused AND {alive}"
    return _too_late(pipeline, "t.window_start, t.window_end", "finished", source, joined)


def _too_late(pipeline: Pipeline, span: str, reason: str, source: str, joined: str) -> str:
    items = [*(f"r.{name}" for name in names(pipeline)), "r.at", span, "r._source", "r._offset"]
    items += ["c.watermark_before", "c.epoch", "c.now", f"'{reason}' AS reason"]
    return f"SELECT {listed(items)} FROM ({assigned(pipeline, source)}) r {joined}"
