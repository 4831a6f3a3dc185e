"""Combiners keep doubles and floats of any kind in any order, cut and on any engine, and no negative zero (rule M8)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, inf, nan
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    AnyValue,
    Collect,
    Count,
    Distinct,
    First,
    Fixed,
    Global,
    Highest,
    Join,
    Last,
    Log,
    Max,
    Mean,
    Min,
    Pack,
    Pipeline,
    Quantile,
    Sum,
    TopK,
    Variance,
    hours,
)
from tailrace.backfill.backfill import backfill
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.algebra import Scalars
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.combiners.basic import Combiner, without_negative_zeros
from tailrace.model.combiners.own import OwnCombiner
from tailrace.model.combiners.retraction import taken_back, taking_back
from tailrace.model.combiners.sketches import ApproxDistinct, ApproxQuantile
from tailrace.model.definition.join_input import LEFT, RIGHT, SIDES
from tailrace.model.step import join_step
from tailrace.model.step.reference import fold_stages
from tailrace.settings import Settings
from tailrace.sql.epoch import join_rows
from tailrace.sql.results.compared_rows import ComparedRows, counted_rows
from tailrace.sql.terms import Query, Relation
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.cases.strategies import Epochs
from tests.support.depth import cases
from tests.support.engines.engine_runs import CONNECTION, EngineRuns, OnDuck, OnDuckInParts, OnDuckInPython, OnSpark
from tests.support.engines.spark_runs import Said, arrow_bundle, said_by_reference
from tests.support.lakes.recorded_ledgers import record

START = datetime(2026, 1, 1, tzinfo=UTC)
VALUES = [nan, nan, inf, -inf, 5e-324, -5e-324, 1.5, None]
DEEP = "array<struct<a:double,b:array<float>,c:string>>"
EVENTS = Log(
    name="events",
    columns={
        "at": "timestamp",
        "k": "string",
        "x": "double",
        "f": "float",
        "n": "int",
        "deep": DEEP,
        "place": "struct<x:double>",
    },
    event_time="at",
)  # fmt: skip


@dataclass(frozen=True)
class Product(OwnCombiner):
    """The product of a column's values, whose zeros get their sign from the values."""

    column: str
    state = gives = "double"
    uncombines: ClassVar[bool] = False

    def zero(self) -> float:
        return 1.0

    def add(self, state: float, value: float) -> float:
        return state * value if abs(value) <= 2 else state

    def merge(self, a: float, b: float) -> float:
        return a * b

    def output(self, state: float) -> float:
        return -state


WHAT: dict[str, Combiner] = {
    "least": Min("x"),
    "most": Max("x"),
    "first": First("x"),
    "last": Last("x"),
    "some": AnyValue("x"),
    "about": ApproxDistinct("x"),
    "whole": AnyValue("deep"),
    "early": First("deep"),
    "late": Last("deep"),
    "all": Collect("deep"),
    "kinds": Distinct("deep"),
    "best": TopK("k", 2, by=("place.x", "x")),
    "deepest": TopK("deep", 2, by="n"),
    "packs": Highest("pack", by="n"),
}
REALS: dict[str, Combiner] = {
    f"{name}_{column}": kind
    for column in "xf"
    for name, kind in {
        "min": Min(column), "max": Max(column), "start": First(column), "all": Collect(column),
        "kinds": Distinct(column),
        "best": TopK(column, 2), "ranked": TopK("k", 3, by=column), "middle": Quantile(column, 0.5),
        "total": Sum(column), "mean": Mean(column), "spread": Variance(column), "given": Count(column),
        "highest": Highest("pack", by=column),
    }.items()
}  # fmt: skip
OWN: dict[str, Combiner] = {"product": Product("x"), "middle": ApproxQuantile("x", 0.5, error=0.4)}


def pipeline(what: dict[str, Combiner]) -> Pipeline:
    return Pipeline(
        name="zeros", log=EVENTS, key="k", each=Pack("pack", of=("n", "x", "f", "place")), what=what,
        where=Fixed(hours(1)), when=AfterWatermark(early=AfterCount(1)), how=RETRACTING,
    )  # fmt: skip


def later(what: dict[str, Combiner], of: Collection[str] = ()) -> Pipeline:
    """A stage over all or some answers of a stage of one hour, which are taken back whenever a record comes."""
    first = pipeline(what)
    again: dict[str, Combiner] = {}
    for name, type in first.results.items():
        if of and name not in of:
            continue
        again[f"{name}_first"] = First(name)
        again[f"{name}_some"] = AnyValue(name)
        again[f"{name}_all"] = Collect(name)
        again[f"{name}_kinds"] = Distinct(name)
        if type in ("double", "float"):
            again[f"{name}_best"] = TopK(name, 2)
            again[f"{name}_middle"] = Quantile(name, 0.5)
    return Pipeline(
        name="later", log=first.panes, what=again, where=Global(), when=AfterWatermark(early=AfterCount(1)),
        how=RETRACTING,
    )  # fmt: skip


def records(draw: random.Random) -> list[dict[str, Any]]:
    """Some records of few values, of which many are equal but for the sign of their zeros."""
    made, some = [], [0.0, -0.0, *draw.sample(VALUES, 3)]
    for _ in range(draw.randint(2, 7)):
        x, y, z = draw.choices(some, k=3)
        # The least double is no float.
        floats = [one if one is None or abs(one) != 5e-324 else one * 2.0**925 for one in (y, z)]
        deep = draw.choice([None, [], [None], [{"a": x, "b": floats, "c": "w"}], [{"a": y, "b": None, "c": None}]])
        at = START + timedelta(minutes=draw.randint(0, 1), hours=draw.randint(0, 1))
        place = draw.choice([None, {"x": z}])
        one = {"at": at, "k": draw.choice("ab"), "x": x, "f": floats[0], "n": draw.randint(0, 1)}
        made.append({**one, "deep": deep, "place": place})
    return made


FLOATS = [0.5, nan, 0.0, -inf, -0.0, nan, 2.0**-149, inf, 0.5, None, -(2.0**-149), 1.5, nan, 0.0]
"""Values that are doubles and floats, among which are several NaN and both zeros."""


def odd_epochs() -> Epochs:
    """Epochs of all these values, in one window."""
    some: list[dict[str, Any]] = [
        {"at": START, "k": "a", "x": x, "f": x, "n": n % 2, "deep": [{"a": x, "b": [x], "c": "w"}], "place": {"x": x}}
        for n, x in enumerate(FLOATS)
    ]
    bundles = enumerate((some[:9], some[9:]))
    return [*((one, Clock(n, instant(START), n)) for n, one in bundles), ([], Clock(2, END_OF_TIME, 2))]


def epochs(draw: random.Random, some: Sequence[dict[str, Any]]) -> Epochs:
    """The records in any order and cut into one to three epochs, and an epoch in which the input ends."""
    mixed, cuts = draw.sample(some, len(some)), sorted(draw.choices(range(len(some) + 1), k=draw.randint(0, 2)))
    bundles = [mixed[a:b] for a, b in zip([0, *cuts], [*cuts, len(mixed)], strict=True)]
    made: Epochs = [(one, Clock(epoch, instant(START), instant(START) + epoch)) for epoch, one in enumerate(bundles)]
    return [*made, ([], Clock(len(made), END_OF_TIME, instant(START) + len(made)))]


def written(said: Sequence[Said]) -> list[Counter[str]]:
    """What was said as texts, in which a NaN equals a NaN, and zero differs from negative zero."""
    return [Counter({repr(one): times for one, times in some.items()}) for some in said]


def expected(definition: Pipeline, made: Epochs) -> list[Counter[str]]:
    runs = fold_stages(definition, list(made))
    stages = zip(definition.stages, runs, strict=True)
    return written([said_by_reference(stage, run.panes, run.late, run.rejected) for stage, run in stages])


def some_of(draw: random.Random, what: dict[str, Combiner]) -> dict[str, Combiner]:
    return {name: what[name] for name in sorted(draw.sample(sorted(what), 4))}


def some_of_reals(columns: str = "xf") -> dict[str, Combiner]:
    names = ("kinds", "all", "best", "ranked", "middle", "highest", "total")
    return {f"{name}_{column}": REALS[f"{name}_{column}"] for name in names for column in columns}


def case(number: int) -> tuple[random.Random, Pipeline]:
    draw = random.Random(number)
    some = some_of(draw, draw.choice([WHAT, REALS]))
    return draw, later(some) if draw.random() < 0.5 else pipeline(some)


def answers(definition: Pipeline, made: Epochs) -> dict[Any, str]:
    """The last answer of each window, as a text."""
    panes = fold_stages(definition, list(made))[-1].panes
    return {(pane.key, pane.window): repr(pane.answer) for pane in panes if not pane.retraction}


def test_M8_answers_have_the_same_text_in_any_order_and_cut() -> None:
    for number in range(cases(150, 5_000)):
        draw, definition = case(number)
        some = records(draw)
        first = answers(definition, epochs(draw, some))
        assert first == answers(definition, epochs(draw, some))
        assert "-0.0" not in repr(first)


@pytest.mark.parametrize("engine", [OnDuck(), OnDuckInParts(), OnDuckInPython()], ids=lambda one: type(one).__name__)
def test_M8_duckdb_gives_the_zeros_of_the_reference(engine: EngineRuns) -> None:
    for number in range(cases(3 if type(engine) is OnDuck else 1, 300)):
        draw, definition = case(number)
        if len(definition.stages) > 1 and type(engine) is not OnDuck:
            definition = definition.stages[0]
        made = epochs(draw, records(draw))
        assert written(engine.said(definition, made)) == expected(definition, made), number
    definition = pipeline(some_of_reals())
    assert written(engine.said(definition, odd_epochs())) == expected(definition, odd_epochs())


@pytest.mark.spark
def test_M8_spark_gives_the_zeros_of_the_reference(plain: SparkSession) -> None:
    what = some_of_reals() | {"whole": AnyValue("deep"), "least": Min("x")}
    definition = later({name: what[name] for name in ("least", "kinds_x", "all_f", "middle_f", "whole")}, of=("least",))
    assert written(OnSpark(plain).said(definition, odd_epochs())) == expected(definition, odd_epochs())


def test_M8_a_combiner_of_ones_own_gets_and_gives_no_negative_zero() -> None:
    for number in range(cases(20, 500)):
        draw = random.Random(number)
        definition, made = pipeline(OWN), epochs(draw, records(draw))
        said = written(OnDuckInPython().said(definition, made))
        assert said == expected(definition, made)
        assert "-0.0" not in repr(said)


def test_M8_only_what_holds_doubles_is_read_in_another_way() -> None:
    types = dict(EVENTS.columns) | {"pack": "struct<n:int,x:double>"}
    assert TopK("k", 2, by=("place.x", "n")).reals(types) == {"place": "struct<x:double>"}
    assert Max("n").reals(types) == Min("k").reals(types) == Collect("k").reals(types) == {}
    assert Scalars().unsigned_zeros({"a": [-0.0, None], "b": "-0.0"}, "struct<a:array<float>,b:string>") == {
        "a": [0.0, None], "b": "-0.0",
    }  # fmt: skip


def test_M8_equal_answers_with_nan_and_zeros_audit_replay_and_are_left_alone_by_a_backfill(
    settings: Settings,
) -> None:
    lake = Lake(settings.model_copy(update={"engine": "duckdb"}))
    definition = pipeline({name: WHAT[name] for name in ("least", "last", "whole", "all")} | some_of_reals("f"))
    some = records(random.Random(9))
    odd = [{"a": nan, "b": [-0.0, nan, 0.0], "c": None}, {"a": -0.0, "b": [], "c": "w"}]
    some += [one | {"x": nan, "deep": odd, "place": {"x": nan}} for one in some]
    made = epochs(random.Random(9), some)
    # A ledger of before has negative zeros, in panes and in accumulators.
    with patch.object(Combiner, "reals", lambda *_: {}):
        record(lake, definition, made)
    answers_ = repr(lake.table("zeros").scan().to_arrow().to_pylist())
    assert "-0.0" in answers_
    assert "nan" in answers_
    assert audit(lake, definition).ok
    assert replay(lake, definition).ok
    (done,) = backfill(lake, definition, instant(START), instant(START + timedelta(hours=2)))
    windows = len({(one["k"], one["at"].hour) for one in some})
    assert (done.changed, done.untouched, done.retracted) == (0, windows, 0)


DEEPLY = "struct<x:double,deep:array<struct<a:float>>>"
COMPARED = {"x": "double", "deep": DEEPLY}


def compared(spark: SparkSession | None, ours: Sequence[Any], theirs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """How an engine compares rows of these values, which are in order: each change, and how often each row is there."""
    tables = []
    for values in (ours, theirs):
        rows = [
            f"SELECT {n}L AS n, CAST('{x!r}' AS double) AS x, "
            f"NAMED_STRUCT('x', CAST('{x!r}' AS double), "
            f"'deep', ARRAY(NAMED_STRUCT('a', CAST('{x!r}' AS float)))) AS deep"
            for n, x in enumerate(values)
        ]
        tables.append(Query(" UNION ALL ".join(rows)))
    changes = ComparedRows(("n",), COMPARED, filled=("n",)).differences(tables[0], tables[1])
    counts = counted_rows(tables[0], tables[1], list(COMPARED))
    texts = [Query(f"SELECT n, change FROM ({changes}) ORDER BY n"), Query(f"SELECT _ours, _theirs FROM ({counts})")]
    if spark is not None:
        return [row[1] for row in spark.sql(texts[0]).collect()], sorted(map(tuple, spark.sql(texts[1]).collect()))
    cursor = CONNECTION.cursor()
    changed, counted = (cursor.execute(in_duckdb(text)).fetchall() for text in texts)
    return [row[1] for row in changed], sorted(counted)


def check_compared(spark: SparkSession | None) -> None:
    same = compared(spark, [0.0, -0.0, nan, 1.5, -inf], [-0.0, 0.0, nan, 1.5, -inf])
    assert same == (["same"] * 5, [(1, 1), (1, 1), (1, 1), (2, 2)])
    apart = compared(spark, [nan, 0.0, 1.5], [0.0, 1e-30, nan])
    assert apart == (["changed"] * 3, [(0, 1), (1, 0), (1, 1), (1, 1)])


def test_M8_duckdb_takes_nan_for_nan_and_zero_for_negative_zero_where_answers_are_compared() -> None:
    check_compared(None)


@pytest.mark.spark
def test_M8_spark_takes_nan_for_nan_and_zero_for_negative_zero_where_answers_are_compared(plain: SparkSession) -> None:
    check_compared(plain)


@pytest.mark.parametrize("unmatched", ["tell", "wait"])
@pytest.mark.parametrize("where", [None, Fixed(hours(1))])
def test_M8_a_join_that_retracts_rows_has_no_negative_zero(unmatched: Any, where: Fixed | None) -> None:
    columns = {"at": "timestamp", "k": "string", "x": "double", "deep": DEEP}
    left, right = (Log(name=name, columns=columns, event_time="at") for name in ("left", "right"))
    join = Join(
        name="both", left=left, right=right, on="k", within=None if where else hours(1), where=where, kind="left",
        unmatched=unmatched, left_columns=("x", "deep"), right_columns={"y": "x"},
    )  # fmt: skip
    one = {"at": START, "k": "a", "x": -0.0, "deep": [{"a": -0.0, "b": [-0.0], "c": None}]}
    came = [record for side in SIDES for record in join.log.records(side, [one])]
    _, (pair,), _ = join_step.step(join, join_step.JoinState(), came, Clock(0, END_OF_TIME, 0))
    assert join.takes_back is (unmatched == "tell")
    assert ("-0.0" in repr(pair.values)) is not join.takes_back
    cursor = CONNECTION.cursor()
    cursor.register("came", arrow_bundle(join.log, came, 0))
    for side, names in ((LEFT, ("k", "x", "deep")), (RIGHT, ("y",))):
        text = Query(f"SELECT {', '.join(names)} FROM ({join_rows.entries(join, Relation('came'), side)})")
        (row,) = cursor.execute(in_duckdb(text)).fetchall()
        assert repr(row) == repr(tuple(pair.values[name] for name in names))


def in_order(values: Sequence[float | None]) -> list[float]:
    """The values in order: NaN comes last, and there is no negative zero."""
    some = [value + 0.0 for value in values if value is not None]
    return sorted(value for value in some if value == value) + [value for value in some if value != value]


ANSWERS: dict[str, tuple[Combiner, Callable[[list[float]], Any]]] = {
    "all": (Collect("x"), lambda values: values),
    "best": (TopK("x", 3), lambda values: values[::-1][:3]),
    "kinds": (Distinct("x"), lambda values: len(set(map(repr, values)))),
    "middle": (Quantile("x", 0.4), lambda values: values[max(0, ceil(0.4 * len(values)) - 1)] if values else None),
    "least": (Min("x"), lambda values: values[0] if values else None),
    "most": (Max("x"), lambda values: values[-1] if values else None),
}


@pytest.mark.parametrize("type", ["double", "float"])
@pytest.mark.parametrize("name", ANSWERS)
def test_M8_combiners_of_doubles_are_of_all_values_in_any_order_cut_and_after_retractions(name: str, type: str) -> None:
    o, draw = Scalars(), random.Random(name)
    (combiner, answer), types = ANSWERS[name], {"x": type}
    for _ in range(cases(100, 2_000)):
        values, more = (draw.choices(FLOATS, k=draw.randint(0, 8)) for _ in range(2))
        for own in (combiner, taking_back(combiner, type)):
            assert own.reals(types) == types
            (part,), taken = own.parts(type), own is not combiner
            held = [part.zero(o), part.zero(o)]
            came = [(value, False) for value in [*values, *(more if taken else [])]]
            for value, back in [*draw.sample(came, len(came)), *((value, True) for value in more if taken)]:
                read = own.read(o, without_negative_zeros(o, {"x": value}, types), 0)
                terms = own.lift(o, read, type)
                (term,) = taken_back(o, own, terms, type) if back else terms
                side = draw.randint(0, 1)
                held[side] = part.merged(o, held[side], term)
            found = own.result(o, {part.name: part.merged(o, *held)}, type)
            assert repr(found) == repr(answer(in_order(values)))
