"""`any_order` finds the definitions whose answers depend on the order of their records, and shows a small order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Computation,
    Count,
    Field,
    Injected,
    Join,
    Max,
    ObservedLag,
    Sessions,
    hours,
    minutes,
)  # fmt: skip
from tailrace.testing import EpochsError, OrderError, RejectedError, any_order, fold, records_of
from tailrace.testing.orders import _Arriving, _as_late_as_allowed, _cut, _shuffled
from tests.testing.rides import HOURLY, RIDES, ride

DAY = [
    ride(time, cents)
    for time, cents in [("09:10", 1), ("09:20", 2), ("09:55", 4), ("10:05", 8), ("10:10", 16), ("12:00", 32)]
]


def test_answers_in_windows_are_the_same_in_any_order_within_the_disorder() -> None:
    early = replace(HOURLY, when=AfterWatermark(early=AfterCount(2)), how=RETRACTING)
    for definition in (HOURLY, early, replace(HOURLY, where=Sessions(minutes(15)))):
        assert any_order(definition, DAY) == fold(definition, [DAY]).answers
    assert any_order(HOURLY, []) == "city"


class LastSeen(Computation):
    """The latest amount of a city that came: it depends on the order."""

    state = {"cents": Field("bigint")}
    produces = {"before": "bigint"}

    def process_record(self, context: Any, record: Any) -> None:
        context.produce({"before": context.state.cents})
        context.state.cents = record["cents"]


def test_a_computation_that_depends_on_the_order_fails_with_two_records() -> None:
    with pytest.raises(OrderError) as told:
        any_order(LastSeen(name="last_seen", log=RIDES, key="city"), DAY)
    lines = str(told.value).splitlines()
    assert lines[0] == "the answers of last_seen depend on the order or the cut of its records (seed 0)"
    assert lines[1] == "2 of 6 records are enough, in this order:"
    assert [line[:10] for line in lines[2:4]] == ["  epoch 0:", "  epoch 1:"]
    assert "- in one epoch   + in this order" in lines


def test_a_record_that_may_be_too_late_makes_the_order_count_beyond_the_disorder() -> None:
    any_order(HOURLY, DAY)
    with pytest.raises(OrderError, match="2 of 6 records are enough"):
        any_order(HOURLY, DAY, within=hours(3))
    any_order(replace(HOURLY, allowed_lateness=hours(3), when=AfterWatermark(late=AfterCount(1))), DAY, within=hours(3))


def test_a_window_that_finishes_early_depends_on_the_order() -> None:
    done = replace(HOURLY, when=AfterCount(2), finishing="close", what={"most": Max("cents"), "rides": Count()})
    with pytest.raises(OrderError) as told:
        any_order(done, DAY)
    assert "3 of 6 records are enough" in str(told.value)


def test_the_bound_is_that_of_the_strategy() -> None:
    any_order(replace(HOURLY, log=replace(RIDES, disorder=minutes(0), watermark=Injected())), DAY[::-1])
    lag = replace(HOURLY, log=replace(RIDES, disorder=minutes(0), watermark=ObservedLag(90, at_most=minutes(15))))
    any_order(lag, DAY)
    seen = replace(lag.log, columns={**RIDES.columns, "seen": "timestamp"}, arrival_time="seen")
    behind = [one | {"seen": one["at"].replace(":00Z", ":30Z")} for one in DAY]
    any_order(replace(lag, log=seen), behind)


def test_several_logs_arrive_in_any_order_of_each() -> None:
    taxis = replace(RIDES, name="taxis")
    both = Join(name="both", left=RIDES, right=taxis, on="city", within=minutes(15), right_columns={"taxi": "cents"})
    given = {"rides": DAY, "taxis": DAY[::2]}
    assert any_order(both, given) == fold(both, [given]).answers
    with pytest.raises(EpochsError, match="records of cabs: expected records of rides, taxis"):
        any_order(both, {"cabs": DAY})
    with pytest.raises(EpochsError, match=r"write \{log name"):
        any_order(both, DAY)


def test_a_rejected_record_is_an_error() -> None:
    with pytest.raises(RejectedError, match="at = 7 is not a timestamp"):
        any_order(HOURLY, [{"at": 7}])


@settings(max_examples=10)
@given(records_of(RIDES, max_size=8))
def test_random_records_may_come_in_any_order(records: list[dict[str, Any]]) -> None:
    any_order(HOURLY, records)


LATER = st.tuples(st.integers(0, 100), st.integers(0, 40))


@given(st.lists(LATER, min_size=1, max_size=12), st.sampled_from([0, 5, 30, None]), st.randoms())
def test_no_order_that_is_tried_makes_a_record_late(times: Any, bound: int | None, chance: Any) -> None:
    records = [_Arriving("rides", {}, {}, at, at + lag % (1 + (bound or 0))) for at, lag in sorted(times)]
    for order in (list(_as_late_as_allowed(records, {"rides": bound})), _shuffled(records, {"rides": bound}, chance)):
        assert sorted(map(repr, order)) == sorted(map(repr, records))
        assert [one for epoch in _cut(order, chance) for one in epoch] == order
        reached = 0
        for one in order:
            assert bound is None or reached - one.at <= bound
            reached = max(reached, one.reach)
    if bound is None:
        latest_first = _as_late_as_allowed(records, {"rides": bound})
        assert [one.at for one in latest_first] == [one.at for one in records[::-1]]
