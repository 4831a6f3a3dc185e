"""Nested records: each engine says what the reference says of elements, fields, sizes and conditions on them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tailrace import (
    RETRACTING,
    AfterCount,
    Col,
    Count,
    Derive,
    Explode,
    Fixed,
    Log,
    Map,
    Match,
    Max,
    Missing,
    Pipeline,
    Repeat,
    Sessions,
    Sum,
    seconds,
)
from tailrace.model.base.clock import Clock
from tailrace.model.base.conditions import Condition
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
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
        "place": "struct<town:string,paid:boolean>",
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
RECORDS = st.fixed_dictionaries({
    "who": st.sampled_from(["p", "q"]), "tags": TAGS | st.none(),
    "codes": st.lists(WORDS, max_size=3) | st.none(), "items": st.lists(ITEMS, max_size=3) | st.none(),
    "place": PLACES,
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
    made, count, base = list[tuple[Sequence[Record], Clock]](), 0, 1_767_268_800
    for number in range(draw(st.integers(1, 4))):
        some = draw(st.lists(st.tuples(st.integers(0, 30), RECORDS), max_size=4))
        records = [
            {"id": count + n, "at": moment((base + at + 10 * number) * 10**6), **one}
            for n, (at, one) in enumerate(some)
        ]
        count += len(some)
        watermark = BEGINNING if number == 0 else (base + 10 * number - 5) * 10**6
        made.append((records, Clock(number, watermark, (base + 100 + number) * 10**6)))
    made.append(([], Clock(len(made), END_OF_TIME, (base + 999) * 10**6)))
    return pipeline, made


@for_examples(duckdb=(12, 400, 60), duckdb_in_parts=(4, 100, 40), duckdb_in_python=(6, 100, 40), spark=(2, 40, 5))
def test_L1_nested_records_are_folded_alike_on_every_engine(engine: EngineRuns, data: st.DataObject) -> None:
    pipeline, epochs = data.draw(folded())
    (run,) = fold_stages(pipeline, epochs)
    assert engine.said(pipeline, epochs) == [said_by_reference(pipeline, run.panes, run.late, run.rejected)]


@for_examples(duckdb=(20, 300, 60), spark=(2, 30, 5))
def test_X2_a_map_makes_a_row_of_each_element_on_every_engine(engine: EngineRuns, data: st.DataObject) -> None:
    step, kept = data.draw(st.sampled_from(STEPS)), data.draw(st.sampled_from(KEPT))
    definition = Map(name="lines", log=ORDERS, each=step, keep=kept, what=("id", "who", "sku", "price"))
    some = data.draw(st.lists(st.tuples(st.integers(0, 30), RECORDS), max_size=6))
    bundle = [{"id": n, "at": moment((1_767_268_800 + at) * 10**6), **one} for n, (at, one) in enumerate(some)]
    clock = Clock(3, 0, 1_000)
    rows = engine.mapped(definition, arrow_bundle(ORDERS, bundle, clock.epoch), clock)
    assert by_rows(definition, rows) == by_reference(definition, [(bundle, clock)])
