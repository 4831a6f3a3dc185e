"""Sums and means of doubles are the exact total, rounded once: in any order, however cut, on any engine (rule M7)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from math import fsum, inf, isfinite, ldexp, nan, nextafter, sqrt, ulp
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Count,
    Fixed,
    Log,
    Max,
    Mean,
    Pipeline,
    StdDev,
    Sum,
    Variance,
    hours,
)
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.algebra import SQUARE_UNITS, Scalars
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.base.types import WHOLE
from tailrace.model.combiners.basic import ENDLESS, LIMBS, Combiner
from tailrace.model.combiners.retraction import taken_back
from tailrace.model.combiners.variance import SQUARES
from tailrace.model.definition.pipeline import UNANSWERED
from tailrace.model.step.reference import fold_stages
from tailrace.model.windows.panes import Accumulation
from tailrace.settings import Settings
from tailrace.sql.terms import Query, Sql
from tailrace.verify.replay import replay
from tests.support.cases.strategies import Epochs
from tests.support.depth import cases
from tests.support.engines.engine_runs import CONNECTION, OnDuck, OnDuckInParts, OnDuckInPython, OnSpark
from tests.support.engines.spark_runs import Said, said_by_reference
from tests.support.lakes.recorded_ledgers import record

START = datetime(2026, 1, 1, tzinfo=UTC)
ALGEBRA = Scalars()
WHY = (
    "a value of x is 2^124 (2.1e37) or more, or has binary digits below 2^-124 (4.7e-38), "
    "so that there is no exact total: leave out such records with keep"
)


def any_double(draw: random.Random) -> float:
    """A double that is summed exactly, of any size, often one whose last digits decide how a sum is rounded."""
    size = draw.choice([(-72, 123), (-5, 5), (50, 64), (-72, -60), (118, 123)])
    digits = draw.choice([0, draw.getrandbits(52), draw.getrandbits(3) << 49, 2**52 - 1])
    return draw.choice([-1, 1]) * ldexp(1 + digits / 2**52, draw.randint(*size))


def multisets(count: int) -> list[list[float]]:
    """Random multisets: of a few values or of many; some that cancel nearly or quite; some that are ties, or nearly."""
    draw, made = random.Random(7), list[list[float]]()
    for _ in range(count):
        values = [any_double(draw) for _ in range(draw.choice([1, 2, 3, 5, 8, 40]))]
        match draw.randint(0, 3):
            case 0:
                values += [-value for value in values if draw.random() < 0.9]
            case 1:
                base = draw.choice([1.0, 3.0, 2.0**52, 2.0**62, 2.0**-10, 2.0**-62, 2.0**72 + 2.0**20])
                half = draw.choice([-1, 1]) * ulp(base) / 2
                values = [draw.choice([-1, 1]) * base, half, draw.choice([0.0, 2.0**-124, -(2.0**-124)])]
            case _:
                pass
        made.append(values)
    return made


MULTISETS = multisets(cases(1000, 20_000))


def accumulated(values: Sequence[float | None], combiner: Combiner) -> list[Any]:
    parts = combiner.parts("double")
    held = [part.zero(ALGEBRA) for part in parts]
    for value in values:
        lifted = combiner.lift(ALGEBRA, value, "double")
        held = [part.merged(ALGEBRA, x, y) for part, x, y in zip(parts, held, lifted, strict=True)]
    return held


def result(held: Sequence[Any], combiner: Combiner) -> Any:
    return combiner.result(
        ALGEBRA, dict(zip((part.name for part in combiner.parts("double")), held, strict=True)), "double"
    )


def test_M7_a_sum_of_doubles_is_the_exact_total_rounded_once_in_any_order() -> None:
    draw, total, mean = random.Random(3), Sum("x"), Mean("x")
    for values in MULTISETS:
        expected, mixed = fsum(values), draw.sample(values, len(values))
        assert result(accumulated(values, total), total) == result(accumulated(mixed, total), total) == expected
        assert result(accumulated(values, mean), mean) == expected / len(values)


def test_M7_a_sum_of_doubles_is_the_same_cut_and_after_retractions() -> None:
    draw, total = random.Random(4), Sum("x")
    parts = total.parts("double")
    for values, more in pairwise(MULTISETS):
        cut = draw.randint(0, len(values))
        whole = [
            part.merged(ALGEBRA, x, y)
            for part, x, y in zip(parts, *(accumulated(of, total) for of in (values[cut:], values[:cut])), strict=True)
        ]
        assert whole == accumulated(values, total)
        for value in draw.sample(more, len(more)):
            lifted = total.lift(ALGEBRA, value, "double")
            back = taken_back(ALGEBRA, total, lifted, "double")
            for terms in (lifted, back):
                whole = [part.merged(ALGEBRA, x, y) for part, x, y in zip(parts, whole, terms, strict=True)]
        assert whole == accumulated(values, total)


ODD = [nan, inf, -inf, None, 0.0, -0.0, 5e-324, 1e300, 2.0**124, -(2.0**124), nextafter(2.0**124, 0), 1.1 * 2.0**-72]
ODD += [2.0**-124, 2.0**-125, -3 * 2.0**-125, 2.5 * 2.0**62, 0.5, 1.5, -0.5, -1.5, nextafter(0.5, 0), 2.0**61, 1e-30]


def in_sql(records: pa.Table, terms: Sequence[str]) -> list[tuple[Any, ...]]:
    """The terms, computed by DuckDB for each record, in the order of `n`."""
    connection = CONNECTION.cursor()
    connection.register("doubles", records)
    items = ", ".join(f"{term} AS `c{place}`" for place, term in enumerate(terms))
    return connection.execute(in_duckdb(Query(f"SELECT {items} FROM doubles ORDER BY n"))).fetchall()


def test_M7_sql_splits_each_double_as_the_model_does() -> None:
    draw = random.Random(5)
    values = [*ODD, *(any_double(draw) * draw.choice([1, 1, 2.0**-60]) for _ in range(5000))]
    rows = in_sql(pa.table({"n": range(len(values)), "x": pa.array(values, pa.float64())}), Sql().limbs("x"))
    assert rows == [ALGEBRA.limbs(value) for value in values]


def test_M7_sql_rounds_the_total_of_doubles_once() -> None:
    held = [accumulated(values, Sum("x")) for values in MULTISETS]
    table = pa.table({"n": range(len(held)), **limb_columns(held), "none": pa.array([0] * len(held), pa.int64())})
    rows = in_sql(table, [Sql().real_of_limbs(*LIMBS, "none", "none")])
    assert [row[0] for row in rows] == [fsum(values) for values in MULTISETS]


def pipeline(how: Accumulation = RETRACTING, **what: Combiner) -> Pipeline:
    log = Log(name="events", columns={"at": "timestamp", "k": "string", "x": "double"}, event_time="at")
    when = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
    combined = {"records": Count(), "total": Sum("x"), "mean": Mean("x")} | what
    return Pipeline(
        name="totals", log=log, key="k", what=combined, where=Fixed(hours(1)), when=when, how=how,
        allowed_lateness=hours(1),
    )  # fmt: skip


def epochs(bundles: Sequence[Sequence[float | None]]) -> Epochs:
    """An epoch of each bundle, and one more in which the input ends."""
    made: Epochs = []
    for epoch, values in enumerate(bundles):
        records = [{"at": START + timedelta(minutes=epoch), "k": "a", "x": value} for value in values]
        made.append((records, Clock(epoch, instant(START), instant(START) + epoch)))
    return [*made, ([], Clock(len(made), END_OF_TIME, instant(START) + len(made)))]


def written(said: list[Said]) -> list[Counter[str]]:
    """What was said as texts, in which a NaN equals a NaN."""
    return [Counter({repr(one): times for one, times in some.items()}) for some in said]


def expected(definition: Pipeline, made: Epochs) -> list[Said]:
    runs = fold_stages(definition, list(made))
    return [said_by_reference(stage, run.panes, run.late) for stage, run in zip(definition.stages, runs, strict=True)]


def compared(definition: Pipeline, made: Epochs) -> None:
    for engine in (OnDuck(), OnDuckInParts(), OnDuckInPython()):
        if len(definition.stages) == 1 or type(engine) is OnDuck:
            assert written(engine.said(definition, made)) == written(expected(definition, made))


def last_answer(definition: Pipeline, made: Epochs) -> Any:
    return [pane for pane in fold_stages(definition, made)[-1].panes if not pane.retraction][-1].answer


@pytest.mark.parametrize("how", list(Accumulation))
def test_M7_duckdb_says_of_doubles_what_the_model_says(how: Accumulation) -> None:
    draw = random.Random(how.value)
    for values in draw.sample(MULTISETS, cases(4, 60)):
        made = epochs([values[:2], values[2:], [None], [1e300], [-inf, 0.1]])
        compared(pipeline(how), made)
        answer = last_answer(pipeline(how), epochs([values[::2], values[1::2]]))
        assert (answer["total"], answer["mean"]) == (fsum(values), fsum(values) / len(values))


def later_stage() -> Pipeline:
    """A stage that adds up the largest value of each window, which a larger one takes the place of."""
    first = pipeline(most=Max("x"))
    what: dict[str, Combiner] = {"all": Sum("most"), "usual": Mean("most"), "sums": Sum("total")}
    when = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
    return Pipeline(name="later", log=first.panes, what=what, where=Fixed(hours(2)), when=when, how=RETRACTING)


@pytest.mark.parametrize(
    ("odd", "total"), [(inf, inf), (-inf, -inf), (nan, nan), ((inf, -inf), nan), (1e300, None), (5e-324, None)]
)
def test_M7_what_is_not_finite_or_out_of_range_comes_and_is_taken_out_again(odd: Any, total: float | None) -> None:
    some = odd if isinstance(odd, tuple) else (odd,)
    draw, combiner = random.Random(1), Sum("x")
    parts = combiner.parts("double")
    for values in MULTISETS[:50]:
        held = accumulated(draw.sample([*values, *some], len(values) + len(some)), combiner)
        assert repr(result(held, combiner)) == repr(total)
        for value in some:
            back = taken_back(ALGEBRA, combiner, combiner.lift(ALGEBRA, value, "double"), "double")
            held = [part.merged(ALGEBRA, x, y) for part, x, y in zip(parts, held, back, strict=True)]
        assert result(held, combiner) == fsum(values)


def test_M7_a_later_stage_takes_out_again_what_an_earlier_one_takes_back() -> None:
    for bundles in ([[0.1], [0.2, 1e16], [inf]], [[-inf], [0.3], [7.5]], [[1.0, 1e300], [2.0]], [[0.1], [nan], [0.2]]):
        compared(later_stage(), epochs(bundles))
    answer = last_answer(later_stage(), epochs([[0.1], [0.2], [0.7]]))
    assert (answer["all"], answer["sums"]) == (0.7, fsum([0.1, 0.2, 0.7]))


@pytest.mark.parametrize("value", [1e40, -(2.0**124), 1e-30, 5e-324])
def test_M7_a_double_out_of_range_makes_the_total_null_with_why(value: float) -> None:
    answer = last_answer(pipeline(), epochs([[0.1, value], [0.2]]))
    assert (answer["records"], answer["total"], answer["mean"]) == (3, None, None)
    assert answer[UNANSWERED] == f"total: {WHY}; mean: {WHY}"


@pytest.mark.parametrize("how", list(Accumulation))
def test_M7_a_ledger_with_sums_of_doubles_replays_row_for_row(how: Accumulation) -> None:
    made = epochs([[0.1, 1e16], [0.2], [nan], [-1e16, inf], [1e40]])
    with TemporaryDirectory() as folder:
        lake = Lake(Settings(warehouse=Path(folder) / "lake", engine="duckdb", memory="1GB"))
        record(lake, pipeline(how), made, restarts=[1, 2, 3])
        assert replay(lake, pipeline(how)).ok
        (answer,) = lake.table("totals").scan().to_arrow().to_pylist()
        assert (answer["total"], answer["mean"], answer[UNANSWERED]) == (None, None, f"total: {WHY}; mean: {WHY}")


# --------------------------------------------------------------------------------------------------------- variances

SPREADS = [[value for value in values if abs(value) < 2.0**62] or [0.1] for values in MULTISETS[: cases(400, 4000)]]
SPREADS += [[1e9 + random.Random(n).random() for n in range(size)] for size in (2, 3, 50)]
SPREADS += [[0.1] * size for size in (1, 2, 7, 100)] + [[3.0, 3.0, nextafter(3.0, 4)]]
WHY_SQUARES = (
    "a value of x is 2^62 (4.6e18) or more, or has binary digits below 2^-124 (4.7e-38), "
    "so that there is no exact total of squares: leave out such records with keep"
)


def exact_variance(values: Sequence[float], population: bool = False) -> float | None:
    """The exact numerator, rounded to a double and divided as a double."""
    n, exact = len(values), [Fraction(value) for value in values]
    if n < (1 if population else 2):
        return None
    above = n * sum(value**2 for value in exact) - sum(exact) ** 2
    return (above.numerator / above.denominator) / (n * (n if population else n - 1))


@pytest.mark.parametrize("population", [False, True])
def test_M7_a_variance_of_doubles_is_of_the_exact_totals_in_any_order_cut_and_after_retractions(
    population: bool,
) -> None:
    draw, spread, root = random.Random(8), Variance("x", population), StdDev("x", population)
    parts = spread.parts("double")
    for values, more in pairwise(SPREADS):
        expected, mixed = exact_variance(values, population), draw.sample(values, len(values))
        held = accumulated(mixed, spread)
        assert held == accumulated(values, spread)
        assert result(held, spread) == expected
        assert result(held, root) == (None if expected is None else sqrt(expected))
        for value in [*more, nan, inf, 1e300]:
            lifted = spread.lift(ALGEBRA, value, "double")
            back = taken_back(ALGEBRA, spread, lifted, "double")
            for terms in (lifted, back):
                held = [part.merged(ALGEBRA, x, y) for part, x, y in zip(parts, held, terms, strict=True)]
        assert held == accumulated(values, spread)


def square_values() -> list[float | None]:
    draw = random.Random(9)
    edge: list[float | None] = [2.0**62, nextafter(2.0**62, 0), -(2.0**62) + 512, 2.0**-124, 3 * 2.0**-124]
    return [*ODD, *edge, *(any_double(draw) * draw.choice([1, 1, 2.0**-60]) for _ in range(3000))]


def test_M7_sql_splits_the_square_of_each_double_as_the_model_does() -> None:
    values = square_values()
    rows = in_sql(pa.table({"n": range(len(values)), "x": pa.array(values, pa.float64())}), Sql().square_limbs("x"))
    for value, row in zip(values, rows, strict=True):
        *limbs, large = ALGEBRA.square_limbs(value)
        assert row == (*limbs, large), value
        if value is not None and not large and isfinite(value) and not ALGEBRA.limbs(value)[6]:
            total = sum(Fraction(limb) * Fraction(unit) for limb, unit in zip(limbs, SQUARE_UNITS, strict=True))
            assert total == Fraction(value) ** 2


def spread_table() -> pa.Table:
    """The accumulators of variances, one for each multiset."""
    names, held = Variance("x").parts("double"), [accumulated(values, Variance("x")) for values in SPREADS]
    columns = {
        part.name if part.name != "n" else "count": pa.array(
            [row[place] for row in held], pa.decimal128(38, 0) if part.type == WHOLE else pa.int64()
        )
        for place, part in enumerate(names)
    }
    return pa.table({"n": range(len(held)), **columns})


SPREAD = Sql().spread_of_limbs("count", LIMBS, SQUARES, ENDLESS)


def test_M7_sql_rounds_the_numerator_of_a_variance_once() -> None:
    rows = in_sql(spread_table(), [SPREAD])
    expected = [exact_numerator(values) for values in SPREADS]
    assert [row[0] for row in rows] == expected


def exact_numerator(values: Sequence[float]) -> float:
    exact = [Fraction(value) for value in values]
    above = len(values) * sum(value**2 for value in exact) - sum(exact) ** 2
    return above.numerator / above.denominator


def spreads(how: Accumulation = RETRACTING) -> Pipeline:
    what: dict[str, Combiner] = {"spread": Variance("x"), "root": StdDev("x", population=True)}
    return replace(pipeline(how), what=what)


def test_M7_duckdb_says_of_variances_of_doubles_what_the_model_says() -> None:
    draw = random.Random(10)
    for values in draw.sample(SPREADS, cases(1, 20)):
        compared(spreads(), epochs([values[:2], values[2:], [None], [1e300], [-inf, 0.1]]))
        answer = last_answer(spreads(), epochs([values[::2], values[1::2]]))
        assert answer["spread"] == exact_variance(values)


def test_M7_a_later_stage_takes_values_out_of_a_variance_of_doubles() -> None:
    later = replace(later_stage(), what={"spread": Variance("most")})
    compared(later, epochs([[0.1], [0.2, 1e16], [inf]]))


@pytest.mark.parametrize(("odd", "spread"), [(inf, nan), (nan, nan), (1e300, None), (2.0**62, None), (5e-324, None)])
def test_M7_a_variance_is_nan_or_null_with_why_while_a_value_is_not_finite_or_out_of_range(
    odd: float, spread: float | None
) -> None:
    answer = last_answer(spreads(), epochs([[0.5, odd], [0.25]]))
    assert [repr(answer[name]) for name in ("spread", "root")] == [repr(spread)] * 2
    if spread is None:
        assert f"spread: {WHY_SQUARES}" in answer[UNANSWERED]


@pytest.mark.spark
def test_M7_spark_computes_variances_of_doubles_as_the_model_does(plain: SparkSession) -> None:
    values = square_values()[:600]
    records = plain.createDataFrame(pa.table({"n": range(len(values)), "x": pa.array(values, pa.float64())}))
    terms = (f"{term} AS c{n}" for n, term in enumerate(Sql().square_limbs("x")))
    assert [tuple(row) for row in records.orderBy("n").selectExpr(*terms).collect()] == [
        ALGEBRA.square_limbs(value) for value in values
    ]
    sums = plain.createDataFrame(spread_table()).orderBy("n").selectExpr(f"{SPREAD} AS spread").collect()
    assert [row[0] for row in sums] == [exact_numerator(values) for values in SPREADS]
    made = epochs([[0.1, 1e9, None], [0.2, -1e16], [nan], [1e40, inf]])
    assert written(OnSpark(plain).said(spreads(), made)) == written(expected(spreads(), made))


def sums_of_limbs(count: int) -> list[tuple[int, int]]:
    """Random sums of the two middle limbs: numbers about where SQL rounds them in one addition, ties, and near ties."""
    draw, made = random.Random(9), list[tuple[int, int]]()
    for _ in range(count):
        number = draw.choice(
            [1, 2, 3, 3.5, 4, 5.5, 2.0**52 - 1, 2.0**52, ldexp(1 + draw.random(), draw.randint(0, 54))]
        )
        exact = Fraction(number) + draw.choice([0, 1, -1, 3]) * Fraction(ulp(number)) / 2
        units = int(exact * 2**62) + draw.choice([0, 0, 1, -1, 511, 512, -512, draw.getrandbits(61)])
        whole, small = divmod(draw.choice([1, -1]) * units, 2**62)
        moved = draw.choice([0, 0, 1, -1, draw.randint(-(2**37), 2**37), draw.choice([1, -1]) * 2**45])
        made.append((whole - moved, small + moved * 2**62))
    return made


def test_M7_sql_rounds_totals_of_usual_size_once() -> None:
    sums = sums_of_limbs(cases(20_000, 500_000))
    table = pa.table({"n": range(len(sums)), **limb_columns([(0, whole, small, 0) for whole, small in sums])})
    rows = in_sql(table, [Sql().real_of_limbs(*LIMBS, "0L", "0L")])
    assert [row[0] for row in rows] == [ALGEBRA.real_of_limbs(0, *limbs, 0, 0, 0) for limbs in sums]


def limb_columns(sums: Sequence[Sequence[int]]) -> dict[str, pa.Array]:
    return {name: pa.array([row[n] for row in sums], pa.decimal128(38, 0)) for n, name in enumerate(LIMBS)}


@pytest.mark.spark
def test_M7_spark_splits_and_rounds_doubles_as_the_model_does(plain: SparkSession) -> None:
    draw = random.Random(6)
    values = [*ODD, *(any_double(draw) for _ in range(500))]
    sums: list[list[Any]] = [accumulated(some, Sum("x")) for some in MULTISETS[:500]]
    sums += [[0, *of, 0] for of in sums_of_limbs(500)]
    records = plain.createDataFrame(pa.table({"n": range(len(values)), "x": pa.array(values, pa.float64())}))
    rows = records.orderBy("n").selectExpr(*(f"{term} AS c{n}" for n, term in enumerate(Sql().limbs("x")))).collect()
    assert [tuple(row) for row in rows] == [ALGEBRA.limbs(value) for value in values]
    held = plain.createDataFrame(pa.table({"n": range(len(sums)), **limb_columns(sums)}))
    term = Sql().real_of_limbs(*LIMBS, "0L", "0L")
    totals = [row[0] for row in held.orderBy("n").selectExpr(f"{term} AS total").collect()]
    assert totals == [ALGEBRA.real_of_limbs(*of, 0, 0) for of in ((row[0], row[1], row[2], row[3]) for row in sums)]


@pytest.mark.spark
def test_M7_spark_says_of_doubles_what_the_model_says(plain: SparkSession) -> None:
    made = epochs([[0.1, 1e16, None], [0.2, -1e16], [nan], [1e40, inf]])
    assert written(OnSpark(plain).said(pipeline(), made)) == written(expected(pipeline(), made))
    assert written(OnSpark(plain).said(later_stage(), made[:2])) == written(expected(later_stage(), made[:2]))
