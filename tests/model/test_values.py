"""Clocks, versions, exact numbers and the state: the parts of the model that a transcript does not show."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tailrace.model
from tailrace.model.base.algebra import Scalars
from tailrace.model.base.clock import Clock
from tailrace.model.base.conditions import Match, Missing, condition_faults
from tailrace.model.base.errors import ClockError
from tailrace.model.base.expressions import Col, If, Value
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, minutes, moment, seconds, text
from tailrace.model.base.values import fitted_number
from tailrace.model.combiners.basic import Count, Max, Mean, Min, Sum
from tailrace.model.combiners.sketches import ApproxDistinct
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive
from tailrace.model.logs.log import Log
from tailrace.model.step.reference import at_once, fold
from tailrace.model.step.step import WindowsState, step
from tailrace.model.triggers.combinators import AfterWatermark, Repeat
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.panes import Pane, Timing, Version, answers
from tailrace.model.windows.windows import Fixed, Global, Sessions, Sliding, Window, Windowing
from tests.support.checks.batch_answers import backfilled, batch
from tests.support.engines.engine_runs import OnDuck
from tests.support.engines.spark_runs import said_by_reference

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
SALES = Log(
    name="sales",
    columns={
        "shop": "string",
        "price": "decimal(10,2)",
        "wide": "decimal(38,10)",
        "n": "bigint",
        "far": "double",
        "at": "timestamp",
    },
    event_time="at",
)


def pipeline(**changed: Any) -> Pipeline:
    usual: dict[str, Any] = {"name": "p", "log": SALES, "what": {"n": Sum("n")}, "where": Fixed(minutes(1))}
    return Pipeline(**(usual | changed))


def sale(second: float, **values: Any) -> dict[str, Any]:
    return {"shop": "a", "at": NOON + timedelta(seconds=second), **values}


# Time


def test_T1_an_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2024-01-01T12:00:00 has no time zone: write it with one"):
        instant(NOON.replace(tzinfo=None))


def test_T1_an_instant_is_the_same_in_every_zone() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert instant(there) == instant(NOON)
    assert moment(instant(there)) == NOON


def test_T1_a_windows_timestamp_is_its_last_microsecond() -> None:
    (window,) = Fixed(minutes(1)).assign(instant(NOON))
    assert moment(window.timestamp) == NOON + timedelta(minutes=1) - timedelta(microseconds=1)
    assert str(window) == "[2024-01-01T12:00:00Z, 2024-01-01T12:01:00Z)"


def test_T1_windows_before_1970_are_aligned_too() -> None:
    assert Fixed(seconds(10)).assign(-1) == [Window(-10_000_000, 0)]
    assert Fixed(seconds(10), offset=seconds(3)).assign(-8_000_000) == [Window(-17_000_000, -7_000_000)]


def test_T1_every_instant_lies_between_the_ends_of_time() -> None:
    assert instant(datetime(1, 1, 1, tzinfo=UTC)) == BEGINNING
    assert instant(datetime.max.replace(tzinfo=UTC)) == END_OF_TIME
    assert (text(BEGINNING), text(END_OF_TIME)) == ("beginning", "end of time")


def test_T2_the_model_reads_no_clock_and_imports_the_standard_library_alone() -> None:
    clocks = {"now", "utcnow", "today", "monotonic", "perf_counter", "time_ns", "getenv", "environ"}
    for path in Path(tailrace.model.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                # A clock's `now` that comes in as data is what the rule asks for.
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                assert not (owner in {"datetime", "date", "time", "os"} and node.attr in clocks), (path.name, node.attr)
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                root = name.partition(".")[0]
                assert name.startswith("tailrace.model") or root in sys.stdlib_module_names, (path.name, name)
                assert root not in {"time", "random", "os", "locale", "uuid"}, (path.name, name)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (Clock(2, 4_000_000, 9_000_000), "the watermark went from 1970-01-01T00:00:05Z to 1970-01-01T00:00:04Z"),
        (Clock(2, 5_000_000, 8_000_000), "the processing_time went from 1970-01-01T00:00:09Z to 1970-01-01T00:00:08Z"),
        (Clock(1, 5_000_000, 9_000_000), "the epoch went from 1 to 1"),
        (Clock(0, 9_000_000, 9_000_000), "the epoch went from 1 to 0"),
    ],
)
def test_T3_a_clock_never_goes_back(after: Clock, message: str) -> None:
    before = Clock(1, 5_000_000, 9_000_000)
    with pytest.raises(ClockError) as refused:
        step(pipeline(), WindowsState(clock=before), [], after)
    assert str(refused.value) == f"{message}: a clock never goes back"


def test_T3_a_clock_may_stand_still() -> None:
    clock = Clock(2, 5, 9)
    assert clock.after(Clock(1, 5, 9)) is clock
    assert clock.after(None) is clock


# Versions


def _pane(values: int, version: Version, *, retraction: bool = False) -> Pane:
    answer = {"n": values}
    return Pane((), Window(0, 1), answer, answer, Timing.EARLY, retraction, version, 0, 0)


def test_V1_a_generation_goes_before_an_epoch_and_an_epoch_before_an_index() -> None:
    assert Version(1, 0, 0) > Version(0, 9, 9)
    assert Version(1, 2, 0) > Version(1, 1, 9)
    assert Version(1, 2, 1) > Version(1, 2, 0)
    panes = [_pane(1, Version(0, 9, 9)), _pane(2, Version(1, 0, 0)), _pane(3, Version(0, 10, 0))]
    for order in (panes, panes[::-1]):
        assert answers(order) == {((), Window(0, 1)): {"n": 2}}


def test_V1_of_a_retraction_and_a_pane_of_one_version_the_pane_stands() -> None:
    back, again = _pane(1, Version(0, 1, 1), retraction=True), _pane(2, Version(0, 1, 1))
    assert answers([back, again]) == answers([again, back]) == {((), Window(0, 1)): {"n": 2}}


def test_V3_a_window_that_was_taken_back_has_no_answer() -> None:
    assert answers([_pane(1, Version(0, 1, 0)), _pane(1, Version(0, 2, 1), retraction=True)]) == {}


def test_V2_the_stream_goes_on_in_the_generation_of_a_state_it_was_handed() -> None:
    definition = pipeline(when=Repeat(AfterCount(1)))
    first = fold(definition, [([sale(1, n=1)], Clock(0, BEGINNING, 0))])
    handed = replace(first.state, generation=7)
    bundle = [sale(2, n=2), sale(70, n=4)]
    rest = fold(definition, [(bundle, Clock(1, BEGINNING, 0))], handed)
    assert [pane.version for pane in rest.panes] == [Version(0, 1, 1), Version(7, 1, 0)]
    assert rest.state.generation == 7


def test_V2_a_merged_session_takes_the_higher_generation() -> None:
    definition = pipeline(where=Sessions(seconds(10)), when=Repeat(AfterCount(1)))
    first = fold(definition, [([sale(1, n=1)], Clock(0, BEGINNING, 0))])
    rest = fold(definition, [([sale(5, n=2)], Clock(1, BEGINNING, 0))], replace(first.state, generation=7))
    assert [(pane.retraction, pane.version) for pane in rest.panes] == [
        (True, Version(0, 1, 1)),
        (False, Version(7, 1, 0)),
    ]


def test_V2_a_merged_session_does_not_fall_back_below_the_generation_of_its_parts() -> None:
    definition = pipeline(where=Sessions(seconds(10)), when=Repeat(AfterCount(1)))
    first = fold(definition, [([sale(1, n=1)], Clock(0, BEGINNING, 0))], WindowsState(generation=7))
    rest = fold(definition, [([sale(5, n=2)], Clock(1, BEGINNING, 0))], replace(first.state, generation=3))
    assert [pane.version for pane in rest.panes] == [Version(7, 1, 1), Version(7, 1, 0)]


# Exact numbers


def test_L1_decimals_add_up_exactly_in_any_order() -> None:
    prices = [Decimal("0.10"), Decimal("99999999.99"), Decimal("-0.30"), Decimal("0.20")] * 50
    definition = pipeline(what={"paid": Sum("price"), "mean": Mean("price")})
    forth, back = (at_once(definition, [sale(1, price=p) for p in order]) for order in (prices, prices[::-1]))
    expected = {"paid": Decimal("4999999999.50"), "mean": 24999999.9975}
    assert [dict(p.values) for p in forth.panes] == [dict(p.values) for p in back.panes] == [expected]


def test_L1_a_total_of_38_digits_is_not_rounded() -> None:
    one = Decimal("1234567890123456789012345678.0000000001")
    (pane,) = at_once(pipeline(what={"wide": Sum("wide")}), [sale(1, wide=one), sale(2, wide=one)]).panes
    assert pane.values["wide"] == Decimal("2469135780246913578024691356.0000000002")


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("n", 2**62, "total: 9223372036854775808 is out of bigint: declare n decimal(19,0)"),
        ("wide", Decimal(6 * 10**27), "total: a total of more than 38 digits is out of decimal(38,10)"),
    ],
)
def test_X7_a_total_that_does_not_fit_is_null_with_why_and_not_rounded(column: str, value: Any, why: str) -> None:
    records = [sale(1, **{column: value}), sale(2, **{column: value})]
    (pane,) = at_once(pipeline(what={"total": Sum(column), "records": Count()}), records).panes
    assert pane.values == {"total": None, "records": 2, "unanswered": why}


def test_not_a_number_sorts_after_every_number_as_in_spark() -> None:
    nan = float("nan")
    definition = pipeline(what={"near": Min("far"), "far": Max("far")})
    for order in ([nan, 1.0, 2.0], [2.0, 1.0, nan], [1.0, nan, 2.0]):
        (pane,) = at_once(definition, [sale(1, far=far) for far in order]).panes
        assert pane.values["near"] == 1.0
        assert pane.values["far"] != pane.values["far"]


def test_the_algebra_agrees_with_spark_on_nothing_at_all() -> None:
    o = Scalars()
    assert o.least(None, None) is None
    assert (o.least(None, 1), o.least(1, None), o.greatest(None, 1), o.greatest(1, None)) == (1, 1, 1, 1)
    assert o.every()
    assert not o.some()
    assert o.periods(-1, 10, 0) == -1


# The state and the whole


def test_L3_a_step_does_not_change_the_state_it_is_given() -> None:
    definition = pipeline(where=Sessions(seconds(10)), when=Repeat(AfterCount(1)))
    first = fold(definition, [([sale(0, n=1), sale(15, n=2)], Clock(0, BEGINNING, 0))]).state
    windows = {key: {window: dict(row) for window, row in own.items()} for key, own in first.windows.items()}
    fold(definition, [([sale(7, n=4)], Clock(1, END_OF_TIME, 0))], first)
    assert first.windows == windows


def test_M1_a_closed_window_leaves_the_state_and_a_session_once_no_record_can_reach_it() -> None:
    def left(where: Any, watermark: float) -> int:
        clock = Clock(0, instant(NOON + timedelta(seconds=watermark)), 0)
        definition = pipeline(where=where, when=AfterWatermark(late=AfterCount(1)), allowed_lateness=seconds(5))
        return len(fold(definition, [([sale(0, n=1)], clock)]).state.windows)

    assert (left(Fixed(seconds(10)), 14.999_999), left(Fixed(seconds(10)), 15)) == (1, 0)
    # Closed at 15, but a record at 9.9 still has a window of its own until 24.9, and would take this one over.
    assert (left(Sessions(seconds(10)), 24.999_999), left(Sessions(seconds(10)), 25)) == (1, 0)


def test_M1_how_far_behind_a_late_record_was_is_told() -> None:
    clock = Clock(0, instant(NOON + timedelta(seconds=90)), 0)
    run = fold(pipeline(), [([], clock), ([sale(30, n=1)], replace(clock, epoch=1))])
    (late,) = run.late
    assert (late.behind, late.reason, late.epoch, late.record["n"]) == (30_000_000, "expired", 1, 1)


def test_X6_equal_records_count_one_by_one() -> None:
    record = sale(1, n=2)
    (pane,) = at_once(pipeline(what={"n": Count(), "sum": Sum("n")}), [dict(record), dict(record)]).panes
    assert dict(pane.values) == {"n": 2, "sum": 4}


def test_V5_a_window_belongs_to_the_interval_of_its_timestamp() -> None:
    definition = pipeline(where=Sessions(seconds(10)))
    records = [sale(0, n=1), sale(8, n=2), sale(30, n=4)]
    cut = instant(NOON + timedelta(seconds=18))
    # The first session ends at 18: its timestamp is a microsecond before, so it is of the interval before the cut.
    before = backfilled(definition, records, instant(NOON), cut)
    after = backfilled(definition, records, cut, END_OF_TIME)
    assert [dict(values) for values in before.values()] == [{"n": 3}]
    assert [dict(values) for values in after.values()] == [{"n": 4}]
    assert before | after == batch(definition, records)


def test_V5_the_global_window_is_of_the_last_interval() -> None:
    definition = pipeline(where=Global())
    assert backfilled(definition, [sale(0, n=1)], BEGINNING, END_OF_TIME) == batch(definition, [sale(0, n=1)])


def test_L1_a_backfill_mends_what_was_late() -> None:
    definition = pipeline()
    clock = Clock(0, instant(NOON + timedelta(seconds=60)), 0)
    records = [sale(1, n=1), sale(2, n=2)]
    run = fold(definition, [(records[:1], clock), (records[1:], replace(clock, epoch=1))])
    place = ((), Window(instant(NOON), instant(NOON) + 60_000_000))
    assert answers(run.panes) == batch(definition, records, run.late) == {place: {"n": 1}}
    assert backfilled(definition, records, BEGINNING, END_OF_TIME) == {place: {"n": 3}}


def test_L1_a_record_without_a_column_is_one_with_no_value_in_it_in_steps_and_conditions_too() -> None:
    counted = pipeline(
        each=Derive({"one": If(Match("shop", "==", "b") | Missing("n"), Value(1), Col("n"))}),
        keep=~Match("shop", "==", "b"),
        what={"ones": Sum("one"), "records": Count()},
    )
    bare, whole = {"at": NOON}, dict.fromkeys(SALES.columns) | {"at": NOON}
    found, expected = ([pane.values for pane in at_once(counted, [one]).panes] for one in (bare, whole))
    assert found == expected == [{"ones": 1, "records": 1}]


def test_sums_of_decimals_have_room_for_the_places_of_both() -> None:
    types = {"wide": "decimal(10,2)", "fine": "decimal(5,4)", "whole": "bigint"}
    wide, fine = Col("wide"), Col("fine")
    assert [(wide + fine).type(types), (fine - wide).type(types)] == ["decimal(13,4)", "decimal(13,4)"]
    assert (fine + fine).type(types) == "decimal(6,4)"
    assert (wide * fine).type(types) == "decimal(16,6)"


def test_what_a_log_and_a_sketch_take_where_nothing_is_said() -> None:
    assert (SALES.earliest, SALES.latest) == (datetime(1900, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC))
    assert (SALES.remembered, ApproxDistinct("x").size) == (timedelta(days=1), 1024)


def test_a_sketch_of_sixteen_values_is_the_smallest() -> None:
    assert [len(list(ApproxDistinct("x", size).faults("what", "bigint"))) for size in (15, 16)] == [1, 0]


def test_an_extreme_is_kept_as_its_columns_type() -> None:
    for combiner in (Min("n"), Max("n")):
        assert [[part.type for part in combiner.parts(type)] for type in ("bigint", None)] == [["bigint"], ["string"]]


def test_a_choice_of_constants_is_one_of_values() -> None:
    met = Match("price", ">", 3)
    assert If(met, 1, 2) == If(met, Value(1), Value(2))
    assert If(met, 1) == If(met, Value(1))


@pytest.mark.parametrize("value", ["3", float("nan"), 0.5, None, True, 10**18, Decimal("0.5"), Decimal("NaN")])
def test_a_value_that_a_column_cannot_have_is_no_condition(value: Any) -> None:
    assert [fault.path for fault in condition_faults("keep", Match("n", "==", value), {"n": "bigint"})] == [
        "keep.value"
    ]


@pytest.mark.parametrize(("type", "least", "most"), [("int", -(2**31), 2**31 - 1), ("bigint", -(2**63), 2**63 - 1)])
def test_a_whole_number_fits_a_type_up_to_its_bounds(type: str, least: int, most: int) -> None:
    for fits in (least, most):
        assert fitted_number(fits, type) == fitted_number(str(fits), type) == fits
    for beyond in (least - 1, most + 1):
        for given in (beyond, str(beyond)):
            with pytest.raises(ValueError, match=r"^$"):
                fitted_number(given, type)


AGES = Log(
    name="ages",
    columns={"at": "timestamp", "n": "bigint"},
    event_time="at",
    earliest=datetime(1, 1, 1, tzinfo=UTC),
    latest=datetime.max.replace(tzinfo=UTC),
)
"""A log of all times that there are."""

LAST, FIRST = datetime(9999, 12, 31, 23, 30, tzinfo=UTC), datetime(1, 1, 1, 0, 30, tzinfo=UTC)
WHERES = [
    Fixed(timedelta(days=7)), Fixed(timedelta(days=10**6)), Sliding(timedelta(days=2), every=timedelta(days=1)),
    Sessions(timedelta(days=400)), Calendar("week"), Calendar("year", zone="Pacific/Auckland"),
    Calendar("day", zone="America/Los_Angeles"), Calendar("quarter", zone="Europe/Berlin"), Global(),
]  # fmt: skip


@pytest.mark.parametrize("where", WHERES, ids=repr)
@pytest.mark.parametrize("at", [FIRST, LAST], ids=["year 1", "year 9999"])
def test_T1_a_window_is_cut_at_the_ends_of_time(where: Windowing, at: datetime) -> None:
    ages = Pipeline(name="ages_counted", log=AGES, what={"n": Sum("n")}, where=where)
    records = [{"at": at, "n": 1, "_epoch": 0, "_source": "f", "_offset": 0}]
    run = fold(ages, [(records, Clock(0, BEGINNING, 0)), ([], Clock(1, END_OF_TIME, 1))])
    assert run.panes
    assert {pane.timing for pane in run.panes} == {Timing.ON_TIME}
    for window in (pane.window for pane in run.panes):
        # Shown as instants, and the record is in each.
        assert moment(window.start) <= at < moment(window.end)
        assert BEGINNING <= window.start < window.end <= END_OF_TIME
    assert OnDuck().said(ages, [(records, Clock(0, BEGINNING, 0)), ([], Clock(1, END_OF_TIME, 1))]) == [
        said_by_reference(ages, run.panes, run.late)
    ]


def test_T1_where_no_window_reaches_an_end_of_time_none_is_cut() -> None:
    assert not pipeline().exceeds_time
    assert Pipeline(name="all", log=AGES, what={"n": Sum("n")}, where=Fixed(minutes(1))).exceeds_time
