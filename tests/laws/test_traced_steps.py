"""A function that is compiled to SQL gives what Python gives, for every record: the values, or the reason (X7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import product, zip_longest
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import Derive, Each, Log, Map
from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.executions.preparation import Stepping
from tailrace.engines.spark.executions.preparation import prepare
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.lake.schema.iceberg_types import arrow_schema
from tailrace.model.base.expressions import Col
from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment
from tailrace.model.definition.record_steps import taken_through
from tailrace.settings import Settings
from tailrace.sql.records.selections import FAILED
from tailrace.sql.records.traced_steps import traced, tracing_of, unsure_records
from tailrace.sql.terms import Relation, all_of
from tests.laws.test_expressions import comparable, digits, ends
from tests.support.cases.strategies import examples
from tests.support.engines.sessions import in_process as session_in_process
from tests.support.engines.spark_runs import in_parts

TYPES = {
    "id": "bigint",
    "a": "bigint",
    "b": "bigint",
    "lane": "int",
    "x": "double",
    "y": "double",
    "small": "float",
    "price": "decimal(10,2)",
    "exact": "decimal(16,9)",
    "s": "string",
    "t": "string",
    "ok": "boolean",
    "no": "boolean",
    "at": "timestamp",
    "due": "timestamp",
}
LOG = Log(name="traced", columns=TYPES, event_time="at")
WHOLE = ends(-(2**63), 2**63 - 1) | st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**31, 5, -5, 7, -7])
REAL = st.floats() | st.sampled_from([0.0, -0.0, 0.1, -7.5, 3.0, 1e308, 5e-324, 2.0**53, float("nan"), float("inf")])
LETTERS = ["", "a", "b", "Ab", "it's", "\\", "ß", "straße", "é", "ﬀ", "\U0001f600", "\uffff", "İ"]
TEXT = st.sampled_from(LETTERS) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
TRUTH = st.booleans()
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "a": WHOLE,
    "b": WHOLE,
    "lane": ends(-(2**31), 2**31 - 1),
    "x": REAL,
    "y": REAL,
    "small": st.floats(width=32),
    "price": digits(10, 2),
    "exact": digits(16, 9),
    "s": TEXT,
    "t": TEXT,
    "ok": TRUTH,
    "no": TRUTH,
    "due": ends(BEGINNING, END_OF_TIME).map(moment),
}
RECORDS = st.lists(
    st.fixed_dictionaries(
        {name: (values if name in "abxs" else st.none() | values) for name, values in VALUES.items()}
        | {"at": ends(BEGINNING, END_OF_TIME).map(moment)}
    )
    | st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()} | {"at": st.just(moment(0))}),
    min_size=1,
    max_size=10,
)


def both(pattern: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda found: pattern.format(*found))


def columns(*names: str) -> st.SearchStrategy[str]:
    return st.sampled_from([*(f'r["{name}"]' for name in names), f'r.get("{names[0]}")'])


def one_of(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts)


def operated(operators: str, parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return both("({} {} {})", parts, one_of(*operators.split()), parts)


PLAIN = one_of(
    '(r["a"] > 5)', 'r["ok"]', '(not r["s"])', '(r["x"] < r["a"])', '(r["b"] is not None)', '(r["no"] is None)'
)
INTS = st.recursive(
    columns("a", "b", "lane") | one_of("0", "1", "7", "-3", "1000000007", "9223372036854775807"),
    lambda parts: (
        operated("+ - * // %", parts) | both("(-{})", parts) | both("({} if {} else {})", parts, PLAIN, parts)
    ),
    max_leaves=5,
)
REALS = st.recursive(
    columns("x", "y", "small") | one_of("0.1", "-2.5", "1e300", "0.0"),
    lambda parts: operated("+ - * /", parts) | both("(-{})", parts) | operated("+ * /", parts | INTS),
    max_leaves=4,
)
DECIMALS = st.recursive(
    columns("price", "exact"),
    lambda parts: operated("+ - *", parts | columns("a", "lane") | one_of("3", "RATE")) | both("(-{})", parts),
    max_leaves=3,
)
STRINGS = st.recursive(
    columns("s", "t") | one_of("''", "'Ab'", '"it\'s"', "'ß'", r"'a\n\t\\'"),
    lambda parts: operated("+", parts) | both("{}.upper()", parts) | both("{}.lower()", parts),
    max_leaves=4,
)
COMPARED = "== != < <= > >="
TRUTHS = st.recursive(
    PLAIN
    | columns("ok", "no")
    | operated(COMPARED, INTS)
    | operated(COMPARED, REALS | INTS)
    | operated(COMPARED, DECIMALS | columns("a"))
    | operated(COMPARED, STRINGS)
    | both("{}.startswith('a')", STRINGS)
    | both("{}.endswith({})", STRINGS, STRINGS)
    | both("(0 <= {} < 100)", INTS),
    lambda parts: operated("& | == !=", parts) | operated("and or", parts) | both("(not {})", parts),
    max_leaves=3,
)
GIVEN = {
    "bigint": INTS,
    "int": INTS,
    "double": REALS | INTS,
    "decimal(20,9)": DECIMALS | INTS,
    "decimal(12,2)": DECIMALS,
    "string": STRINGS | both("({} and {})", STRINGS, STRINGS),
    "boolean": TRUTHS,
    "timestamp": columns("due"),
}
RATE = Decimal("1.19")
NUMBERS: list[int] = [1, 2]


@st.composite
def functions(draw: st.DrawFn, prefix: str = "new") -> Each:
    """A random function of a record: one or two new columns, and perhaps a condition for which it drops the record."""
    types = draw(st.lists(st.sampled_from(sorted(GIVEN)), min_size=1, max_size=2))
    gives = {f"{prefix}{place}": type for place, type in enumerate(types)}
    items = ", ".join(f"'{name}': {draw(GIVEN[type])}" for name, type in gives.items())
    text = f"lambda r: {{{items}}}"
    if draw(st.integers(0, 3)) == 0:
        text += f" if {draw(TRUTHS)} else None"
    note(text)
    return Each(eval(text, {"RATE": RATE}), gives)


def by_python(each: Iterable[Any], records: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    found = {}
    for record in records:
        made, reasons = taken_through(each, record, TYPES)
        if made or reasons:
            found[record["id"]] = (reasons[0],) if reasons else row_of(each, made[0])
    return found


def by_rows(each: Iterable[Any], rows: Iterable[Mapping[str, Any]]) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row[FAILED],) if row[FAILED] is not None else row_of(each, row) for row in rows}


def row_of(each: Iterable[Any], row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (None, *(comparable(row[name]) for step in each for name in step.columns({})))


def numbered(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**record, "id": place} for place, record in enumerate(records)]


def map_of(each: tuple[Any, ...]) -> Map:
    return Map(name="traced", log=LOG, each=each, what=("id",))


def in_process(each: tuple[Any, ...], records: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    stepping = Stepping(DATABASE, map_of(each))
    rows = stepping._own_steps(pa.Table.from_pylist(records, schema=arrow_schema(TYPES)))
    assert rows.num_rows == len({row["id"] for row in rows.to_pylist()})
    return by_rows(each, rows.to_pylist())


DATABASE = connect(Settings(), threads=1)


@examples(400)
@given(functions(), RECORDS)
def test_X7_a_traced_function_gives_what_python_gives_on_duckdb(step: Each, made: list[dict[str, Any]]) -> None:
    records = numbered(made)
    assert in_process((step,), records) == by_python((step,), records)


@examples(60)
@given(functions(), functions("also"), RECORDS)
def test_X7_a_traced_function_gives_what_python_gives_in_a_backfill(
    one: Each, other: Each, made: list[dict[str, Any]]
) -> None:
    records, each = numbered(made), (one, other)
    source = SESSION._taken_over(pa.Table.from_pylist(records, schema=arrow_schema(TYPES)))
    rows = SESSION.fetched(all_of(SESSION.prepared(source, map_of(each)))).to_pylist()
    assert by_rows(each, rows) == by_python(each, records)


SESSION = session_in_process()


SPECIAL = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 2.0**53, 9_007_199_254_740_994.0, -7.5, 5e-324, None]
SPECIAL_INTS = [0, 1, -7, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), None]
EDGES = (
    Each(
        lambda r: {"c0": r["x"] < r["y"], "c1": r["x"] == r["y"], "c2": r["x"] >= r["y"], "c3": r["x"] != r["y"]},
        dict.fromkeys(("c0", "c1", "c2", "c3"), "boolean"),
    ),
    Each(
        lambda r: {"d0": r["a"] < r["x"], "d1": r["a"] == r["x"], "d2": r["x"] or r["y"], "d3": r["x"] / r["y"]},
        {"d0": "boolean", "d1": "boolean", "d2": "double", "d3": "double"},
    ),
    Each(lambda r: {"e0": r["a"] / r["b"], "e1": r["a"] // 7}, {"e0": "double", "e1": "bigint"}),
    Each(lambda r: {"f0": r["a"] % r["b"], "f1": r["a"] // r["b"]}, {"f0": "bigint", "f1": "bigint"}),
)
"""Functions of what the engines and Python see differently: NaN, signed zeros, large whole numbers, negative ones."""
PAIRS = [
    {**dict.fromkeys(TYPES), "at": moment(0), "x": x, "y": y, "a": a, "b": b}
    for (x, y), (a, b) in zip_longest(
        product(SPECIAL, SPECIAL), product(SPECIAL_INTS, SPECIAL_INTS), fillvalue=(2**53 + 1, 1)
    )
]


@pytest.mark.parametrize("step", EDGES, ids=["compared", "mixed", "divided", "rest"])
def test_X7_a_traced_function_of_special_numbers_gives_what_python_gives(step: Each) -> None:
    assert traced(step, TYPES) is not None
    for shift in range(3):
        rows = PAIRS[shift:] + PAIRS[:shift]
        records = numbered([{**one, "a": other["a"]} for one, other in zip(PAIRS, rows, strict=True)])
        assert in_process((step,), records) == by_python((step,), records)


@in_parts(4, deeper=30, of=10)
def test_X7_a_traced_function_gives_what_python_gives_on_spark(plain: SparkSession, data: st.DataObject) -> None:
    # A job costs more than a function, so each job runs several. A record that one rejects is passed on by the others.
    each = tuple(data.draw(functions(f"of{place}_")) for place in range(3))
    records = numbered(data.draw(RECORDS))
    rows = prepare(frame_of(plain, pa.Table.from_pylist(records, schema=arrow_schema(TYPES))), map_of(each))
    assert by_rows(each, rows.toArrow().to_pylist()) == by_python(each, records)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda r: {"n": len(r["s"])}, "uses len, which is no constant"),
        (lambda r: {"n": int(f"{r['a']}")}, "FORMAT|BUILD_STRING|uses int"),
        (lambda r: {"n": 1 if isinstance(r["a"], int) else 2}, "uses isinstance"),
        (lambda r: {"n": 1 if r["a"] is r["b"] else 2}, "compares identities"),
        (lambda r: {"n": NUMBERS[0]}, "uses NUMBERS, which is no constant"),
        (lambda r: {"n": "%s" % r["a"]}, "needs to know the values"),  # noqa: UP031
        (lambda r: {"n": r["a"] ** 2}, "TypeError"),
        (lambda r: {"n": r["price"] / 3}, "computes Decimal / int"),
        (lambda r: {"n": r["x"]}, "gives a double for a bigint"),
        (lambda r: [{"n": 1}, {"n": r["a"]}], "BUILD_LIST"),
        (lambda r: {"n": sum(one for one in (1, 2))}, "uses sum, which is no constant"),
        (lambda r: {"n": r["there"]}, "KeyError: 'there'"),
        (abs, "is no plain function"),
    ],
)
def test_X7_a_function_whose_calls_may_differ_is_not_traced(function: Any, why: str) -> None:
    found = tracing_of(Each(function, {"n": "bigint"}), TYPES)
    assert isinstance(found, str)
    assert re.search(why, found)


def test_X7_a_traced_function_is_called_only_for_records_of_which_sql_is_not_sure() -> None:
    large = 2**62
    step = Each(lambda r: {"n": r["a"] * 2}, {"n": "bigint"})
    empty = dict.fromkeys(TYPES)
    records = [{**empty, "at": moment(0), "id": place, "a": a} for place, a in enumerate((1, None, large, 3))]
    assert in_process((step, Derive({"m": Col("n") + 1})), records) == {
        0: (None, 2, 3),
        1: ("TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'",),
        2: (f"it gave n = {2**63}: expected bigint",),
        3: (None, 6, 7),
    }
    found = traced(step, TYPES)
    assert found is not None
    text = unsure_records(found, Relation("given"), ["id"], failing=False)
    given_ = pa.Table.from_pylist(records, schema=arrow_schema(TYPES))
    with register(DATABASE, given_, Relation("given")):
        assert DATABASE.execute(in_duckdb(text)).fetchall() == [(1,), (2,)]
