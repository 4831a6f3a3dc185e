"""Joins that make no sense are refused as a whole, and sound ones give the columns of both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from tailrace import (
    RETRACTING,
    Collect,
    Count,
    DefinitionError,
    Fixed,
    Highest,
    Log,
    Match,
    Max,
    Near,
    Pack,
    Pairs,
    Pipeline,
    Unpack,
    hours,
    minutes,
)
from tailrace.model.definition.record_steps import ElementWise

LOG = Log(
    name="searches",
    columns={"kind": "string", "term": "string", "ad": "string", "share": "double", "at": "timestamp"},
    event_time="at",
)
SEARCH = Pack("search", {"asked_at": "at", "term": "term"}, keep=Match("kind", "==", "search"))
CLICK = Pack("click", {"clicked_at": "at", "ad": "ad"}, keep=Match("kind", "==", "click"))
SIDES = Pipeline(
    name="sides",
    log=LOG,
    each=(SEARCH, CLICK),
    what={"searches": Collect("search"), "clicks": Collect("click"), "n": Count()},
    where=Fixed(hours(1)),
    how=RETRACTING,
)


def gathered(*each: ElementWise) -> Pipeline:
    return replace(SIDES, each=each, what={"n": Count()})


def paired(pairs: ElementWise, sides: Pipeline = SIDES) -> Pipeline:
    return Pipeline(name="paired", log=sides.panes, each=pairs, what={"n": Count()}, where=Fixed(hours(1)))


def near(left: str = "asked_at", right: str = "clicked_at", **how: timedelta) -> Pairs:
    return Pairs("searches", "clicks", near=Near(left, right, **how))


REFUSED: dict[str, tuple[Callable[[], Pipeline], str]] = {
    "no_columns": (
        lambda: gathered(Pack("search", ())),
        'each[0].of = (): expected columns, each once; write for example of=("ad", "clicked_at")',
    ),
    "a_column_twice": (lambda: gathered(Pack("search", ("ad", "ad"))), "each[0].of = ('ad', 'ad'): expected columns"),
    "a_column_that_is_none": (lambda: gathered(Pack("search", ("add",))), "each[0].of['add'] = 'add': expected one of"),
    "a_name_that_is_none": (lambda: gathered(Pack("search", {"Ad": "ad"})), "each[0].of['Ad'] = 'Ad': expected a name"),
    "a_side_of_a_side": (
        lambda: gathered(SEARCH, Pack("more", ("search",))),
        "each[1].of['search'] = 'search: struct<asked_at:timestamp,term:string>': expected a plain column",
    ),
    "a_name_that_a_column_has": (
        lambda: gathered(Pack("ad", ("term",))),
        "each[0].name = 'ad': expected a name that no column has yet",
    ),
    "a_condition_on_nothing": (
        lambda: gathered(Pack("search", ("ad",), Match("sort", "==", "x"))),
        "each[0].keep.column = 'sort': expected one of",
    ),
    "a_side_that_is_no_list": (
        lambda: paired(Pairs("n", "clicks")),
        "each[0].left = 'n: bigint': expected a list of packed columns, of the stage that is read",
    ),
    "a_side_that_is_not_collected": (
        lambda: gathered(SEARCH, CLICK, Pairs("search", "click")),
        "each[2].left = 'search: struct<asked_at:timestamp,term:string>': expected a list of packed columns",
    ),
    "a_side_that_is_not_there": (
        lambda: paired(Pairs("searches", "klicks")),
        "each[0].right = 'klicks': expected a list of packed columns",
    ),
    "sides_with_a_name_in_common": (
        lambda: paired(Pairs("searches", "searches")),
        "each[0].right = 'asked_at': expected a column that no other has the name of",
    ),
    "another_kind": (
        lambda: paired(Pairs("searches", "clicks", kind="outer")),  # type: ignore[arg-type]
        "each[0].kind = 'outer': expected one of inner, left, right, full",
    ),
    "near_by_no_time": (
        lambda: paired(near("term", after=minutes(1))),
        "each[0].near.left = 'term: string': expected a timestamp of the left side (asked_at, term)",
    ),
    "near_the_other_way_round": (
        lambda: paired(near("clicked_at", "asked_at", after=minutes(1))),
        "each[0].near.left = 'clicked_at': expected a timestamp of the left side (asked_at, term)",
    ),
    "near_at_no_distance": (lambda: paired(near()), "each[0].near.after = datetime.timedelta(0): expected a duration"),
    "near_before_it_was": (
        lambda: paired(near(before=-minutes(1), after=minutes(2))),
        "each[0].near.before = datetime.timedelta(days=-1, seconds=86340): expected a duration of zero or more",
    ),
    "near_in_other_windows": (
        lambda: paired(near(after=minutes(5))),
        "each[0].near = 'Fixed(hours(1))': expected Sliding(minutes(10), every=minutes(5)) in sides",
    ),
    "a_key_of_several_columns_in_one": (
        lambda: replace(SIDES, key="click"),
        "key[0] = 'click: struct<clicked_at:timestamp,ad:string>': expected a plain column",
    ),
    "the_largest_of_several_in_one": (
        lambda: replace(SIDES, what={"most": Max("click")}),
        "what['most'].column = 'click: struct<clicked_at:timestamp,ad:string>': expected a plain column",
    ),
    "elements_of_what_is_no_list": (
        lambda: paired(Unpack("n")),
        "each[0].name = 'n: bigint': expected a list of packed columns, of the stage that is read",
    ),
    "the_first_true_of_a_list": (
        lambda: paired(Unpack("clicks", first=True)),
        "each[0].first = True: expected a whole number of at least 1; leave it out for all of them",
    ),
    "the_first_none_of_a_list": (
        lambda: paired(Unpack("clicks", first=0)),
        "each[0].first = 0: expected a whole number of at least 1; leave it out for all of them",
    ),
    "elements_with_a_name_that_is_there": (
        lambda: paired(Unpack("clicks"), replace(SIDES, what={"ad": Count(), "clicks": Collect("click")})),
        "each[0].name = 'ad': expected a column that no other has the name of",
    ),
    "a_place_with_the_name_of_a_column": (
        lambda: paired(Unpack("clicks", place="ad")),
        "each[0].place = 'ad': expected a name that no column has yet",
    ),
    "a_list_of_lists": (
        lambda: Pipeline(name="all", log=SIDES.panes, what={"all": Collect("clicks")}, where=Fixed(hours(1))),
        "what['all'].column = 'clicks: array<struct<clicked_at:timestamp,ad:string>>': expected a plain column",
    ),
    "the_highest_of_a_plain_column": (
        lambda: replace(SIDES, what={"most": Highest("ad", by="ad")}),
        "what['most'].column = 'ad: string': expected a column that is several in one; write each=Pack(",
    ),
    "the_highest_by_what_is_not_packed": (
        lambda: replace(SIDES, what={"most": Highest("click", by="share")}),
        "what['most'].by = 'share': expected one of the packed columns clicked_at, ad; pack it, too",
    ),
    "doubles_in_an_order": (
        lambda: replace(SIDES, each=Pack("side", ("share",)), what={"all": Collect("side")}),
        "what['all'].column = 'side: struct<share:double>': expected a column whose values have an order",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_join_that_makes_no_sense_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(DefinitionError) as refused:
        make()
    assert message in str(refused.value)


def test_pairs_have_the_columns_of_both_sides_and_not_the_lists() -> None:
    columns = paired(Pairs("searches", "clicks")).columns
    assert "searches" not in columns
    assert {name: columns[name] for name in ("asked_at", "term", "clicked_at", "ad", "n")} == {
        "asked_at": "timestamp", "term": "string", "clicked_at": "timestamp", "ad": "string", "n": "bigint",
    }  # fmt: skip


def test_a_list_unpacked_has_its_columns_and_each_ones_place() -> None:
    columns = paired(Unpack("clicks", place="nth")).columns
    assert "clicks" not in columns
    assert {name: columns[name] for name in ("clicked_at", "ad", "nth", "n")} == {
        "clicked_at": "timestamp", "ad": "string", "nth": "bigint", "n": "bigint",
    }  # fmt: skip


def test_a_list_unpacked_means_how_many_of_it_are_taken() -> None:
    others = [paired(Unpack("clicks", *how)) for how in ((), (1,), (2,), (1, "nth"))]
    assert len({one.fingerprint for one in others}) == len(others)


def test_a_join_means_what_its_sides_its_kind_and_its_distance_are() -> None:
    def within(time: timedelta) -> Pipeline:
        return paired(near(after=time), replace(SIDES, where=Near("asked_at", "clicked_at", after=time).windows))

    others = [
        within(minutes(1)),
        within(minutes(2)),
        paired(Pairs("searches", "clicks")),
        paired(Pairs("searches", "clicks", kind="left")),
        paired(Pairs("clicks", "searches")),
        paired(Pairs("searches", "clicks"), replace(SIDES, each=(replace(SEARCH, keep=None), CLICK))),
    ]
    assert len({one.fingerprint for one in others}) == len(others)
