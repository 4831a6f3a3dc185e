"""Stages, steps and their triggers that make no sense are refused as a whole: each message word for word."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from tailrace import (
    ACCUMULATING,
    DISCARDING,
    EARLIEST,
    LATEST,
    RETRACTING,
    AfterCount,
    AfterPattern,
    AfterSignal,
    AfterWatermark,
    ApproxDistinct,
    ApproxQuantile,
    AtPercentile,
    AtWatermark,
    Col,
    Count,
    DefinitionError,
    Derive,
    Each,
    Fixed,
    Global,
    If,
    Log,
    Match,
    Max,
    Pipeline,
    Repeat,
    Sessions,
    SparkColumns,
    SparkFrame,
    Sum,
    Value,
    hours,
    minutes,
)
from tailrace.lake.schema.owned_tables import all_contracts
from tailrace.model.combiners.laws import LawError, obeys
from tailrace.model.definition.chain import keeping_answers
from tailrace.model.step.reference import at_once
from tailrace.model.triggers.trigger import Trigger
from tests.transcripts.own import Product

CLICKS = Log(
    name="clicks",
    columns={"who": "string", "cents": "bigint", "share": "double", "price": "decimal(30,2)", "at": "timestamp"},
    event_time="at",
    disorder=minutes(5),
    percentiles={90: minutes(1)},
)
VISITS = Pipeline(
    name="visits",
    log=CLICKS,
    key="who",
    what={"clicks": Count(), "cents": Sum("cents")},
    where=Sessions(minutes(30)),
    when=AfterWatermark(late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(1),
)


def later(**changed: Any) -> Pipeline:
    usual: dict[str, Any] = {
        "name": "bills",
        "log": VISITS.panes,
        "key": "who",
        "what": {"visits": Count()},
        "where": Fixed(hours(1)),
        "when": AfterWatermark(late=AfterCount(1)),
    }
    return Pipeline(**usual | changed)


def first(**changed: Any) -> Pipeline:
    return replace(VISITS, **changed)


REFUSED: dict[str, tuple[Any, str]] = {
    "a_stage_after_one_that_accumulates": (
        lambda: later(log=first(how=ACCUMULATING).panes),
        "log = 'visits, accumulating': expected a stage that takes back what it said before; "
        "set how=RETRACTING in visits",
    ),
    "a_stage_after_one_that_discards": (
        lambda: later(log=first(how=DISCARDING).panes),
        "log = 'visits, discarding': expected a stage that takes back what it said before; "
        "set how=RETRACTING in visits",
    ),
    "sessions_of_panes": (
        lambda: later(where=Sessions(minutes(5))),
        "where = Sessions(gap=datetime.timedelta(seconds=300)): expected windows that stay apart, for a record that is "
        "taken back may be what joined two of them; use Fixed, Sliding or Calendar, or merge in the first stage",
    ),
    "windows_after_the_global_one": (
        lambda: later(log=first(where=Global()).panes),
        "where = Fixed(size=datetime.timedelta(seconds=3600), offset=datetime.timedelta(0), phase=None): expected one "
        "window for all, as the earlier stage has; use Global(), or windows that end in visits",
    ),
    "what_is_fresh_of_records_taken_back": (
        lambda: later(how=DISCARDING),
        "how = <Accumulation.DISCARDING: 'discarding'>: expected panes of everything so far, for what is fresh may be "
        "records taken back; use ACCUMULATING or RETRACTING",
    ),
    "a_later_stage_that_closes": (
        lambda: later(finishing="close", when=AtWatermark()),
        "finishing = 'close': expected \"refuse\", for records that came too late would stay in no answer; "
        "leave it out",
    ),
    "a_later_stage_that_does_not_wait": (
        lambda: later(allowed_lateness=minutes(80)),
        "allowed_lateness = '1:20:00': expected at least 90 minutes, for so long visits corrects what it gave; "
        "leave it out, and it waits just so long",
    ),
    "a_later_stage_without_a_late_part": (
        lambda: later(when=AtWatermark()),
        "when = AtWatermark(): expected a trigger with a late part, for visits corrects what it gave for 90 minutes; "
        "write for example AfterWatermark(late=AfterCount(1))",
    ),
    "a_timestamp_that_may_be_taken_back": (
        lambda: later(timestamp=LATEST),
        "timestamp = <Timestamp.LATEST: 'latest'>: expected END_OF_WINDOW in a later stage, whose first or last record "
        "may be taken back; leave it out",
    ),
    "a_timestamp_that_is_waited_for_for_ever": (
        lambda: first(where=Global(), timestamp=EARLIEST, allowed_lateness=None, when=Repeat(AfterCount(1))),
        "timestamp = <Timestamp.EARLIEST: 'earliest'>: expected END_OF_WINDOW for windows that may be of any length; "
        "a later stage would wait for them for ever: leave it out",
    ),
    "no_timestamp": (
        lambda: first(timestamp="latest"),
        "timestamp = 'latest': expected when an answer happened; use END_OF_WINDOW, EARLIEST or LATEST",
    ),
    "a_column_that_the_earlier_stage_does_not_give": (
        lambda: later(what={"dearest": Max("price")}),
        "what['dearest'].column = 'price': expected one of the log's columns (who, window_start, window_end, clicks, "
        "cents, event_time); declare it in the log's columns",
    ),
    "a_key_that_the_tables_use": (
        lambda: later(key="window_end"),
        "key[0] = 'window_end': expected a name that the tables do not use themselves; rename it, for example "
        "my_window_end",
    ),
    "no_step": (
        lambda: first(each=["cents"]),
        "each[0] = 'cents': expected a step; write for example Derive({\"euros\": Col(\"cents\") // 100})",
    ),
    "nothing_derived": (
        lambda: first(each=Derive({})),
        "each[0].values = {}: expected at least one column; write Derive({\"euros\": Col(\"cents\") // 100})",
    ),
    "a_column_that_is_there": (
        lambda: first(each=Derive({"cents": Col("cents") * 2})),
        "each[0].values['cents'] = 'cents': expected a name that no column has yet; rename it, for example to my_cents",
    ),
    "an_unknown_column_in_an_expression": (
        lambda: first(each=Derive({"euros": (Col("cent") + 1) // 100})),
        "each[0].values['euros'].of.left = 'cent': expected one of the log's columns (who, cents, share, price, at); "
        "declare it in the log's columns",
    ),
    "arithmetic_with_a_text": (
        lambda: first(each=Derive({"half": Col("who") * Decimal("0.5")})),
        "each[0].values['half'].left = \"Col(name='who'): string\": expected a whole number, a decimal, a double or an "
        "instant; declare it as decimal(p,s)",
    ),
    "a_result_with_too_many_digits": (
        lambda: first(each=Derive({"square": Col("price") * Col("price")})),
        "each[0].values['square'] = '61 digits': expected numbers whose result has at most 38 digits; declare the "
        "columns with fewer digits",
    ),
    "a_division_by_nothing": (
        lambda: first(each=Derive({"n": Col("cents") // 0})),
        "each[0].values['n'].by = 0: expected a whole number or duration of more than zero; write // minutes(1)",
    ),
    "a_division_of_a_decimal": (
        lambda: first(each=Derive({"n": Col("price") // 2})),
        "each[0].values['n'].of = \"Col(name='price'): decimal(30,2)\": expected a whole number or an instant; "
        "take another column",
    ),
    "a_choice_of_two_types": (
        lambda: first(each=Derive({"n": If(Match("cents", ">", 1), Value(1), Value("one"))})),
        "each[0].values['n'] = 'bigint and string': expected two values of one type; write both alike, for example "
        "0 and 1",
    ),
    "no_expression": (
        lambda: first(each=Derive({"n": 1})),  # type: ignore[dict-item]
        "each[0].values['n'] = 1: expected an expression; write for example Col(\"price\") * 2",
    ),
    "a_value_of_no_type": (
        lambda: first(each=Derive({"n": Value(1.5)})),  # type: ignore[arg-type]
        "each[0].values['n'] = 1.5: expected a string, truth value, whole number, Decimal or duration; write for "
        "example Col(\"price\") * Decimal(\"1.19\")",
    ),
    "a_function_that_is_none": (
        lambda: first(each=Each("lower", {"n": "int"})),  # type: ignore[arg-type]
        "each[0].function = 'lower': expected a function of a record; write for example Each(f, {\"n\": \"int\"})",
    ),
    "a_function_that_gives_nothing": (
        lambda: first(each=Each(dict, {})),
        "each[0].gives = {}: expected the new columns with their types; write for example {\"word\": \"string\"}",
    ),
    "a_function_that_gives_no_type": (
        lambda: first(each=Each(dict, {"word": "text"})),
        "each[0].gives['word'] = 'text': expected a column type; use string, boolean, int, bigint, float, double, "
        "decimal(p,s), date, timestamp or binary, or array<T>, struct<a:T,b:T> of these",
    ),
    "an_expression_of_sql_without_its_type": (
        lambda: first(each=SparkColumns({"word": "lower(who)"})),  # type: ignore[dict-item]
        "each[0].values['word'] = 'lower(who)': expected a type and an expression; write for example "
        '{"word": ("string", "lower(text)")}',
    ),
    "a_frame_function_that_is_none": (
        lambda: first(each=SparkFrame(None, {})),  # type: ignore[arg-type]
        "each[0].function = None: expected a function of a DataFrame; write SparkFrame(f, gives={...})",
    ),
    "a_percentile_that_the_log_does_not_declare": (
        lambda: first(when=AfterWatermark(early=AtPercentile(95), late=AfterCount(1))),
        "when[0].part.part.percent = 95: expected a percentile of the log (90); declare percentiles={95: minutes(1)} "
        "in the log",
    ),
    "a_percentile_that_is_none": (
        lambda: first(when=AfterWatermark(early=AtPercentile(100), late=AfterCount(1))),
        "when[0].part.part.percent = 100: expected a whole number between 1 and 99; write AtPercentile(90)",
    ),
    "a_pattern_of_nothing": (
        lambda: first(when=Repeat(AfterPattern())),
        "when.part = AfterPattern(): expected at least one condition; write for example "
        'AfterPattern(Match("kind", "==", "open"), Match("kind", "==", "close"))',
    ),
    "a_pattern_over_no_column": (
        lambda: first(when=Repeat(AfterPattern(Match("cents", ">", 1), Match("euros", ">", 1)))),
        "when.part[1].column = 'euros': expected one of the log's columns (who, cents, share, price, at); declare it "
        "in the log's columns",
    ),
    "a_signal_without_a_name": (
        lambda: first(when=Repeat(AfterSignal("Close!"))),
        "when.part.name = 'Close!': expected a name of up to 63 lower-case letters, digits and _; rename it, for "
        "example hourly_rides",
    ),
    "a_sketch_of_too_little": (
        lambda: first(what={"n": ApproxDistinct("who", size=2)}),
        "what['n'].size = 2: expected a whole number of at least 16; leave it out for 1024",
    ),
    "a_quantile_of_texts": (
        lambda: first(what={"n": ApproxQuantile("who", 0.5)}),
        "what['n'].column = 'who: string': expected a column of numbers; use Quantile, or another column",
    ),
    "a_quantile_beyond_all": (
        lambda: first(what={"n": ApproxQuantile("cents", 50, error=2.0)}),
        "what['n'].share = 50: expected a share between 0 and 1; write ApproxQuantile('cents', 0.95)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_definition_is_refused_with_the_place_and_the_remedy(name: str) -> None:
    make, expected = REFUSED[name]
    with pytest.raises(DefinitionError) as refused:
        make()
    assert expected in str(refused.value), str(refused.value)


def test_every_fault_of_a_stage_is_named_at_once() -> None:
    with pytest.raises(DefinitionError) as refused:
        later(log=first(how=ACCUMULATING).panes, where=Sessions(minutes(5)), how=DISCARDING, timestamp=LATEST)
    assert [fault.path for fault in refused.value.faults] == ["log", "where", "how", "timestamp"]


def test_a_log_with_percentiles_that_make_no_sense_is_refused() -> None:
    percentiles: dict[int, Any] = {0: minutes(1), 90: minutes(6), 50: 3, 100: minutes(1)}
    with pytest.raises(DefinitionError) as refused:
        replace(CLICKS, percentiles=percentiles)
    places = [fault.path for fault in refused.value.faults]
    assert places == ["log.percentiles[0]", "log.percentiles[90]", "log.percentiles[50]", "log.percentiles[100]"]


def test_the_stages_of_a_definition_and_what_they_wait_for() -> None:
    bills = later()
    assert [stage.name for stage in bills.stages] == ["visits", "bills"]
    assert bills.sources == (CLICKS,)
    assert timedelta(microseconds=bills.lateness) == minutes(90)
    assert later(log=first(timestamp=EARLIEST).panes).lateness == bills.lateness + 30 * 60_000_000
    assert later(allowed_lateness=hours(3)).lateness == 3 * 3_600_000_000


def test_the_fingerprint_holds_the_earlier_stages_and_the_steps() -> None:
    bills = later()
    assert bills.fingerprint == later().fingerprint
    others = [
        later(log=first(where=Sessions(minutes(20))).panes),
        later(log=first(timestamp=EARLIEST).panes),
        later(each=Derive({"more": Col("cents") + 1})),
        later(each=Each(dict, {"more": "int"})),
    ]
    assert len({bills.fingerprint, *(one.fingerprint for one in others)}) == 5


def test_the_last_stage_has_a_table_of_its_answers_and_an_earlier_one_that_asks_for_it() -> None:
    bills, kept = later(), later(log=first(answers=True).panes)
    assert kept.fingerprint == bills.fingerprint
    assert keeping_answers([bills]) == {bills.name}
    assert keeping_answers([kept]) == {bills.name, first().name} == keeping_answers([bills, first()])
    tables = [[one.table for one in all_contracts(stage)] for stage in (bills, kept)]
    assert [first().name in one for one in tables] == [False, True]
    assert all(f"{first().name}__ledger" in one for one in tables)
    # Where an earlier deployment made it, it is one of the definition's tables still.
    assert first().name in [one.table for one in all_contracts(bills, lambda table: True)]
    with pytest.raises(DefinitionError, match="answers"):
        first(answers=False)


def test_the_fingerprint_holds_percentiles_that_are_looked_at() -> None:
    def fired(log: Log, early: Trigger) -> str:
        return first(log=log, when=AfterWatermark(early=early, late=AfterCount(1))).fingerprint

    sooner = replace(CLICKS, percentiles={90: minutes(2)})
    assert fired(CLICKS, AfterCount(2)) == fired(sooner, AfterCount(2))
    assert fired(CLICKS, AtPercentile(90)) != fired(sooner, AtPercentile(90))


class Keeps(Product):
    """A product that takes nothing out, whatever it says."""

    def uncombine(self, a: Any, b: Any) -> Any:
        return a


def test_L1_a_combiner_that_can_uncombine_does_so_in_a_later_stage() -> None:
    obeys(Product("cents"), [2, 3, 5])
    bills = later(what={"product": Product("cents")}, where=Fixed(hours(2)))
    sides = ["product__came", "product__came_failed", "product__taken", "product__taken_failed"]
    assert list(bills.parts) == [*sides, "answer__records"]
    records = [{"who": "a", "cents": 7, "at": 0}, {"who": "b", "cents": 5, "at": 0}]
    assert [pane.values for pane in at_once(bills, records).panes] == [{"product": 7}, {"product": 5}]


def test_one_that_does_not_undo_what_it_merged_is_found_out() -> None:
    with pytest.raises(LawError, match="uncombine must undo merge"):
        obeys(Keeps("cents"), [2, 3, 5])
