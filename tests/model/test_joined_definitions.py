"""Joins of two logs: what goes out, what is refused, and what is kept for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailrace import (
    ACCUMULATING,
    DISCARDING,
    EARLIEST,
    LATEST,
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Calendar,
    Count,
    Derive,
    Each,
    Fixed,
    Global,
    Join,
    Log,
    Map,
    Pipeline,
    Sessions,
    Union,
    Value,
    hours,
    minutes,
    seconds,
)
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import DefinitionError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, EPOCH, duration
from tailrace.model.definition.chain import chain
from tailrace.model.logs.log import SIGN
from tailrace.model.samples.visits import example
from tailrace.model.step.join_step import JoinState, step

ASKED = Log(name="asked", columns={"at": "timestamp", "q": "bigint", "term": "string"}, event_time="at")
CLICKED = Log(name="clicked", columns={"at": "timestamp", "query": "bigint", "ad": "string"}, event_time="at")
OPTIONS: dict[str, Any] = {
    "name": "shown", "left": ASKED, "right": CLICKED, "on": {"q": "query"}, "within": minutes(10),
    "right_columns": {"ad": "ad", "clicked_at": "at"},
}  # fmt: skip


PATIENT = Pipeline(
    name="p", log=ASKED, key="q", what={"n": Count()}, where=Fixed(hours(1)), how=RETRACTING,
    when=AfterWatermark(late=AfterCount(1)), allowed_lateness=minutes(20),
)  # fmt: skip


def joined(**options: Any) -> Join:
    return Join(**{**OPTIONS, **options})


def faults(**options: Any) -> list[tuple[str, str]]:
    with pytest.raises(DefinitionError) as raised:
        joined(**options)
    return [(fault.path, fault.expected) for fault in raised.value.faults]


def test_what_goes_out_are_the_key_and_the_columns_of_both_sides() -> None:
    assert joined().results == {
        "q": "bigint", "at": "timestamp", "term": "string", "ad": "string", "clicked_at": "timestamp",
    }  # fmt: skip
    few = joined(left_columns="term", right_columns="ad", where=Fixed(hours(1)), within=None)
    assert list(few.produced.columns) == ["window_start", "window_end", "q", "term", "ad", "event_time"]
    assert [log.name for log in few.sources] == ["asked", "clicked"]


def test_a_join_comes_after_the_definitions_whose_records_it_joins() -> None:
    terms = Map(name="terms", log=ASKED, each=Derive({"word": Value("x")}), what=("q", "word"))
    of_map = joined(left=terms.produced, left_columns={"term": "word"})
    assert of_map.before == (terms,)
    counted = Pipeline(name="n", log=of_map.produced, key="term", what={"n": Count()}, where=Fixed(hours(1)))
    assert [one.name for one in chain(counted)] == ["terms", "shown", "n"]


def test_readers_wait_as_long_as_a_record_may_wait_for_its_partner() -> None:
    mark = 10**15
    apart = (minutes(1), minutes(10))
    assert joined(within=apart).onward(mark) == mark
    waits = {kind: mark - joined(within=apart, kind=kind).onward(mark) for kind in ("left", "right", "full")}
    assert waits == {"left": 600_000_000, "right": 60_000_000, "full": 600_000_000}
    by_hour = joined(within=None, where=Fixed(hours(1)), kind="full")
    assert mark - by_hour.onward(mark) == 3_600_000_000
    assert joined(kind="left").onward(END_OF_TIME) == END_OF_TIME
    assert joined(kind="left").onward(BEGINNING) == BEGINNING


def test_records_are_kept_while_they_or_their_partners_may_be_asked_for() -> None:
    apart, lateness = (minutes(1), minutes(10)), minutes(5)
    inner = joined(within=apart, allowed_lateness=lateness)
    assert [inner.kept(side) // 60_000_000 for side in ("left", "right")] == [15, 6]
    left = joined(within=apart, kind="left")
    assert [left.kept(side) // 60_000_000 for side in ("left", "right")] == [10, 11]


def test_a_join_means_its_sides_its_columns_and_what_belongs_together() -> None:
    means = joined().fingerprint
    assert joined(name="other").fingerprint == means
    assert joined(within=(minutes(10), minutes(10))).fingerprint == means
    for other in (
        {"within": minutes(11)}, {"kind": "left"}, {"left_columns": "term"}, {"allowed_lateness": minutes(1)},
        {"left": replace(ASKED, disorder=seconds(1))}, {"within": None, "where": Fixed(hours(1))},
    ):  # fmt: skip
        assert joined(**other).fingerprint != means, other


def test_columns_that_are_unknown_of_other_types_or_collide_are_refused_together() -> None:
    text = replace(CLICKED, columns={**CLICKED.columns, "query": "string"})
    assert faults(right=text) == [("on['q']", "bigint, as q is in asked")]
    assert [path for path, _ in faults(on=("q", "gone"), left_columns="nothing")] == [
        "on['q']", "on['gone']", "on['gone']", "left_columns['nothing']",
    ]  # fmt: skip
    assert faults(right_columns=None) == [("right_columns", "a name that one column alone goes out with")]
    assert faults(right_columns={"kind": "ad"})[0][0] == "right_columns['kind']"
    assert faults(on=()) == [("on", "the columns of the key")]


def test_a_log_is_joined_with_itself_once_the_columns_of_each_side_have_names() -> None:
    assert faults(right=ASKED, on="q", right_columns=None)[0] == ("right", "names for the columns of each side")
    own = joined(right=ASKED, on="q", left_columns={"first_at": "at"}, right_columns={"second_at": "at"})
    assert list(own.results) == ["q", "first_at", "second_at"]
    assert [log.name for log in own.sources] == ["asked"]


def test_what_bounds_nothing_is_refused_where_a_record_would_wait_for_it() -> None:
    assert faults(within=None) == [("within", "either within or where")]
    assert faults(where=Fixed(hours(1))) == [("within", "either within or where")]
    assert faults(within=minutes(-1)) == [("within", "a length, or two: before and after the left record")]
    assert faults(within=None, where=Sessions(minutes(5))) == [("where", "windows that a record's own time decides on")]
    assert faults(within=None, where=Fixed(hours(1), phase="q")) == [
        ("where.phase", "windows that are the same for every key")
    ]
    assert faults(within=None, where=Global(), kind="left") == [("kind", 'kind="inner" in windows without end')]
    assert joined(within=None, where=Global()).hold == 0
    assert joined(within=None, where=Calendar("day", "Europe/Berlin"), kind="left").hold is not None
    assert faults(kind="outer")[0] == ("kind", "one of inner, left, right, full")
    assert faults(unmatched="tell") == [("unmatched", 'a kind that gives records without a partner, for "tell"')]
    assert faults(kind="left", unmatched="later") == [("unmatched", "one of wait, tell")]
    assert faults(allowed_lateness=minutes(-1)) == [("allowed_lateness", "a duration of zero or more")]


def test_sides_are_logs_that_are_kept_and_panes_that_take_back_and_end() -> None:
    assert faults(left="asked")[0] == ("left", "a log")
    both = Union(name="both", of=(ASKED, replace(CLICKED, columns={"at": "timestamp", "query": "bigint"})))
    assert faults(left=both)[0] == ("left", "a log that is no union")
    whole = replace(PATIENT, how=ACCUMULATING, where=Global(), allowed_lateness=None)
    assert faults(left=whole.panes, left_columns="n") == [
        ("left", "a pipeline that takes back what it said before"), ("left", "windows that end"),
    ]  # fmt: skip
    sooner = replace(PATIENT, timestamp=EARLIEST).panes
    assert faults(left=sooner, left_columns="n")[0] == ("left", "answers that happen as their windows end")
    assert faults(left=PATIENT.panes, within=None, where=Global()) == [
        ("where", "windows that end, as panes are joined and may be taken back")
    ]
    assert faults(left=PATIENT.panes, allowed_lateness=minutes(5)) == [
        ("allowed_lateness", "at least 20 minutes, for so long the panes that are joined are corrected")
    ]
    weak = replace(example(), productions="weak").produced
    assert faults(left=weak, on={"who": "ad"}, left_columns="clicks")[0] == ("left", "productions that are kept")
    several = Map(name="several", log=ASKED, each=Each(lambda one: [{"word": "a"}] * 2, {"word": "string"}))
    assert faults(left=several.produced)[0][0] == "left"


def test_what_may_be_taken_back_says_so_and_its_readers_wait_as_long_as_it_may_come() -> None:
    assert not joined(kind="full").takes_back
    assert not joined(allowed_lateness=minutes(3)).takes_back
    late = joined(kind="left", allowed_lateness=minutes(3))
    assert (late.takes_back, late.hold, late.trails) == (True, duration(minutes(10)), duration(minutes(3)))
    told = joined(kind="left", unmatched="tell")
    assert (told.takes_back, told.hold, told.trails) == (True, 0, duration(minutes(10)))
    panes = joined(left=PATIENT.panes)
    assert list(panes.results) == ["q", "n", "ad", "clicked_at"]
    assert (panes.takes_back, panes.lateness, panes.trails) == (True, *[duration(minutes(20))] * 2)
    # Nothing that stays as it was means anything else than before.
    assert "takes_back" not in joined().meaning
    reader = Pipeline(
        name="r", log=told.produced, key="term", what={"n": Count()}, where=Fixed(hours(1)), how=RETRACTING,
        when=AfterWatermark(late=AfterCount(1)),
    )  # fmt: skip
    assert (reader.takes_back, reader.lateness, reader.finished.takes_back) == (True, told.trails, False)
    for options, path in (
        ({"where": Sessions(minutes(5))}, "where"), ({"how": DISCARDING}, "how"), ({"finishing": "close"}, "finishing"),
        ({"allowed_lateness": minutes(9)}, "allowed_lateness"), ({"timestamp": LATEST}, "timestamp"),
    ):  # fmt: skip
        with pytest.raises(DefinitionError) as raised:
            replace(reader, **options)
        assert [fault.path for fault in raised.value.faults] == [path]


def test_only_pipelines_and_joins_read_what_a_join_takes_back() -> None:
    told = joined(kind="left", unmatched="tell")
    expected = "a log of which nothing is taken back"
    for make in (
        lambda: Map(name="m", log=told.produced),
        lambda: Union(name="u", of=(told.produced, ASKED)),
        lambda: replace(example(), log=told.produced),
    ):
        with pytest.raises(DefinitionError) as raised:
            make()
        assert raised.value.faults[0].expected == expected
    assert joined(name="more", left=told.produced, left_columns="term").takes_back


def test_a_join_pairs_and_retracts_doubles_that_are_equal_in_tables() -> None:
    """Every double is an object of its own: NaN equals each other NaN, and zero equals negative zero."""
    left, right = (
        Log(name=name, columns={"at": "timestamp", "k": "double", "v": "double"}, event_time="at")
        for name in ("asked", "clicked")
    )
    join = Join(name="j", left=left, right=right, on="k", within=minutes(5), left_columns="v", right_columns={"w": "v"})
    for one, other in (("nan", "nan"), ("0.0", "-0.0"), ("inf", "inf")):
        asked, clicked = (
            join.log.records(side, [{"at": EPOCH, "k": float(key), "v": float(key)}])
            for side, key in (("left", one), ("right", other))
        )
        state, pairs, _ = step(join, JoinState(), [*asked, *clicked], Clock(0, 0, 0))
        assert [pair.retraction for pair in pairs] == [False]
        again = join.log.records("left", [{"at": EPOCH, "k": float(other), "v": float(other)}])
        taken = [{**record, SIGN: -1} for record in again]
        state, pairs, _ = step(join, state, taken, Clock(1, 0, 0))
        assert [pair.retraction for pair in pairs] == [True]
        assert [one.side for one in state.kept] == ["right"]
