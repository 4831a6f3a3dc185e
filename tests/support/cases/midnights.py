"""Instants around midnights in zones whose clocks do something odd there, and definitions with days of their own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tailrace.model.base.time import instant
from tailrace.model.samples import examples
from tailrace.model.windows.calendars import UNITS, Calendar
from tailrace.model.windows.windows import Window
from tailrace.sql.records.assignment import window_rows
from tailrace.sql.terms import Relation

ZONES = ("UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "Pacific/Apia", "Asia/Beirut", "Asia/Gaza")

Rows = Iterable[tuple[str, int, int]]
"""Which instant, by its place as text, and the start and end of its window."""


def midnights() -> list[int]:
    """The instants, in microseconds."""
    chance = random.Random(7)
    # Around midnights, for there it may go wrong; Apia's 30 December 2011 never was.
    times = [chance.randrange(0, 2 * 10**15) for _ in range(400)]
    times += [at - at % 3_600_000_000 + by for at in times for by in (-1, 0)]
    return times + [instant(datetime(2011, 12, day, 10, tzinfo=UTC)) + by for day in (29, 30, 31) for by in (-1, 0)]


def calendars_agree(times: Sequence[int], table: str, query: Callable[[str], Rows]) -> None:
    """Have `query` answer for the windows of `times`, the column `at` of `table` with its place as `id`.

    Raises `AssertionError` where a window is not the model's.
    """
    log = replace(examples.SCORES, arrival_time=None)
    source = Relation(
        "(SELECT at, CAST(id AS string) AS team, 0L AS value, at AS seen, 0L AS _epoch, '' AS _source, id AS _offset "
        f"FROM {table})"
    )
    for zone in ZONES:
        for unit in UNITS:
            where = Calendar(unit, zone)
            pipeline = replace(examples.figure(10), log=log, where=where)
            rows = query(f"SELECT team, window_start, window_end FROM ({window_rows(pipeline, source)})")
            found = {times[int(team)]: Window(start, end) for team, start, end in rows}
            wrong = {at: (found[at], where.assign(at)) for at in times if [found[at]] != where.assign(at)}
            assert not wrong, f"{zone}, {unit}: {len(wrong)} of {len(times)}, {next(iter(wrong.items()))}"
