"""Nested records: each engine says what the reference says of elements, fields, sizes and conditions on them, and of
results that are nested values themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from math import inf, nan
from typing import Any

from hypothesis import strategies as st

from tailrace import (
    ACCUMULATING,
    DISCARDING,
    RETRACTING,
    AfterCount,
    AllTrue,
    AnyTrue,
    AnyValue,
    ApproxDistinct,
    ApproxQuantile,
    Col,
    Collect,
    Count,
    Derive,
    Distinct,
    Explode,
    First,
    Fixed,
    Highest,
    Last,
    Log,
    Map,
    Match,
    Max,
    Mean,
    Min,
    Missing,
    Pack,
    Pipeline,
    Quantile,
    Repeat,
    Sessions,
    Sum,
    TopK,
    Variance,
    seconds,
)
from tailrace.model.base.clock import Clock
from tailrace.model.base.conditions import Condition
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
from tailrace.model.base.types import element_type, struct_fields
from tailrace.model.combiners.basic import Combiner
from tailrace.model.definition.record_steps import ElementWise
from tailrace.model.step.reference import fold_stages
from tailrace.model.step.step import Record
from tests.support.cases.maps import by_reference, by_rows
from tests.support.engines.engine_runs import EngineRuns, for_examples
from tests.support.engines.spark_runs import arrow_bundle, said_by_reference

ORDERS = Log(
    name="orders",
    columns={
        "id": "bigint", "at": "timestamp", "who": "string", "tags": "map<string,int>", "codes": "array<string>",
        "items": "array<struct<sku:string,price:bigint,unit:struct<grams:int,parts:array<bigint>>>>",
        "place": "struct<town:string,paid:boolean>", "extra": "json",
    },
    event_time="at", disorder=seconds(5),
)  # fmt: skip

WORDS = st.sampled_from(["a", "b", "c", None])
PARTS = st.lists(st.integers(0, 3) | st.none(), max_size=3)
UNITS = st.fixed_dictionaries({"grams": st.integers(0, 9) | st.none(), "parts": PARTS | st.none()}) | st.none()
ITEMS = st.fixed_dictionaries({"sku": WORDS, "price": st.integers(-5, 9) | st.none(), "unit": UNITS}) | st.none()
TAGS = st.dictionaries(st.sampled_from("xyz"), st.integers(0, 3) | st.none()).map(
    lambda tags: [{"key": key, "value": tags[key]} for key in sorted(tags)]
)
PLACES = st.fixed_dictionaries({"town": WORDS, "paid": st.booleans() | st.none()}) | st.none()
EXTRAS = st.sampled_from([
    "{}", '{"user": {"tier": "a"}, "paid": [1, 2.50]}', '{"user": {"tier": 7}, "paid": [9223372036854775807]}', "[nan]",
])  # fmt: skip
RECORDS = st.fixed_dictionaries({
    "who": st.sampled_from(["p", "q"]), "tags": TAGS | st.none(),
    "codes": st.lists(WORDS, max_size=3) | st.none(), "items": st.lists(ITEMS, max_size=3) | st.none(),
    "place": PLACES, "extra": EXTRAS | st.none(),
})  # fmt: skip

STEPS: tuple[Sequence[ElementWise], ...] = (
    (Explode("items", into="item", place="line"), Derive({"sku": Col("item.sku"), "price": Col("item.price")})),
    (Explode("items", into="item", outer=True), Derive({"sku": Col("item.sku"), "price": Col("item.unit.grams") * 2})),
    (Explode("tags", into="tag"), Derive({"sku": Col("tag.key"), "price": Col("tag.value") + Col("codes").size()})),
    (
        Explode("items", into="item"),
        Explode("item.unit.parts", into="part", place="nth"),
        Derive({"sku": Col("place.town"), "price": Col("part") * Col("nth")}),
    ),
    (Explode("codes", into="code", outer=True), Derive({"sku": Col("code"), "price": Col("items").size()})),
    (Derive({"sku": Col("place.town"), "price": Col("items").size() - Col("tags").size()}),),
    (
        Derive(
            {"sku": Col("extra").at("user.tier").as_type("string"), "paid": Col("extra").at("paid").as_type("json")}
        ),
        Derive({"price": Col("paid").at("[0]").as_type("bigint") * 2}),
    ),
)
KEPT: tuple[Condition | None, ...] = (
    None,
    Col("codes").contains("a"),
    ~Col("tags").contains("x"),
    Match("place.paid", "==", True) | Missing("place.town"),
    Match("place.town", "!=", "b"),
)


@st.composite
def folded(draw: st.DrawFn) -> tuple[Pipeline, list[tuple[Sequence[Record], Clock]]]:
    """A pipeline over nested records, and its epochs."""
    pipeline = Pipeline(
        name="sold", log=ORDERS, key=draw(st.sampled_from([("sku",), ("who",), ()])),
        each=draw(st.sampled_from(STEPS)), keep=draw(st.sampled_from(KEPT)),
        what={"n": Count(), "total": Sum("price"), "most": Max("price"), "skus": Count("sku")},
        where=draw(st.sampled_from([Fixed(seconds(20)), Sessions(seconds(7))])), when=Repeat(AfterCount(1)),
        how=RETRACTING,
    )  # fmt: skip
    return pipeline, epochs_of(draw, RECORDS)


@for_examples(duckdb=(12, 400, 60), duckdb_in_parts=(4, 100, 40), duckdb_in_python=(6, 100, 40), spark=(2, 40, 5))
def test_L1_nested_records_are_folded_alike_on_every_engine(engine: EngineRuns, data: st.DataObject) -> None:
    pipeline, epochs = data.draw(folded())
    (run,) = fold_stages(pipeline, epochs)
    assert engine.said(pipeline, epochs) == [said_by_reference(pipeline, run.panes, run.late, run.rejected)]


@for_examples(duckdb=(20, 300, 60), spark=(2, 30, 5))
def test_X2_a_map_makes_a_row_of_each_element_on_every_engine(engine: EngineRuns, data: st.DataObject) -> None:
    step, kept = data.draw(st.sampled_from(STEPS)), data.draw(st.sampled_from(KEPT))
    nested = data.draw(st.sets(st.sampled_from(["items", "tags", "codes", "place"])))
    what = ("id", "who", "sku", "price", *sorted(nested))
    definition = Map(name="lines", log=ORDERS, each=step, keep=kept, what=what)
    some = data.draw(st.lists(st.tuples(st.integers(0, 30), RECORDS), max_size=6))
    bundle = [{"id": n, "at": moment((1_767_268_800 + at) * 10**6), **one} for n, (at, one) in enumerate(some)]
    clock = Clock(3, 0, 1_000)
    rows = engine.mapped(definition, arrow_bundle(ORDERS, bundle, clock.epoch), clock)
    assert by_rows(definition, rows) == by_reference(definition, [(bundle, clock)])


DEEP = (
    "array<struct<sku:string,price:double,parts:array<bigint>>>",
    "struct<at:timestamp,paid:decimal(6,2),share:float,bytes:binary,on:date>",
    "array<array<struct<n:int>>>",
    "struct<value:struct<words:array<string>,good:boolean>,at:bigint>",
    "array<double>",
    "binary",
)
"""Types whose values have nulls, NaN, two zeros, bytes and lists of different length in all places."""

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(["", "a", "b", "é", "\U0001f600"]), "bigint": st.integers(-1, 2),
    "int": st.integers(-1, 2), "boolean": st.booleans(), "binary": st.sampled_from([b"", b"\x00", b"a", b"\xff"]),
    "double": st.sampled_from([0.0, -0.0, 1.5, nan, inf, -inf]), "float": st.sampled_from([0.0, -0.0, 0.5, nan]),
    "timestamp": st.integers(0, 2).map(lambda n: moment(n * 10**6)),
    "date": st.integers(1, 3).map(lambda day: date(2026, 1, day)),
    "decimal(6,2)": st.integers(-1, 2).map(lambda n: Decimal(n).scaleb(-2)),
}  # fmt: skip


def values_of(type: str) -> st.SearchStrategy[Any]:
    """Values of a type, null among them."""
    if (element := element_type(type)) is not None:
        return st.lists(values_of(element), max_size=3) | st.none()
    if (fields := struct_fields(type)) is not None:
        # Hypothesis gives the keys in any order, while a record has its fields in the order of the type.
        one = st.tuples(*map(values_of, fields.values())).map(lambda values: dict(zip(fields, values, strict=True)))
        return one | st.none()
    return _VALUES[type] | st.none()


def epochs_of(draw: st.DrawFn, records: st.SearchStrategy[dict[str, Any]]) -> list[tuple[Sequence[Record], Clock]]:
    """Some epochs of records at times that reach back, and the end of time."""
    made, count, base = list[tuple[Sequence[Record], Clock]](), 0, 1_767_268_800
    for number in range(draw(st.integers(1, 4))):
        some = draw(st.lists(st.tuples(st.integers(0, 30), records), max_size=4))
        bundle = [
            {"id": count + n, "at": moment((base + at + 10 * number) * 10**6), **one}
            for n, (at, one) in enumerate(some)
        ]
        count += len(some)
        watermark = BEGINNING if number == 0 else (base + 10 * number - 5) * 10**6
        made.append((bundle, Clock(number, watermark, (base + 100 + number) * 10**6)))
    return [*made, ([], Clock(len(made), END_OF_TIME, (base + 999) * 10**6))]


COMBINERS: dict[str, Combiner] = {
    "some": AnyValue("deep"), "first": First("deep"), "last": Last("deep"), "all": Collect("deep"),
    "different": Distinct("deep"), "given": Count("deep"), "best": TopK("deep", 2, by=("n", "deep")),
    "names": TopK("who", 2, by="deep"), "both": AnyValue("packed"), "packs": Collect("packed"),
    "highest": Highest("packed", by="n"),
}  # fmt: skip


@st.composite
def nested_results(draw: st.DrawFn) -> tuple[Pipeline, list[tuple[Sequence[Record], Clock]]]:
    """A pipeline whose results are nested, sometimes with a stage that reads them, and its epochs."""
    type = draw(st.sampled_from(DEEP))
    log = Log(
        name="deep", columns={"id": "bigint", "at": "timestamp", "who": "string", "n": "int", "deep": type},
        event_time="at", disorder=seconds(5),
    )  # fmt: skip
    names = draw(st.sets(st.sampled_from(sorted(COMBINERS)), min_size=1, max_size=4))
    pipeline = Pipeline(
        name="first", log=log, key="who", each=Pack("packed", of=("n", "deep")),
        what={name: COMBINERS[name] for name in sorted(names)},
        where=draw(st.sampled_from([Fixed(seconds(20)), Sessions(seconds(7))])), when=Repeat(AfterCount(1)),
        how=draw(st.sampled_from([RETRACTING, ACCUMULATING, DISCARDING])),
    )  # fmt: skip
    if draw(st.booleans()):
        columns = dict.fromkeys(sorted(names))
        earlier = replace(pipeline, how=RETRACTING)
        of = {name: earlier.results[name] for name in columns}
        nested = [name for name, type in of.items() if element_type(type) or struct_fields(type)]
        what: dict[str, Combiner] = {"n": Count()}
        for name in nested:
            kind = draw(st.sampled_from([AnyValue, First, Last, Collect, Distinct]))
            what[f"{name}_again"] = kind(name)
        lists = [name for name in nested if element_type(of[name])]
        exploded: bool = draw(st.booleans())
        each = [Explode(lists[0], into="element", outer=True)] if lists and exploded else []
        if each:
            what["elements"] = Collect("element") if of[lists[0]] != "array<double>" else Count("element")
        pipeline = Pipeline(
            name="second", log=earlier.panes, each=each, key=draw(st.sampled_from(["who", ()])), what=what,
            where=Fixed(seconds(40)), when=Repeat(AfterCount(1)), how=RETRACTING,
        )  # fmt: skip
    records = st.fixed_dictionaries({
        "who": st.sampled_from("pq"), "n": st.integers(0, 2) | st.none(), "deep": values_of(type),
    })  # fmt: skip
    return pipeline, epochs_of(draw, records)


@for_examples(duckdb=(40, 1000, 100), duckdb_in_parts=(10, 200, 50), duckdb_in_python=(10, 200, 50), spark=(4, 60, 4))
def test_L1_nested_results_are_folded_alike_on_every_engine(engine: EngineRuns, data: st.DataObject) -> None:
    pipeline, epochs = data.draw(nested_results())
    runs = fold_stages(pipeline, epochs)
    expected = [
        said_by_reference(stage, run.panes, run.late, run.rejected)
        for stage, run in zip(pipeline.stages, runs, strict=True)
    ]
    assert engine.said(pipeline, epochs) == expected


SAMPLES = Log(
    name="samples",
    columns={
        "id": "bigint", "at": "timestamp", "who": "string",
        "of": "struct<n:int,x:double,good:boolean,deep:struct<word:string,on:date>>",
    },
    event_time="at", disorder=seconds(5),
)  # fmt: skip
OF_FIELDS: dict[str, Combiner] = {
    "total": Sum("of.n"), "sum": Sum("of.x"), "mean": Mean("of.x"), "spread": Variance("of.x"),
    "least": Min("of.x"), "most": Max("of.deep.on"), "first": First("of.deep.word"), "last": Last("of.x"),
    "some": AnyValue("of.deep"), "all": Collect("of.deep.word"), "kinds": Distinct("of.x"), "given": Count("of.n"),
    "best": TopK("of.x", 2), "ranked": TopK("of.deep.word", 2, by=("of.n", "of.x")), "middle": Quantile("of.x", 0.5),
    "sketch": ApproxQuantile("of.x", 0.5, error=0.4), "about": ApproxDistinct("of.deep.word"),
    "every": AllTrue("of.good"), "any": AnyTrue("of.good"), "highest": Highest("of.deep", by="word"),
}  # fmt: skip
"""Each combiner of Tailrace, over a field of a struct."""


@st.composite
def of_fields(draw: st.DrawFn) -> tuple[Pipeline, Pipeline, list[tuple[Sequence[Record], Clock]]]:
    """A pipeline whose combiners read fields, the same over columns that have the fields' values, and epochs."""
    names = sorted(draw(st.sets(st.sampled_from(sorted(OF_FIELDS)), min_size=3, max_size=6)))
    plain = {
        path: path.replace(".", "_") for name in names for path in OF_FIELDS[name].columns if path.startswith("of.")
    }
    columns: dict[str, Combiner] = {}
    for name in names:
        one: Any = OF_FIELDS[name]
        by = {"by": tuple(plain[path] for path in one.by)} if isinstance(one, TopK) else {}
        columns[name] = replace(one, column=plain[one.column or ""], **by)
    pipeline = Pipeline(
        name="read", log=SAMPLES, key="who", what={name: OF_FIELDS[name] for name in names},
        where=draw(st.sampled_from([Fixed(seconds(20)), Sessions(seconds(7))])), when=Repeat(AfterCount(1)),
        how=draw(st.sampled_from([RETRACTING, ACCUMULATING, DISCARDING])),
    )  # fmt: skip
    derived = Derive({name: Col(path) for path, name in plain.items()})
    records = st.fixed_dictionaries({"who": st.sampled_from("pq"), "of": values_of(SAMPLES.columns["of"])})
    return pipeline, replace(pipeline, each=derived, what=columns), epochs_of(draw, records)


@for_examples(duckdb=(10, 300, 60), duckdb_in_parts=(3, 60, 40), duckdb_in_python=(5, 100, 40), spark=(1, 20, 5))
def test_L1_a_combiner_reads_a_field_as_it_reads_a_column(engine: EngineRuns, data: st.DataObject) -> None:
    by_path, by_column, epochs = data.draw(of_fields())
    (run,), (columns,) = fold_stages(by_path, epochs), fold_stages(by_column, epochs)
    assert _answers(run.panes) == _answers(columns.panes)
    assert engine.said(by_path, epochs) == [said_by_reference(by_path, run.panes, run.late, run.rejected)]


def _answers(panes: Sequence[Any]) -> list[str]:
    return [repr((one.key, one.window, one.version, one.retraction, one.answer)) for one in panes]
