"""Results at the ends of their types: totals stay exact, and what leaves its type is null with why (rule X7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Count,
    Fixed,
    Log,
    Mean,
    OwnCombiner,
    Pipeline,
    Quantile,
    Sessions,
    Sum,
    Variance,
    hours,
    minutes,
)
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.read.late_report import late_report
from tailrace.lake.schema.contracts import Contract, log_contract
from tailrace.lake.schema.lake_errors import FormerShapeError
from tailrace.lake.schema.pipeline_tables import answer_contract, ledger_contract
from tailrace.model.base.algebra import Scalars
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.base.types import decimal_parts, element_type, struct_fields, struct_type
from tailrace.model.combiners.basic import Combiner
from tailrace.model.definition.pipeline import UNANSWERED
from tailrace.model.step.reference import fold, fold_stages
from tailrace.model.windows.panes import Accumulation
from tailrace.settings import Settings
from tailrace.verify.replay import replay
from tests.support.cases.strategies import examples
from tests.support.depth import deep
from tests.support.engines.engine_runs import OnDuck, OnDuckInParts, OnSpark
from tests.support.engines.spark_runs import said_by_reference
from tests.support.lakes.recorded_ledgers import Epochs, record

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST, LEAST = 2**63 - 1, -(2**63)

TYPES = ("int", "bigint", "decimal(18,6)", "decimal(27,2)", "decimal(28,10)", "decimal(38,0)", "decimal(38,18)")


def units(type: str) -> st.SearchStrategy[int]:
    """Whole numbers of a type, of its last decimals, most of them at its ends."""
    parts = decimal_parts(type)
    end = {"int": 2**31, "bigint": 2**63}.get(type) or 10 ** (parts or (0, 0))[0]
    low = -end if parts is None else 1 - end
    near = st.one_of(st.integers(low, low + 3), st.integers(end - 4, end - 1))
    return st.one_of(near, st.integers(-9, 9), st.integers(low, end - 1))


def value(type: str, number: int) -> Any:
    parts = decimal_parts(type)
    return number if parts is None else Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -parts[1]))


def pipeline(type: str, what: dict[str, Combiner], how: Accumulation = RETRACTING, **more: Any) -> Pipeline:
    log = Log(name="events", columns={"at": "timestamp", "k": "string", "n": type}, event_time="at")
    when = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
    given: dict[str, Any] = {
        "key": "k",
        "where": Fixed(hours(1)),
        "when": when,
        "how": how,
        "allowed_lateness": hours(1),
    } | more
    return Pipeline(name="totals", log=log, what={"records": Count(), **what}, **given)


def combined(type: str) -> dict[str, Combiner]:
    what: dict[str, Combiner] = {"total": Sum("n"), "mean": Mean("n")}
    small = (decimal_parts(type) or (0, 0))[0] <= 18
    return what | ({"spread": Variance("n"), "whole_spread": Variance("n", population=True)} if small else {})


def bundles(type: str, numbers: Sequence[Sequence[int]]) -> Epochs:
    """An epoch of each bundle of numbers, and one more in which the input ends."""
    made = []
    for epoch, some in enumerate(numbers):
        records = [{"at": START + timedelta(minutes=epoch), "k": "a", "n": value(type, number)} for number in some]
        made.append((records, Clock(epoch, instant(START), instant(START) + epoch)))
    return [*made, ([], Clock(len(made), END_OF_TIME, instant(START) + len(made)))]


def compared(definition: Pipeline, made: Epochs) -> None:
    runs = fold_stages(definition, list(made))
    expected = [
        said_by_reference(stage, run.panes, run.late) for stage, run in zip(definition.stages, runs, strict=True)
    ]
    assert OnDuck().said(definition, made) == expected
    if len(definition.stages) == 1:
        assert OnDuckInParts().said(definition, made) == expected


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.slow
@examples(3, deeper=60)
@given(data=st.data())
def test_X7_totals_at_their_types_ends_are_exact_or_null_with_why_on_duckdb(type: str, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.lists(units(type), max_size=4), min_size=1, max_size=4))
    how = data.draw(st.sampled_from(list(Accumulation)))
    where = data.draw(st.sampled_from([Fixed(hours(1)), Sessions(minutes(10))]))
    definition = pipeline(type, combined(type), how, where=where)
    made = bundles(type, numbers)
    compared(definition, made)
    answers = [pane for pane in fold(definition, made).panes if not pane.retraction]
    for pane in answers[-1:]:
        _answered(definition, type, [number for some in numbers for number in some], pane.answer)


def _answered(definition: Pipeline, type: str, numbers: Sequence[int], answer: Any) -> None:
    """The answer of all numbers, computed by hand."""
    total = sum(numbers)
    end = 2**63 if decimal_parts(type) is None else 10 ** (decimal_parts(definition.results["total"]) or (0, 0))[0]
    fits = -end <= total < end if type in ("int", "bigint") else abs(total) < end
    assert answer["total"] == (value(type, total) if fits else None)
    assert (answer.get(UNANSWERED) is None) == fits
    with localcontext() as context:
        context.prec = 90
        assert answer["mean"] == float(value(type, total)) / len(numbers)


@pytest.mark.slow
@examples(3, deeper=60)
@given(data=st.data())
def test_X7_what_later_stages_take_back_gives_their_totals_back(data: st.DataObject) -> None:
    type = data.draw(st.sampled_from(["bigint", "decimal(38,2)"]))
    numbers = data.draw(st.lists(st.lists(units(type), max_size=3), min_size=1, max_size=4))
    first = pipeline(type, combined(type) if type == "bigint" else {"total": Sum("n")})
    what: dict[str, Combiner] = {"all": Sum("total"), "mean": Mean("total"), "some": Count("total")}
    later = Pipeline(name="later", log=first.panes, what=what, where=Fixed(hours(2)), when=first.when, how=RETRACTING)
    compared(later, bundles(type, numbers))


@pytest.mark.parametrize(
    ("numbers", "total"), [([[MOST], [1]], None), ([[MOST], [1], [-1]], MOST), ([[LEAST, -1], [1]], LEAST)]
)
def test_X7_a_total_that_comes_back_into_its_type_is_given_again(numbers: list[list[int]], total: int | None) -> None:
    panes = fold(pipeline("bigint", combined("bigint")), bundles("bigint", numbers)).panes
    last = [pane for pane in panes if not pane.retraction][-1]
    assert last.answer["total"] == total
    assert (UNANSWERED in last.answer) == (total is None)


@pytest.mark.parametrize("how", list(Accumulation))
@pytest.mark.parametrize("type", ["bigint", "decimal(38,18)"])
def test_X7_a_ledger_with_results_that_left_their_type_replays_row_for_row(type: str, how: Accumulation) -> None:
    end = MOST if type == "bigint" else 10**38 - 1
    made = bundles(type, [[end, 3], [end], [-end, -5], [-end]])
    with TemporaryDirectory() as folder:
        lake = Lake(Settings(warehouse=Path(folder) / "lake", engine="duckdb", memory="1GB"))
        definition = pipeline(type, combined(type), how)
        record(lake, definition, made, restarts=[1, 2, 3])
        assert replay(lake, definition).ok
        (answer,) = lake.table("totals").scan().to_arrow().to_pylist()
        assert (answer["total"], answer[UNANSWERED]) == (value(type, -2), None)


def former(contract: Contract) -> Contract:
    """The contract as it was before totals had room for what leaves their type."""

    def without(type: str) -> str:
        if (element := element_type(type)) is not None:
            return f"array<{without(element)}>"
        if (fields := struct_fields(type)) is not None:
            return struct_type({name: without(one) for name, one in fields.items() if not _is_new(name)})
        return type

    columns = {n: replace(c, type=without(c.type)) for n, c in contract.columns.items() if not _is_new(n)}
    return replace(contract, columns=columns)


def _is_new(name: str) -> bool:
    return name == UNANSWERED or name.endswith(("_over", "_high"))


@pytest.mark.parametrize("where", [Fixed(hours(1)), Sessions(minutes(30))], ids=["fixed", "sessions"])
@pytest.mark.parametrize("how", list(Accumulation))
@pytest.mark.parametrize("type", ["bigint", "decimal(38,18)"])
def test_X7_a_ledger_of_before_is_read_on_with_columns_for_what_leaves(
    type: str, how: Accumulation, where: Any
) -> None:
    definition = pipeline(type, combined(type), how, where=where)
    end = MOST if type == "bigint" else 10**38 - 1
    made = bundles(type, [[end - 5], [3, 1], [9], [-9]])
    with TemporaryDirectory() as folder:
        new, old = (Lake(Settings(warehouse=Path(folder) / n, engine="duckdb", memory="1GB")) for n in ("new", "old"))
        record(new, definition, made[:2])
        _copied(new, old, definition)
        with pytest.raises(FormerShapeError, match="tables apply"):
            check_definition(old, definition)
        # What reads no accumulator, as the numbers of `status` do, goes on before that.
        assert late_report(old, definition).records == 0
        for lake in (new, old):
            record(lake, definition, made[2:], restarts=[1])
        assert _rows(old, definition) == _rows(new, definition)
        check_definition(old, definition)
        assert replay(old, definition, 2).ok


def _copied(new: Lake, old: Lake, definition: Pipeline) -> None:
    """Copy a lake's tables in the shape that they had before."""
    for contract in (log_contract(definition.log), ledger_contract(definition), answer_contract(definition)):
        was, head = former(contract), new.head(contract.table)
        properties = {n: v for n, v in new.table(contract.table).properties.items() if n not in was.properties}
        old.ensure(replace(was, properties={**was.properties, **properties}), {"epoch": "-1"})
        rows = new.table(contract.table).scan().to_arrow()
        schema = old.table(contract.table).schema().as_arrow()
        kept = pa.table([rows[name].cast(schema.field(name).type) for name in schema.names], schema=schema)
        files = tuple(old.write_files(contract.table, kept))
        old.change(contract.table, FileChange(files), head.properties, old.head(contract.table).snapshot)


def _rows(lake: Lake, definition: Pipeline) -> list[str]:
    shape = ledger_contract(definition).columns
    rows = lake.table(f"{definition.name}__ledger").scan().to_arrow().to_pylist()
    return sorted(repr({name: _sorted(row[name]) for name in shape}) for row in rows if row["epoch"] > 1)


def _sorted(value: Any) -> Any:
    if isinstance(value, list):
        return [_sorted(one) for one in value]
    return dict(sorted((n, _sorted(one)) for n, one in value.items())) if isinstance(value, dict) else value


@dataclass(frozen=True)
class Product(OwnCombiner):
    """The product of numbers, but 77 has no result."""

    column: str
    state = gives = "bigint"

    def zero(self) -> int:
        return 1

    def add(self, state: int, value: int) -> int:
        return state * value

    def merge(self, a: int, b: int) -> int:
        return a * b

    def output(self, state: int) -> int:
        if state == 77:
            raise LookupError("77")
        return state


@pytest.mark.parametrize("how", list(Accumulation))
@pytest.mark.parametrize(
    ("numbers", "product", "why"),
    [
        ([[2], [3]], 6, None),
        ([[2**62], [2, 4], [5]], None, "product: the state is out of bigint"),
        ([[7], [11]], None, "product: output raised LookupError: 77"),
        ([[7], [11], [2]], 154, None),
    ],
)
def test_X7_code_of_ones_own_that_fails_costs_its_window_the_result_alone(
    numbers: list[list[int]], product: int | None, why: str | None, how: Accumulation
) -> None:
    definition = pipeline("bigint", {"product": Product("n"), "total": Sum("n")}, how)
    made = bundles("bigint", numbers)
    compared(definition, made)
    last = [pane for pane in fold(definition, made).panes if not pane.retraction][-1]
    assert (last.answer["product"], last.answer.get(UNANSWERED)) == (product, why)
    assert last.answer["total"] == sum(map(sum, numbers))
    with TemporaryDirectory() as folder:
        lake = Lake(Settings(warehouse=Path(folder) / "lake", engine="duckdb", memory="1GB"))
        record(lake, definition, made, restarts=[1, 2])
        assert replay(lake, definition).ok
        (answer,) = lake.table("totals").scan().to_arrow().to_pylist()
        assert (answer["product"], answer[UNANSWERED]) == (product, why)


@pytest.mark.parametrize(
    ("share", "count", "place"), [(0.28, 25, 7), (0.07, 100, 7), (0.5, 3, 2), (1, 4, 4), (0, 4, 1), (0.29, 100, 29)]
)
def test_the_rank_of_a_quantile_is_the_shares_own_and_not_a_doubles(share: float, count: int, place: int) -> None:
    quantile = Quantile("n", share)
    assert quantile.result(Scalars(), {"state": list(range(1, count + 1))}, "bigint") == place
    compared(pipeline("bigint", {"at": quantile}), bundles("bigint", [range(1, count + 1)]))


# Spark takes half a minute to compile each; DuckDB says the same of all of them above.
_ORDINARY = {("bigint", Accumulation.RETRACTING), ("decimal(38,18)", Accumulation.ACCUMULATING)}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("type", "how"),
    [
        pytest.param(type, how, marks=() if (type, how) in _ORDINARY else deep)
        for type in ("bigint", "decimal(18,6)", "decimal(28,10)", "decimal(38,0)", "decimal(38,18)")
        for how in Accumulation
    ],
)
def test_X7_spark_says_the_same_at_a_types_ends(plain: SparkSession, type: str, how: Accumulation) -> None:
    definition = pipeline(type, combined(type), how)
    end = MOST if decimal_parts(type) is None else 10 ** (decimal_parts(type) or (0, 0))[0] - 1
    made = bundles(type, [[end, 3], [end, -end], [end], [-end, -5], [-end, 2**53 + 1], [7]])
    run = fold(definition, made)
    assert OnSpark(plain).said(definition, made) == [said_by_reference(definition, run.panes, run.late)]
