"""A few definitions that have every kind of part between them, for what is dear to run: real Spark, epoch by epoch.

`tests/project/test_few.py` holds them to that. The transcripts, a claim each, run on the model and on DuckDB at each
change, and all of them on Spark in `make test-deep`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

from tailrace.model.base.clock import Clock
from tailrace.model.base.conditions import Both, Either, Match, Missing, Not
from tailrace.model.base.expressions import Col, If, Value
from tailrace.model.base.time import END_OF_TIME, instant, moment, seconds
from tailrace.model.combiners.basic import AnyValue, Combiner, Count, Max, Mean, Min, Sum
from tailrace.model.combiners.first_last import First, Last
from tailrace.model.combiners.lists import Collect, Distinct, Quantile, TopK
from tailrace.model.combiners.sketches import ApproxDistinct, ApproxQuantile
from tailrace.model.combiners.variance import Variance
from tailrace.model.definition.packed_columns import Unpack
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive, Each
from tailrace.model.triggers.combinators import AfterWatermark, AllOf, AnyOf, Repeat, Sequence, Until
from tailrace.model.triggers.punctuation import AfterBytes, AfterMatch, AfterPattern
from tailrace.model.triggers.trigger import (
    AfterCount,
    AfterDelay,
    AfterSignal,
    AtPercentile,
    AtWatermark,
    Every,
    Never,
)
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.panes import ACCUMULATING, DISCARDING, EARLIEST, LATEST, RETRACTING
from tailrace.model.windows.windows import Fixed, Global, Sessions, Sliding
from tests.support.cases.stages import SIDES, gathering
from tests.support.cases.strategies import BASE, EVERYTHING, LOG, Epochs, Told
from tests.transcripts.own import Doubling, Product

_PLAIN: dict[str, Combiner] = {"records": Count(), "total": Sum("value")}
_THIRDS = [{name: EVERYTHING[name] for name in sorted(EVERYTHING)[place::3]} for place in range(3)]
"""All combiners in three definitions: of all in one, Spark takes many times as long to plan an epoch."""

_CLICKS = replace(LOG, disorder=seconds(2))


def _lanes(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"half": record["value"] // 2}] * (record["lane"] or 0)


_OF_TRIPS = Pipeline(name="of_trips", log=_CLICKS, key="place", what=_PLAIN, where=Fixed(seconds(5)))

FEW: dict[str, Pipeline] = {
    "sessions_retracting": replace(
        _OF_TRIPS,
        what=_THIRDS[0],
        where=Sessions(seconds(2)),
        when=AfterWatermark(early=AfterDelay(seconds(20)), late=AfterCount(2)),
        how=RETRACTING,
        allowed_lateness=seconds(8),
    ),
    "sliding_windows_discarding": replace(
        _OF_TRIPS,
        what=_THIRDS[0],
        where=Sliding(seconds(6), every=seconds(2)),
        when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
        how=DISCARDING,
        allowed_lateness=seconds(3),
    ),
    "fixed_windows_with_a_phase_accumulating": replace(
        _OF_TRIPS,
        what=_THIRDS[1],
        key=("place", "lane"),
        where=Fixed(seconds(4), seconds(1), phase="lane"),
        when=AfterWatermark(
            early=Repeat(AnyOf(Every(seconds(60), seconds(7)), AfterBytes(3, "label"))), late=AfterCount(1)
        ),
        how=ACCUMULATING,
        allowed_lateness=seconds(3),
        closing="always",
    ),
    "days_of_some_records": replace(
        _OF_TRIPS,
        key=(),
        each=(
            Derive(
                {
                    "capped": If(Match("value", ">", 3), Value(3), Col("value")),
                    "twice": Col("value") * 2,
                    "large": Col("value") * 2**60,
                }
            ),
        ),
        what={"capped": Sum("capped"), "twice": Max("twice"), **_PLAIN},
        keep=Either(Both(Match("good", "==", True), Not(Missing("price"))), Match("label", "<", "y")),
        where=Calendar("day", "Asia/Tokyo"),
        when=Repeat(AllOf(AfterCount(2), AfterDelay(seconds(1)))),
        how=DISCARDING,
        on_time="if_non_empty",
    ),
    "months_retracting": replace(
        _OF_TRIPS,
        what=_THIRDS[2],
        where=Calendar("month"),
        when=Sequence(AfterCount(3), AtWatermark(), Repeat(AfterMatch(Match("value", ">=", 4)))),
        how=RETRACTING,
        allowed_lateness=seconds(3),
    ),
    "all_time_accumulating": replace(
        _OF_TRIPS,
        where=Global(),
        when=AnyOf(Never(), Repeat(AnyOf(AfterSignal("go"), AfterCount(4)))),
        how=ACCUMULATING,
    ),
    "sessions_that_close_discarding": replace(
        _OF_TRIPS,
        what=_THIRDS[1],
        where=Sessions(seconds(3)),
        when=Until(Repeat(AfterPattern(Match("value", ">", 0), Match("good", "==", True))), stop=AfterCount(5)),
        how=DISCARDING,
        allowed_lateness=seconds(2),
        finishing="close",
    ),
    "sessions_of_several_a_record": replace(
        _OF_TRIPS,
        each=(Each(_lanes, {"half": "bigint"}),),
        what={"halves": Sum("half"), **_THIRDS[2]},
        where=Sessions(seconds(1)),
        when=AfterWatermark(early=AtPercentile(50), late=AfterCount(1)),
        how=ACCUMULATING,
        allowed_lateness=seconds(1),
    ),
    "sliding_windows_with_gaps": replace(
        _OF_TRIPS,
        where=Sliding(seconds(2), every=seconds(3)),
        when=Doubling(),
        how=RETRACTING,
        closing="always",
    ),
    "windows_that_code_tells": replace(
        _OF_TRIPS,
        keep=Match("price", "!=", Decimal("1.50")),
        where=Told(Sliding(seconds(4), every=seconds(2))),
        when=AfterWatermark(late=AfterCount(1)),
        how=RETRACTING,
        allowed_lateness=seconds(3),
    ),
}

_SESSIONS = replace(
    _OF_TRIPS,
    name="first",
    what={
        "n": Count(),
        "total": Sum("value"),
        "paid": Sum("price"),
        "best": Max("value"),
        "worst": Min("value"),
        "label": Last("label"),
    },
    where=Sessions(seconds(2)),
    when=AfterWatermark(early=AfterCount(3), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=seconds(8),
)
_in_fives = partial(
    Pipeline, name="second", where=Fixed(seconds(5)), when=AfterWatermark(late=AfterCount(1)), how=RETRACTING
)
"""Make a second stage that takes its records in windows of five seconds."""

_BILLS = _in_fives(
    log=_SESSIONS.panes,
    each=(
        Derive(
            {"charge": If(Match("n", ">=", 3), Value(10), Value(0)), "length": Col("window_end") - Col("window_start")}
        ),
    ),
    keep=Match("n", ">=", 2),
    key="place",
    what={
        "visits": Count(),
        "charged": Sum("charge"),
        "least": Min("paid"),
        "first_total": First("total"),
        "middle": Quantile("best", 0.5),
        "mean": Mean("total"),
        "spread": Variance("n"),
    },
)
_FIXED = replace(
    _SESSIONS, where=Fixed(seconds(3)), when=AtWatermark(), allowed_lateness=seconds(0), timestamp=EARLIEST
)
_LATEST = replace(_SESSIONS, timestamp=LATEST)
_SIDES = replace(_SESSIONS, key="place", each=tuple(SIDES.values()), what=gathering())
_PAIRS = (Unpack("lefts", outer=True), Unpack("rights", outer=True))

FEW_OF_STAGES: dict[str, Pipeline] = {
    "bills_of_sessions_that_grow": _BILLS,
    "sums_of_counts_of_sessions_that_grow": Pipeline(
        name="third",
        log=_in_fives(
            log=_SESSIONS.panes,
            key="place",
            what={
                "visits": Count(),
                "charged": Sum("n"),
                "last_label": Last("label"),
                "top": TopK("total", 2),
                "all": Collect("n"),
            },
        ).panes,
        what={"bills": Count(), "charged": Sum("charged"), "visits": Sum("visits")},
        where=Global(),
        when=Repeat(AfterCount(1)),
        how=ACCUMULATING,
    ),
    "panes_at_their_earliest_record_in_sliding_windows": Pipeline(
        name="second",
        log=_FIXED.panes,
        key="place",
        what={"n": Sum("n"), "some": AnyValue("label"), "most": Max("total"), "kinds": Distinct("label")},
        where=Sliding(seconds(4), every=seconds(2)),
        when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
        how=ACCUMULATING,
    ),
    "panes_at_their_latest_record_combined_by_code": _in_fives(
        log=_LATEST.panes,
        key="place",
        what={"product": Product("n"), "ways": ApproxDistinct("label"), "middle": ApproxQuantile("total", 0.5)},
    ),
    "pairs_of_two_sides": _in_fives(
        log=_SIDES.panes,
        each=(*_PAIRS, Derive({"both": If(Missing("left_id"), Value(0), Value(1))})),
        what={"pairs": Count(), "both": Sum("both"), "value": Sum("right_value")},
    ),
}


def few_epochs(seed: int = 12, bundles: int = 3) -> Epochs:
    """Epochs for any of them: records in and out of order, some too late, a signal, and the end of time."""
    chance, made = random.Random(seed), list[tuple[list[dict[str, Any]], Clock]]()
    front = now = instant(BASE)
    for epoch in range(bundles):
        records = [_record(chance, 10 * epoch + place, front) for place in range(9)]
        made.append((records, Clock(epoch, front + 1_000_000, now, ("go",) if epoch == 1 else ())))
        front += chance.choice([2, 4, 5]) * 1_000_000
        now += chance.choice([13, 60]) * 1_000_000
    return [*made, ([], Clock(bundles, END_OF_TIME, now))]


def _record(chance: random.Random, number: int, front: int) -> dict[str, Any]:
    return {
        "id": number,
        "place": chance.choice(["a", "a", "a", "b", None]),
        "lane": chance.choice([1, 1, 2, None]),
        "value": chance.choice([*range(-3, 9), None]),
        "price": chance.choice([None, *(Decimal(cents).scaleb(-2) for cents in (-300, 150, 275, 900))]),
        "label": chance.choice(["x", "y", "Z", "é", "", None]),
        "good": chance.choice([True, True, False, None]),
        "at": moment(front + chance.randrange(-6, 6) * 1_000_000 + chance.choice([0, 0, 0, -1, 1])),
    }
