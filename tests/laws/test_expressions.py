"""Expressions over values at the ends of their types: a value, none, or a reason, the same in every execution (X7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import Col, Derive, If, Log, Map, Match, Missing
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.dialect import in_duckdb_once
from tailrace.engines.spark.executions.preparation import prepare
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.lake.schema.iceberg_types import arrow_schema
from tailrace.model.base.errors import DefinitionError
from tailrace.model.base.expressions import Expression, Value
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
from tailrace.model.definition.record_steps import ElementWise, taken_through
from tailrace.settings import Settings
from tailrace.sql.records.selections import FAILED, query_steps
from tailrace.sql.terms import Relation, all_of
from tests.support.cases.strategies import examples
from tests.support.engines.spark_runs import in_parts

TYPES = {
    "n": "bigint",
    "m": "bigint",
    "lane": "int",
    "price": "decimal(10,2)",
    "exact": "decimal(16,9)",
    "at": "timestamp",
    "due": "timestamp",
    "sort": "string",
    "real": "double",
    "small": "float",
}
LOG = Log(name="ends", columns=TYPES, event_time="at")


def ends(least: int, most: int) -> st.SearchStrategy[int]:
    """The ends of a range, what is beside them, and small numbers and roots between."""
    near = [least, least + 1, most - 1, most, 0, 1, -1, 3_037_000_499, 3_037_000_500, -3_037_000_500]
    return st.sampled_from([one for one in near if least <= one <= most]) | st.integers(least, most)


def digits(whole: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**whole - 1
    return ends(-most, most).map(lambda units: Decimal(units).scaleb(-scale))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": ends(-(2**63), 2**63 - 1),
    "m": ends(-(2**63), 2**63 - 1),
    "lane": ends(-(2**31), 2**31 - 1),
    "price": digits(10, 2),
    "exact": digits(16, 9),
    "due": ends(BEGINNING, END_OF_TIME).map(moment),
    "sort": st.sampled_from(["a", "it's", "\\"]),
    "real": st.floats() | st.sampled_from([0.1, -0.0, 1e308, 5e-324, 12.99]),
    "small": st.floats(width=32),
}
RECORDS = st.fixed_dictionaries(
    {name: st.none() | values for name, values in VALUES.items()} | {"at": ends(BEGINNING, END_OF_TIME).map(moment)}
)
CONDITIONS = st.sampled_from(
    [Match("n", "<", 1000), ~Match("sort", "==", "it's"), Missing("m") | Match("lane", ">=", 0)]
)
WHOLE = st.sampled_from([1, 2, 7, 100, 2**31, 2**63 - 1])
LEAVES: st.SearchStrategy[Expression] = st.sampled_from([Col("n"), Col("m"), Col("lane"), Col("at"), Col("due")]) | (
    st.sampled_from([Value(one) for one in (0, 1, -1, 2, 10**9, 2**63 - 1, -(2**63) + 1, timedelta(days=9))])
)


def combined(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        st.builds(lambda a, b: a + b, parts, parts),
        st.builds(lambda a, b: a - b, parts, parts),
        st.builds(lambda a, b: a * b, parts, parts),
        st.builds(lambda a, by: a // by, parts, WHOLE | st.just(timedelta(minutes=1))),
        st.builds(If, CONDITIONS, parts, parts | st.none()),
    )


DECIMALS: st.SearchStrategy[Expression] = st.sampled_from(
    [
        Col("price") * Col("exact"),
        Col("price") + Col("n"),
        Col("exact") - Decimal("0.000000001"),
        (Col("n") * Col("m")) * Decimal("0.5"),
        If(Match("n", ">", 5), Col("exact"), Col("n")),
        If(Missing("sort"), Decimal("1." + "3" * 17), Col("m") * Col("n")),
        If(Match("n", ">", 5), Decimal("1." + "0" * 18), Col("m") * Col("m")),
    ]
)
EXPRESSIONS = st.recursive(LEAVES, combined, max_leaves=6)
REALS = st.recursive(
    st.sampled_from([Col("real"), Col("small"), Col("price"), Col("exact"), Col("n"), Value(Decimal("1.19"))]),
    lambda parts: st.one_of(
        st.builds(lambda a, b: Col("real") * a + b, parts, parts),
        st.builds(lambda a, b: a - b * Col("small"), parts, parts),
        st.builds(lambda a, b: If(Match("n", ">", 5), a, b + Col("real")), parts, parts),
    ),
    max_leaves=4,
)


@st.composite
def steps(draw: st.DrawFn) -> tuple[ElementWise, ...]:
    """A step or two of random expressions; the second may use what the first has made."""
    first = Derive({"p": draw(EXPRESSIONS), "q": draw(EXPRESSIONS | DECIMALS | REALS)})
    second = Derive({"r": Col("p") * draw(EXPRESSIONS)})
    return (first, second) if draw(st.booleans()) else (first,)


def by_reference(each: tuple[ElementWise, ...], records: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for record in records:
        (made, reasons) = taken_through(each, record, TYPES)
        yield (reasons[0],) if reasons else (None, *(comparable(made[0][name]) for name in new(each)))


def ended(each: tuple[ElementWise, ...]) -> Map:
    """The map of the steps; its productions have no float, which is not a plain type."""
    return Map(name="ended", log=LOG, each=each, what=(*(name for name in TYPES if name != "small"), *new(each)))


def new(each: tuple[ElementWise, ...]) -> list[str]:
    return [name for step in each if isinstance(step, Derive) for name in step.values]


def by_rows(each: tuple[ElementWise, ...], rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        why = row.get(FAILED)
        yield (why,) if why is not None else (None, *(comparable(row[name]) for name in new(each)))


def comparable(value: Any) -> Any:
    """A double as its text, so that NaN is equal to itself, and a negative zero is not zero."""
    return repr(value) if isinstance(value, float) else value


def as_table(records: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(records, schema=arrow_schema(TYPES))


def in_process(
    database: duckdb.DuckDBPyConnection, each: tuple[ElementWise, ...], rows: pa.Table
) -> list[dict[str, Any]]:
    text = query_steps(ended(each), Relation("rows_of_ends"), list(TYPES))
    assert text is not None
    database.register("rows_of_ends", rows)
    found: list[dict[str, Any]] = database.execute(in_duckdb_once(all_of(text))).to_arrow_table().to_pylist()
    return found


@cache
def database() -> duckdb.DuckDBPyConnection:
    return connect(Settings(), threads=1)


@examples(250)
@given(steps(), st.lists(RECORDS, min_size=1, max_size=8))
def test_X7_a_number_that_does_not_fit_rejects_its_record_in_the_reference_and_on_duckdb(
    each: tuple[ElementWise, ...], records: list[dict[str, Any]]
) -> None:
    rows = in_process(database(), each, as_table(records))
    assert list(by_rows(each, rows)) == list(by_reference(each, records))


@in_parts(6, deeper=40, of=10)
def test_X7_a_number_that_does_not_fit_rejects_its_record_on_spark(plain: SparkSession, data: st.DataObject) -> None:
    each, records = data.draw(steps()), data.draw(st.lists(RECORDS, min_size=1, max_size=12))
    one = ended(each)
    rows = prepare(frame_of(plain, as_table(records)), one).toArrow().to_pylist()
    assert list(by_rows(each, rows)) == list(by_reference(each, records))


@examples(100)
@given(EXPRESSIONS | DECIMALS | REALS, st.lists(RECORDS, min_size=1, max_size=8))
def test_X7_what_the_types_prove_to_fit_always_does(one: Expression, records: list[dict[str, Any]]) -> None:
    step = Derive({"p": one})
    if not step.may_fail(TYPES):
        for record in records:
            _, reasons = taken_through((step,), record, TYPES)
            assert not reasons
        for row in in_process(database(), (step,), as_table(records)):
            assert FAILED not in row


def test_X7_only_what_may_not_fit_has_a_reason() -> None:
    whole, minute = Col("n"), timedelta(minutes=1)
    sure = [
        Col("lane") * Col("lane"), (Col("due") - Col("at")) // minute, whole // 7, Col("lane") * 1000 + Col("lane"),
        Col("price") * Col("n"), If(Match("n", ">", 3), whole, 0), Col("at") + minute, Value(2) * 3,
    ]  # fmt: skip
    assert not any(Derive({"p": one}).may_fail(TYPES) for one in sure)
    reasons = {
        whole * Col("m"): "p: n * m does not fit a bigint",
        (whole + 1) // 10: "p: n + 1 does not fit a bigint",
        (whole * Col("m") - 1) * Decimal("0.5"): "p: (n * m) - 1 does not fit a bigint",
        If(Missing("sort"), whole * 2, Col("m") - 1): "p: n * 2 or m - 1 does not fit a bigint",
    }
    for one, reason in reasons.items():
        assert Derive({"p": one}).reasons(TYPES) == {"p": reason}


def test_a_branch_that_is_not_taken_rejects_nothing() -> None:
    step = Derive({"p": If(Match("n", "<", 1000), Col("n") * Col("n"), 0)})
    for n, p in ((999, 998_001), (2**62, 0), (None, 0)):
        assert taken_through((step,), {"n": n}, TYPES).records == [{"n": n, "p": p}]


@pytest.mark.parametrize(
    ("one", "path"),
    [
        (Value(2**63), "each[0].values['p']"),
        (Value(Decimal("1E+40")), "each[0].values['p']"),
        (Col("n") // 2**63, "each[0].values['p'].by"),
    ],
)
def test_a_constant_that_no_column_holds_is_refused(one: Expression, path: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(path)):
        Map(name="ended", log=LOG, each=Derive({"p": one}))
