"""Packed columns and lists of them that make no sense are refused, and sound ones give the columns that were packed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

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
    Pack,
    Pipeline,
    Sum,
    TopK,
    Unpack,
    hours,
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


def unpacked(*each: ElementWise, sides: Pipeline = SIDES) -> Pipeline:
    return Pipeline(name="unpacked", log=sides.panes, each=each, what={"n": Count()}, where=Fixed(hours(1)))


REFUSED: dict[str, tuple[Callable[[], Pipeline], str]] = {
    "no_columns": (
        lambda: gathered(Pack("search", ())),
        'each[0].of = (): expected columns, each once; write for example of=("ad", "clicked_at")',
    ),
    "a_column_twice": (lambda: gathered(Pack("search", ("ad", "ad"))), "each[0].of = ('ad', 'ad'): expected columns"),
    "a_column_that_is_none": (lambda: gathered(Pack("search", ("add",))), "each[0].of['add'] = 'add': expected one of"),
    "a_name_that_is_none": (lambda: gathered(Pack("search", {"Ad": "ad"})), "each[0].of['Ad'] = 'Ad': expected a name"),
    "a_name_that_a_column_has": (
        lambda: gathered(Pack("ad", ("term",))),
        "each[0].name = 'ad': expected a name that no column has yet",
    ),
    "a_condition_on_nothing": (
        lambda: gathered(Pack("search", ("ad",), Match("sort", "==", "x"))),
        "each[0].keep.column = 'sort': expected one of",
    ),
    "a_column_that_is_not_collected": (
        lambda: gathered(SEARCH, CLICK, Unpack("search")),
        "each[2].name = 'search: struct<asked_at:timestamp,term:string>': expected a list of packed columns",
    ),
    "a_list_that_is_not_there": (
        lambda: unpacked(Unpack("klicks")),
        "each[0].name = 'klicks': expected a list of packed columns",
    ),
    "a_list_that_is_unpacked_twice": (
        lambda: unpacked(Unpack("searches"), Unpack("searches")),
        "each[1].name = 'searches': expected a list of packed columns",
    ),
    "an_empty_list_of_another_kind": (
        lambda: unpacked(Unpack("clicks", outer="left")),  # type: ignore[arg-type]
        "each[0].outer = 'left': expected True or False; leave it out, and an empty list gives nothing",
    ),
    "a_key_of_several_columns_in_one": (
        lambda: replace(SIDES, key="click"),
        "key[0] = 'click: struct<clicked_at:timestamp,ad:string>': expected a plain column",
    ),
    "the_largest_of_several_in_one": (
        lambda: replace(SIDES, what={"most": Max("click")}),
        "what['most'].column = 'click: struct<clicked_at:timestamp,ad:string>': expected a plain column, or AnyValue, "
        "First, Last, Collect, Distinct, TopK or Count; "
        'name a field in it, such as "click.clicked_at"',
    ),
    "the_sum_of_lists": (
        lambda: Pipeline(name="all", log=SIDES.panes, what={"all": Sum("clicks")}, where=Fixed(hours(1))),
        'First, Last, Collect, Distinct, TopK or Count; make a record of each element: each=Explode("clicks", ',
    ),
    "the_largest_lists_of_no_order": (
        lambda: Pipeline(name="all", log=SIDES.panes, what={"all": TopK("clicks", 3)}, where=Fixed(hours(1))),
        "what['all'].by = (): expected the columns by which values are ranked, where the values are nested",
    ),
    "the_largest_by_what_is_not_there": (
        lambda: replace(SIDES, each=(), what={"all": TopK("ad", 3, by="click.price")}),
        "what['all'].by = 'click.price': expected one of",
    ),
    "elements_of_what_is_no_list": (
        lambda: unpacked(Unpack("n")),
        "each[0].name = 'n: bigint': expected a list of packed columns, of the stage that is read",
    ),
    "the_first_true_of_a_list": (
        lambda: unpacked(Unpack("clicks", first=True)),
        "each[0].first = True: expected a whole number of at least 1; leave it out for all of them",
    ),
    "the_first_none_of_a_list": (
        lambda: unpacked(Unpack("clicks", first=0)),
        "each[0].first = 0: expected a whole number of at least 1; leave it out for all of them",
    ),
    "elements_with_a_name_that_is_there": (
        lambda: unpacked(Unpack("clicks"), sides=replace(SIDES, what={"ad": Count(), "clicks": Collect("click")})),
        "each[0].name = 'ad': expected a column that no other has the name of",
    ),
    "a_place_with_the_name_of_a_column": (
        lambda: unpacked(Unpack("clicks", place="ad")),
        "each[0].place = 'ad': expected a name that no column has yet",
    ),
    "the_highest_of_a_plain_column": (
        lambda: replace(SIDES, what={"most": Highest("ad", by="ad")}),
        "what['most'].column = 'ad: string': expected a column that is several in one; write each=Pack(",
    ),
    "the_highest_by_what_is_not_packed": (
        lambda: replace(SIDES, what={"most": Highest("click", by="share")}),
        "what['most'].by = 'share': expected one of the packed columns clicked_at, ad; pack it, too",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(DefinitionError) as refused:
        make()
    assert message in str(refused.value)


def test_two_lists_unpacked_have_the_columns_of_both_and_not_the_lists() -> None:
    columns = unpacked(Unpack("searches"), Unpack("clicks", outer=True)).columns
    assert not {"searches", "clicks"} & set(columns)
    assert {name: columns[name] for name in ("asked_at", "term", "clicked_at", "ad", "n")} == {
        "asked_at": "timestamp", "term": "string", "clicked_at": "timestamp", "ad": "string", "n": "bigint",
    }  # fmt: skip


def test_a_list_unpacked_has_its_columns_and_each_ones_place() -> None:
    columns = unpacked(Unpack("clicks", place="nth")).columns
    assert "clicks" not in columns
    assert {name: columns[name] for name in ("clicked_at", "ad", "nth", "n")} == {
        "clicked_at": "timestamp", "ad": "string", "nth": "bigint", "n": "bigint",
    }  # fmt: skip


def test_a_list_unpacked_means_how_many_of_it_are_taken() -> None:
    others = [unpacked(Unpack("clicks", *how)) for how in ((), (1,), (2,), (1, "nth"), (1, "nth", True))]
    assert len({one.fingerprint for one in others}) == len(others)
