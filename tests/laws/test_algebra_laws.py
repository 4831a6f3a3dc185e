"""The laws that docstrings of the model state, each on random input: windows, triggers, combiners, time."""

from __future__ import annotations

import random
import statistics
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.base.algebra import Algebra, Scalars
from tailrace.model.base.time import END_OF_TIME, instant, moment
from tailrace.model.step.outlook import Known
from tailrace.model.triggers.trigger import Moment, Phase, Trigger
from tailrace.model.windows.calendars import UNITS, Calendar
from tailrace.model.windows.windows import Fixed, Sessions, Sliding, Window, gathered, merge, phase_of
from tailrace.sql.terms import Sql
from tests.support.cases.strategies import BASE, EVERYTHING, LOG, bundles, examples, triggers

O = Scalars()  # noqa: E741


def test_an_algebra_of_other_terms_replaces_every_operation() -> None:
    operations = {name for name in vars(Algebra) if not name.startswith("_")}
    assert len(operations) > 40
    for other in (Known, Sql):
        assert operations <= vars(other).keys(), other


INSTANTS = st.integers(-(10**15), 4 * 10**15)
DURATIONS = st.integers(1, 10**7).map(lambda micros: timedelta(microseconds=micros))
WINDOWS = st.builds(lambda start, size: Window(start, start + size), st.integers(0, 60), st.integers(1, 9))


@examples(100)
@given(st.datetimes().map(lambda at: at.replace(tzinfo=BASE.tzinfo)))
def test_T1_an_instant_and_its_moment_are_inverse(at: Any) -> None:
    assert moment(instant(at)) == at


@examples(100)
@given(INSTANTS, DURATIONS, DURATIONS)
def test_T1_fixed_windows_cut_time_into_pieces_of_one_size(at: int, size: timedelta, offset: timedelta) -> None:
    windowing = Fixed(size, offset)
    (window,) = windowing.assign(at)
    assert window.start <= at < window.end
    assert windowing.assign(window.start) == windowing.assign(window.timestamp) == [window]
    assert windowing.assign(window.end)[0].start == window.end


@examples(60)
@given(INSTANTS, DURATIONS, st.text(), st.text())
def test_T1_a_phase_moves_all_windows_of_a_key_alike(at: int, size: timedelta, one: str, other: str) -> None:
    windowing = Fixed(size, phase="key")
    (mine,), (theirs,) = windowing.assign(at, {"key": one}), windowing.assign(at, {"key": other})
    assert mine.start <= at < mine.end
    assert windowing.assign(mine.end, {"key": one})[0].start == mine.end
    assert (mine.start - theirs.start - phase_of(one) + phase_of(other)) % (size // timedelta(microseconds=1)) == 0


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "Pacific/Apia", "Asia/Beirut"])


@examples(300)
@given(st.integers(0, 2 * 10**15), ZONES, st.sampled_from(UNITS))
def test_T1_calendar_windows_cut_time_without_a_gap(at: int, zone: str, unit: Any) -> None:
    windowing = Calendar(unit, zone)
    (window,) = windowing.assign(at)
    assert window.start <= at < window.end
    assert windowing.assign(window.start) == windowing.assign(window.timestamp) == [window]
    assert windowing.assign(window.end)[0].start == window.end
    assert window.end - window.start <= (windowing.longest or 0)
    local = [moment(end).astimezone(ZoneInfo(zone)) for end in (window.start - 1, window.start)]
    assert local[0].date() != local[1].date(), "it begins with a day"


@examples(150)
@given(INSTANTS, DURATIONS, DURATIONS, DURATIONS)
def test_T1_sliding_windows_hold_just_the_records_of_their_span(
    at: int, size: timedelta, every: timedelta, offset: timedelta
) -> None:
    every = max(every, -(-size // 50))  # not more than 50 windows for a record
    windowing = Sliding(size, every, offset)
    found = windowing.assign(at)
    assert found == sorted(set(found))
    micro = timedelta(microseconds=1)
    for window in found:
        assert window.start <= at < window.end
        assert (window.start - offset // micro) % (every // micro) == 0
        assert window.end - window.start == size // micro
    around = {start for start, _ in found}
    first = at - (at - offset // micro) % (every // micro)
    expected = {first - n * (every // micro) for n in range(60) if first - n * (every // micro) + size // micro > at}
    assert around == expected


@examples(100)
@given(st.lists(WINDOWS), st.randoms(use_true_random=False))
def test_M2_merging_takes_windows_in_any_order(windows: list[Window], shuffler: random.Random) -> None:
    merged = merge(windows)
    assert merge(shuffler.sample(windows, len(windows))) == merged == merge(merged)
    assert all(a.end <= b.start for a, b in pairwise(merged))
    # An instant is in a merged span just when it is in one of the windows.
    assert {t for w in merged for t in range(*w)} == {t for w in windows for t in range(*w)}


@examples(100)
@given(st.lists(WINDOWS), st.lists(WINDOWS))
def test_M2_merging_what_was_merged_is_merging_it_all(some: list[Window], more: list[Window]) -> None:
    assert merge([*merge(some), *more]) == merge([*some, *more])


@examples(100)
@given(st.lists(WINDOWS))
def test_M2_gathered_windows_lie_in_just_one_span(windows: list[Window]) -> None:
    spans = gathered(windows)
    assert sorted(w for members in spans.values() for w in members) == sorted(windows)
    assert all(span.start <= w.start and w.end <= span.end for span, members in spans.items() for w in members)


@examples(100)
@given(st.lists(st.integers(0, 80), min_size=1), st.integers(1, 6))
def test_M2_a_session_ends_where_no_record_comes_for_a_gap(times: list[int], gap: int) -> None:
    sessions = Sessions(timedelta(microseconds=gap))
    ordered = sorted(times)
    expected, start = [], ordered[0]
    for here, following in zip(ordered, [*ordered[1:], END_OF_TIME], strict=True):
        if following - here >= gap:
            expected.append(Window(start, here + gap))
            start = following
    assert merge(w for at in times for w in sessions.assign(at)) == expected


MOMENTS = st.builds(
    lambda fresh, waited, watermark, now, step, phase: Moment(
        phase, fresh, now - waited if fresh else None, 100, watermark, now, now - step, ahead={50: 1}
    ),
    st.integers(0, 4),
    st.sampled_from([0, 1_000_000, 20_000_000, 60_000_000]),
    st.sampled_from([99, 100, 101]),
    st.integers(0, 200).map(lambda seconds: seconds * 1_000_000),
    st.sampled_from([0, 1_000_000, 60_000_000]),
    st.sampled_from(Phase),
)


@examples(200)
@given(triggers(), st.lists(MOMENTS, max_size=12))
def test_M4_a_trigger_that_is_done_is_never_ready_again(trigger: Trigger, moments: list[Moment]) -> None:
    slots: dict[str, Any] = dict(trigger.slots())
    was_on_time = False
    for bare in moments:
        signals = dict.fromkeys(trigger.signals(), bare.fresh % 2 == 1)
        at = bare._replace(measures=dict.fromkeys(trigger.measures(), bare.fresh), signals=signals)
        slots = trigger.arrived(O, slots, at.measures)
        ready = trigger.ready(O, slots, at)
        assert ready.fires or not ready.on_time
        was_on_time = was_on_time or ready.on_time
        if trigger.done(O, slots):
            assert not ready.fires
        if ready.fires and (at.fresh or ready.on_time):
            slots = trigger.fired(O, slots, at)
        assert slots.keys() == trigger.slots().keys()
        if trigger.done(O, slots):
            assert trigger.finishes, "it says that it never finishes"
            if trigger.finishes_only_on_time:
                assert was_on_time, "it says that it finishes only once the watermark has passed"


@examples(60)
@given(bundles(), bundles(), bundles())
def test_combiners_merge_in_any_order_and_grouping(a: Any, b: Any, c: Any) -> None:
    for combiner in EVERYTHING.values():
        type_ = None if combiner.column is None else LOG.columns[combiner.column]
        parts = combiner.parts(type_)

        def accumulated(
            records: list[dict[str, Any]], combiner: Any = combiner, parts: Any = parts, type_: Any = type_
        ) -> list[Any]:
            held = [part.zero(O) for part in parts]
            for record in records:
                lifted = combiner.lift(O, None if combiner.column is None else record[combiner.column], type_)
                held = [part.merged(O, x, y) for part, x, y in zip(parts, held, lifted, strict=True)]
            return held

        def merged(one: list[Any], other: list[Any], parts: Any = parts) -> list[Any]:
            return [part.merged(O, x, y) for part, x, y in zip(parts, one, other, strict=True)]

        one, two, three, zero = accumulated(a), accumulated(b), accumulated(c), accumulated([])
        assert merged(one, two) == merged(two, one) == accumulated([*a, *b])
        assert merged(merged(one, two), three) == merged(one, merged(two, three))
        assert merged(one, zero) == merged(zero, one) == one


@examples(60)
@given(bundles())
def test_combiners_compute_what_their_names_say(records: list[dict[str, Any]]) -> None:
    def result(name: str) -> Any:
        combiner = EVERYTHING[name]
        type_ = None if combiner.column is None else LOG.columns[combiner.column]
        parts = combiner.parts(type_)
        held = [part.zero(O) for part in parts]
        for record in records:
            lifted = combiner.lift(O, None if combiner.column is None else record[combiner.column], type_)
            held = [part.merged(O, x, y) for part, x, y in zip(parts, held, lifted, strict=True)]
        return combiner.result(O, {part.name: term for part, term in zip(parts, held, strict=True)}, type_)

    def values(column: str) -> list[Any]:
        return [record[column] for record in records if record[column] is not None]

    assert result("records") == len(records)
    assert result("priced") == len(values("price"))
    assert result("total") == (sum(values("value")) if values("value") else None)
    assert result("paid") == (sum(values("price"), Decimal(0)) if values("price") else None)
    mean = sum(values("value")) / len(values("value")) if values("value") else None
    assert result("mean_value") == mean
    assert result("least_price") == min(values("price"), default=None)
    assert result("most_value") == max(values("value"), default=None)
    assert result("first_label") == min(values("label"), default=None)
    for name, column in (("spread_value", "value"), ("spread_price", "price")):
        expected = statistics.variance(values(column)) if len(values(column)) > 1 else None
        assert result(name) == (expected if expected is None else pytest.approx(float(expected), rel=1e-12))
    assert result("spread_lanes") == (statistics.pvariance(values("lane")) if values("lane") else None)
    assert result("all_good") == (all(values("good")) if values("good") else None)
    assert result("any_good") == (any(values("good")) if values("good") else None)
    assert result("some_label") in (values("label") or [None])
    assert result("last_at") == max(values("at"), default=None)
    assert result("prices") == sorted(values("price"))
    assert result("top_labels") == sorted(values("label"), reverse=True)[:3]
    assert result("kinds") == len(set(values("label")))
    prices = sorted(values("price"))
    assert result("middle_price") == (prices[(len(prices) - 1) // 2] if prices else None)
