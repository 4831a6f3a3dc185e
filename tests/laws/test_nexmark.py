"""The Nexmark queries answer what is published for them, and what plain SQL answers of other events (issue 8; L1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from benchmarks.nexmark.answers import SQL, Events, differences
from benchmarks.nexmark.queries import COLUMNS, HERE, Asked, Query, Row, query
from tailrace import Count, Fixed, Max, Pipeline, Sessions, Sliding, Sum, seconds
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, moment
from tailrace.model.step.chain_fold import ChainRun, fold_chain
from tailrace.model.windows.panes import answers
from tailrace.plan.loader import load
from tests.support.cases.nexmark import (
    OTHERWISE,
    Epochs,
    generated,
    in_epochs,
    published,
    published_answer,
    published_answers,
    published_windows,
    with_answers,
)

ANY_ORDER = 60.0
"""Seconds out of order that are more than the published events last."""


def folded(definition: Asked, epochs: Epochs) -> ChainRun:
    """The fold over epochs, of which no record is left out."""
    runs = fold_chain(definition, epochs)
    assert not any(run.late or run.late_for_join or run.rejected for run in runs)
    return runs[-1]


def answered(one: Query, epochs: Epochs) -> list[Row]:
    """The rows that a query answers by the reference."""
    run = folded(one.definition, epochs)
    if one.definition.windowed:
        return list(one.rows(answers(run.panes)))
    return list(one.flattened([*(row.values for row in run.mapped), *(row.values for row in run.joined)]))


@pytest.mark.parametrize("spread", [0.0, 2.0, ANY_ORDER], ids=["in order", "nearly in order", "in any order"])
@pytest.mark.parametrize("name", with_answers())
def test_a_query_answers_what_is_published_for_it_in_whatever_order_and_epochs(name: str, spread: float) -> None:
    one = query(name)
    found = answered(one, in_epochs(published(), Random(f"{name} {spread}"), spread))
    assert differences(published_answer(one), found) == ([], [])


def test_each_published_query_is_one_of_ours() -> None:
    assert published_answers().keys() == {OTHERWISE.get(name, name) for name in with_answers()}


BIDS = query("q11").pipeline
WINDOWS: dict[str, Pipeline] = {
    "bids_fixed_10s_by_auction": replace(
        BIDS,
        key="auction",
        what={"num": Count(), "sum_price": Sum("price"), "max_price": Max("price")},
        where=Fixed(seconds(10)),
    ),
    "bids_sliding_10s_2s_by_auction": query("q5").pipeline.stages[0],
    "bids_sessions_5s_by_bidder": replace(
        BIDS, what={"num": Count(), "sum_price": Sum("price")}, where=Sessions(seconds(5))
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_the_published_bids_are_those_that_are_told_of_them(name: str) -> None:
    pipeline = WINDOWS[name]
    run = folded(pipeline, in_epochs(published(), Random(name), ANY_ORDER))
    found = [
        (*key, moment(window.start), *([moment(window.end)] if pipeline.where.merges else []), *values.values())
        for (key, window), values in answers(run.panes).items()
    ]
    assert Counter(found) == Counter(published_windows(name))


def test_the_windows_told_of_are_of_all_kinds() -> None:
    assert {type(one.where) for one in WINDOWS.values()} == {Fixed, Sliding, Sessions}


@pytest.fixture(scope="module")
def events() -> Iterator[Events]:
    with Events(generated()) as one:
        yield one


@pytest.mark.parametrize("name", COLUMNS)
def test_a_query_answers_what_plain_sql_answers_of_generated_events(name: str, events: Events) -> None:
    one = query(name)
    found = answered(one, in_epochs(generated(), Random(name), 4.0, most=4))
    expected = events.answer(name)
    assert expected, "the events are such that there is an answer"
    assert differences(expected, found) == ([], [])


def test_sql_that_asks_something_else_is_told_apart(events: Events) -> None:
    one = query("q11")
    rows = answered(one, in_epochs(generated(), Random(1), 0.0))
    bidder, bids, *span = rows[0]
    missing, added = differences(events.answer("q11"), [(bidder, bids + 1, *span), *rows[1:], rows[1]])
    assert (missing, len(added)) == ([rows[0]], 2)


def test_bids_of_processing_time_are_told_as_they_come() -> None:
    q12 = load(str(HERE / "q12.py"))
    came = list(generated())
    ten = 10_000_000
    # Each epoch ends a ten seconds of processing time, in which its records have come.
    bundles = [came[place : place + 100] for place in range(0, len(came), 100)]
    epochs = [(bundle, Clock(n, 0, (n + 1) * ten)) for n, bundle in enumerate(bundles)]
    run = folded(q12, [*epochs, ([], Clock(len(epochs), END_OF_TIME, len(epochs) * ten + 1))])
    found = {(pane.processing_time // ten - 1, *pane.key): pane.values["bids"] for pane in run.panes}
    bids = ((n, one["bidder"]) for n, bundle in enumerate(bundles) for one in bundle if one["kind"] == "bid")
    assert {place: count for place, count in found.items() if count} == Counter(bids)


def test_each_query_is_a_file_of_at_most_forty_lines() -> None:
    files = {file.stem: len(file.read_text().splitlines()) for file in HERE.glob("q*.py") if file.stem != "queries"}
    assert set(files) == {*COLUMNS, "q12"} == {*SQL, "q12"}
    assert max(files.values()) <= 40
