"""A definition means what it does with the columns that it uses; other columns of its log are nothing to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Arrivals,
    Col,
    Computation,
    Count,
    Derive,
    Each,
    Explode,
    Fixed,
    Join,
    Log,
    Map,
    Match,
    Max,
    Pack,
    Pipeline,
    TopK,
    Union,
    hours,
)
from tailrace.model.base.errors import DefinitionError
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.record_steps import columns_read
from tailrace.model.logs.derived_logs import Panes, Productions
from tailrace.model.step.reference import fold
from tests.support.cases.maps import by_reference, random_maps
from tests.support.cases.stages import chains
from tests.support.cases.strategies import LOG, Epochs, epochs, examples, perhaps_told, pipelines

RIDES = Log(
    name="rides",
    columns={"at": "timestamp", "city": "string", "price": "bigint", "km": "int"},
    event_time="at",
    required=("km",),
)
WALKS = Log(name="walks", columns={"at": "timestamp", "city": "string", "steps": "int"}, event_time="at")


def hourly(name: str, log: Log, **more: Any) -> Pipeline:
    own: dict[str, Any] = {"key": "city", "what": {"n": Count()}, "where": Fixed(hours(1)), "how": RETRACTING} | more
    return Pipeline(name=name, log=log, **own)


@dataclass(frozen=True, kw_only=True)
class Longest(Computation):
    """A computation that says what it reads."""

    produces: ClassVar = {"km": "int"}
    reads: ClassVar[str | tuple[str, ...] | None] = "km"

    def process_record(self, context: Any, record: Mapping[str, Any]) -> None:
        assert set(record) == {"at", "city", "km"}
        context.produce({"km": record["km"]})


class Whole(Longest):
    """The same of one that does not."""

    reads = None


def over(definition: Any, log: Log) -> Any:
    """A definition, and all that it reads, over another log."""
    own = definition.log
    if isinstance(own, Panes):
        return replace(definition, log=over(own.of, log).panes)
    if isinstance(own, Productions):
        return replace(definition, log=over(own.of, log).produced)
    if isinstance(own, Union):
        return replace(
            definition, log=replace(own, of=tuple(log if one.name == log.name else one for one in own.parts))
        )
    if isinstance(own, Arrivals):
        return replace(definition, log=Arrivals(of=log))
    return replace(definition, log=log)


HOURLY = hourly("hourly", RIDES)
EUROS = Map(name="euros", log=RIDES, each=Derive({"euros": Col("price") // 100}), what=("city", "euros"))
PAIRS = Join(name="pairs", left=RIDES, right=WALKS, on="city", within=hours(1), left_columns="price", right_columns=())
USES: dict[str, tuple[Definition, set[str]]] = {
    "key": (HOURLY, {"city"}),
    "combiner": (replace(HOURLY, what={"far": Max("km")}), {"city", "km"}),
    "ranks": (replace(HOURLY, what={"top": TopK("price", 2, by="km")}), {"city", "price", "km"}),
    "condition": (replace(HOURLY, keep=Match("km", ">", 1)), {"city", "km"}),
    "derive": (replace(HOURLY, each=Derive({"euros": Col("price") // 100})), {"city", "price"}),
    "pack": (replace(HOURLY, each=Pack("of", ("price",), keep=Match("km", ">", 1))), {"city", "price", "km"}),
    "code": (replace(HOURLY, each=Each(dict, {"new": "int"})), {"at", "city", "price", "km"}),
    "declared_code": (replace(HOURLY, each=Each(dict, {"new": "int"}, reads="km")), {"city", "km"}),
    "map": (EUROS, {"city", "price"}),
    "computation": (Longest(name="longest", log=RIDES, key="city"), {"at", "city", "km"}),
    "whole_computation": (Whole(name="longest", log=RIDES, key="city"), {"at", "city", "price", "km"}),
    "stage": (hourly("again", HOURLY.panes, what={"most": Max("n")}), {"city", "n"}),
    "of_map": (hourly("of_map", EUROS.produced, key=()), set()),
}


@pytest.mark.parametrize("name", USES)
def test_V6_a_definition_says_which_columns_it_uses(name: str) -> None:
    definition, used = USES[name]
    assert definition.used == used


def test_a_step_into_a_struct_or_a_list_uses_its_column() -> None:
    nested = Log(
        name="orders",
        columns={"at": "timestamp", "user": "struct<country:string>", "items": "array<string>", "rest": "string"},
        event_time="at",
    )
    steps = [Explode("items", into="item"), Derive({"country": Col("user.country"), "lines": Col("items").size()})]
    assert hourly("sold", nested, each=steps, key="country").used == {"user", "items"}


FORMER = {
    "hourly": "9da456200b44f31c", "stage": "7fa8b2e81a659166", "both": "308319446d412644", "came": "c62917ce9b9de947",
    "kept": "202034d59746f23f", "of_map": "b0a00d5885e89ea0", "pairs": "cab5e550ceb1e301",
    "of_join": "f5d32218ac1a7881",
}  # fmt: skip
"""The fingerprints that earlier versions gave to the definitions below, by name."""


def test_V6_the_fingerprints_that_earlier_versions_gave_are_known() -> None:
    kept = Map(name="kept", log=RIDES, keep=Match("price", ">", 3), what=("city", "price"))
    made: list[Definition] = [
        HOURLY, hourly("stage", HOURLY.panes), hourly("both", Union(name="both_logs", of=(RIDES, WALKS))),
        hourly("came", Arrivals(of=RIDES)), kept, hourly("of_map", kept.produced), PAIRS,
        hourly("of_join", PAIRS.produced),
    ]  # fmt: skip
    assert {one.name: one.former_fingerprint for one in made} == FORMER
    assert all(one.fingerprint != one.former_fingerprint for one in made)
    assert all({one.fingerprint, one.former_fingerprint} == one.fingerprints for one in made)


def test_V6_what_no_later_stage_reads_of_a_map_or_a_join_is_nothing_to_it() -> None:
    wider = replace(RIDES, columns={**RIDES.columns, "tip": "int"})
    for reader, producer in (
        (hourly("a", Map(name="all", log=RIDES).produced), Map),
        (hourly("b", ALL.produced), Join),
    ):
        grown = over_all(reader, wider)
        assert isinstance(grown.log, Productions)
        assert isinstance(grown.log.of, producer)
        assert grown.log.of.fingerprint != reader.log.of.fingerprint  # type: ignore[attr-defined]
        assert grown.fingerprint == reader.fingerprint


ALL = Join(
    name="joined", left=RIDES, right=WALKS, on="city", within=hours(1), left_columns=("price", "km"), right_columns=()
)


def over_all(reader: Pipeline, wider: Log) -> Pipeline:
    of = reader.log.of  # type: ignore[attr-defined]
    if isinstance(of, Join):
        made: Any = replace(of, left=wider, left_columns=("price", "km", "tip"))
    else:
        made = replace(of, log=wider)
    return replace(reader, log=made.produced)


TYPES = ("string", "int", "bigint", "double", "timestamp", "decimal(10,2)")


@st.composite
def definitions(draw: st.DrawFn) -> Any:
    """A random pipeline, chain of stages or map over `LOG`, or one over it and another log, or by arrival."""
    kind = draw(st.sampled_from(["pipeline", "pipeline", "chain", "map", "of_map", "union"]))
    if kind == "chain":
        return draw(chains())
    if kind == "map":
        return draw(random_maps())
    if kind == "of_map":
        what = draw(random_maps())
        when = AfterWatermark(late=AfterCount(1))
        return Pipeline(name="counted", log=what.produced, what={"n": Count()}, where=Fixed(hours(1)), when=when)
    if kind == "union":
        both = Union(name="both", of=(replace(LOG, percentiles={}), WALKS))
        return Pipeline(name="counted", log=both, key="place", what={"n": Count("steps")}, where=Fixed(hours(1)))
    return draw(perhaps_told(draw(pipelines())))


def source(definition: Any) -> Log:
    found: Log = next(log for log in definition.sources if log.name == LOG.name)
    return found


@examples(60)
@given(definitions(), st.sampled_from(TYPES))
def test_V6_a_column_more_changes_a_definition_only_if_it_uses_the_column(definition: Any, type: str) -> None:
    log = source(definition)
    grown = over(definition, replace(log, columns={**log.columns, "added": type}))
    first = grown
    while isinstance(first.log, Panes | Productions):
        first = first.log.of
    # A map passes on all columns, but a pipeline that counts its records reads none of them.
    used = first.used if first is grown or not isinstance(first, Map) else columns_read(first.each, first.log.columns)
    assert (grown.fingerprint == definition.fingerprint) == ("added" not in used)
    if "added" not in used:
        assert grown.meaning == definition.meaning


@examples(40)
@given(st.data(), definitions())
def test_V6_another_type_of_a_column_changes_a_definition_just_if_it_uses_the_column(
    data: st.DataObject, definition: Any
) -> None:
    log = source(definition)
    column = data.draw(st.sampled_from(sorted(set(log.columns) - {log.event_time})))
    type = data.draw(st.sampled_from([one for one in TYPES if one != log.columns[column]]))
    try:
        other = over(definition, replace(log, columns={**log.columns, column: type}))
    except DefinitionError:
        assume(False)
    first = definition
    while isinstance(first.log, Panes | Productions):
        first = first.log.of
    if column not in first.used:
        assert other.fingerprint == definition.fingerprint
    elif first is definition:
        assert other.fingerprint != definition.fingerprint


def without(log: Log, made: Epochs, used: Iterable[str]) -> tuple[Log, Epochs]:
    """A log and its records with no more columns than these."""
    kept = {*used, log.event_time}
    narrow = replace(log, columns={name: type for name, type in log.columns.items() if name in kept})
    place = {"_epoch", "_source", "_offset"}
    return narrow, [
        ([{n: v for n, v in one.items() if n in kept | place} for one in bundle], clock) for bundle, clock in made
    ]


@examples(60)
@given(st.data())
def test_L1_a_definition_gives_the_same_of_records_with_no_more_than_what_it_uses(data: st.DataObject) -> None:
    pipeline = data.draw(perhaps_told(data.draw(pipelines())))
    made = data.draw(epochs(pipeline))
    narrow, fewer = without(pipeline.log, made, pipeline.used)
    small = replace(pipeline, log=narrow)
    assert small.fingerprint == pipeline.fingerprint
    one, other = fold(pipeline, made), fold(small, fewer)
    assert one.panes == other.panes
    assert [(late.key, late.window, late.behind) for late in one.late] == [
        (late.key, late.window, late.behind) for late in other.late
    ]


@examples(40)
@given(st.data())
def test_L1_a_map_gives_the_same_of_records_with_no_more_than_what_it_uses(data: st.DataObject) -> None:
    whole = data.draw(random_maps())
    made = data.draw(epochs(whole))
    narrow, fewer = without(whole.log, made, whole.used)
    small = replace(whole, log=narrow, what=tuple(whole.results))
    assert by_reference(small, fewer) == by_reference(whole, made)


def test_code_that_says_what_it_reads_gets_no_more() -> None:
    step = Each(lambda record: {"seen": ",".join(sorted(record))}, {"seen": "string"}, reads=("km", "city"))
    record = {"at": None, "city": "Oslo", "price": 3, "km": 4}
    assert [made["seen"] for made in step.records(record, RIDES.columns)] == ["city,km"]
    with pytest.raises(DefinitionError, match=r"each\[0\]\.reads"):
        replace(HOURLY, each=Each(dict, {"new": "int"}, reads="miles"))
