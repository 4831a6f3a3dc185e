"""The paper's ten points and the definitions of its figures 6 to 14 (Dataflow Model, 2.4).

All records have the same key. The day is 2015-01-01, and times are given as minutes and seconds after 12:00.
`element_at_a_time` returns a separate epoch for each record, for each advance of the watermark, and for each end of a
period of processing time. So no two records are in the same epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, hours, instant, minutes
from tailrace.model.combiners.basic import Sum
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.step.step import Record
from tailrace.model.triggers.combinators import AfterWatermark, Repeat
from tailrace.model.triggers.trigger import AfterCount, Every, Trigger
from tailrace.model.windows.panes import ACCUMULATING, DISCARDING, RETRACTING, Accumulation
from tailrace.model.windows.windows import Fixed, Global, Sessions, Windowing

__all__ = [
    "NOON",
    "POINTS",
    "SCORES",
    "TICKS",
    "WATERMARK",
    "at",
    "element_at_a_time",
    "figure",
    "instant",
    "micro_batches",
    "records",
]

NOON = datetime(2015, 1, 1, 12, tzinfo=UTC)
"""The moment from which the times of the figures are counted."""

POINTS = (
    (5, "00:30", "05:20"),
    (7, "02:05", "05:40"),
    (3, "03:30", "06:10"),
    (4, "03:50", "06:30"),
    (3, "04:20", "06:50"),
    (8, "02:55", "07:10"),
    (3, "06:40", "07:40"),
    (9, "01:15", "08:20"),
    (8, "07:25", "08:40"),
    (1, "07:45", "08:55"),
)
"""The value, the event time and the arrival time of each of the ten records."""

WATERMARK = (("06:05", "02:00"), ("07:30", "04:00"), ("07:50", "06:00"), ("09:10", "08:00"))
"""The observed advances of the watermark: pairs of a processing time and the watermark that was reached at that
time.
"""

TICKS = ("05:00", "06:00", "07:00", "08:00", "09:00")
"""The times at which one-minute periods of processing time end."""

SCORES = Log(
    name="scores",
    columns={"team": "string", "value": "bigint", "at": "timestamp", "seen": "timestamp"},
    event_time="at",
    arrival_time="seen",
)
"""The log of the ten records."""


def at(clock: str) -> datetime:
    """Return the instant that is `clock` (minutes and seconds) after noon.

    >>> at("02:05").isoformat()
    '2015-01-01T12:02:05+00:00'
    """
    whole, part = clock.split(":")
    return NOON + timedelta(minutes=int(whole), seconds=int(part))


def records() -> list[Record]:
    """Return the ten records, in the order in which they arrive."""
    return [{"team": "a", "value": v, "at": at(when), "seen": at(seen)} for v, when, seen in POINTS]


def element_at_a_time(*, ends: bool = True) -> list[tuple[Sequence[Record], Clock]]:
    """Return a separate epoch for each record, each tick of the processing time, and each advance of the watermark.

    If `ends` is True, there is one more epoch, which moves the watermark to the end of time.
    """
    events: list[tuple[datetime, list[Record], datetime | None]] = [
        *((at(tick), [], None) for tick in TICKS),
        *((at(seen), [], at(advance)) for seen, advance in WATERMARK),
        *((record["seen"], [record], None) for record in records()),
    ]
    watermark, epochs = BEGINNING, list[tuple[Sequence[Record], Clock]]()
    for number, (seen, bundle, advance) in enumerate(sorted(events, key=lambda event: event[0])):
        watermark = max(watermark, instant(advance)) if advance else watermark
        epochs.append((bundle, Clock(number, watermark, instant(seen))))
    if ends:
        epochs.append(([], Clock(len(epochs), END_OF_TIME, instant(at("09:20")))))
    return epochs


def micro_batches() -> list[tuple[Sequence[Record], Clock]]:
    """Return one epoch for each minute of processing time (figures 8 and 11).

    Each epoch contains the records that arrived in one minute.
    """
    epochs: list[tuple[Sequence[Record], Clock]] = []
    for number, tick in enumerate(TICKS):
        now = at(tick)
        bundle = [r for r in records() if now - minutes(1) < r["seen"] <= now]
        reached = [instant(at(event)) for seen, event in WATERMARK if at(seen) <= now]
        epochs.append((bundle, Clock(number, max(reached, default=BEGINNING), instant(now))))
    return epochs


def figure(number: int) -> Pipeline:
    """Build the definition of one of the paper's figures 6 to 14; figures 6 and 10 are batch pipelines.

    Raises `KeyError` if `number` is not the number of one of these figures.
    """
    minute, two = minutes(1), minutes(2)
    late = AfterCount(1)
    questions: dict[int, tuple[Windowing, Trigger, Accumulation]] = {
        6: (Global(), AfterWatermark(), ACCUMULATING),
        7: (Global(), Every(minute), ACCUMULATING),
        8: (Global(), Every(minute), DISCARDING),
        9: (Global(), Repeat(AfterCount(2)), DISCARDING),
        10: (Fixed(two), AfterWatermark(), ACCUMULATING),
        11: (Fixed(two), Every(minute), ACCUMULATING),
        12: (Fixed(two), AfterWatermark(late=late), ACCUMULATING),
        13: (Fixed(two), AfterWatermark(early=Every(minute), late=late), ACCUMULATING),
        14: (Sessions(minute), AfterWatermark(early=Every(minute), late=late), RETRACTING),
    }
    where, when, how = questions[number]
    return Pipeline(
        name=f"figure_{number}",
        log=SCORES,
        key=("team",),
        what={"total": Sum("value")},
        where=where,
        when=when,
        how=how,
        allowed_lateness=hours(1) if number in (11, 12, 13, 14) else None,
    )
