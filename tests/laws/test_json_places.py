"""Values inside of JSON texts: each engine reads what the reference reads, whatever a text has at a place, or is."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from functools import cache
from random import Random
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
from tailrace.model.base.expressions import Expression
from tailrace.model.base.json_places import value_inside
from tailrace.model.base.time import moment
from tailrace.model.definition.record_steps import taken_through
from tailrace.settings import Settings
from tailrace.sql.records.selections import FAILED, query_steps
from tailrace.sql.terms import Relation, all_of
from tests.support.cases.strategies import examples
from tests.support.depth import cases

COLUMNS = {"at": "timestamp", "extra": "json", "m": "bigint"}
LOG = Log(name="looked_into", columns=COLUMNS, event_time="at")
TYPES = LOG.columns

NAMES = ["a", "B", "b", "a.b", "über", 'q"', "", "0", "c d", "back\\slash", "it's", "`", "\x7f", "😀", "$", "*", "a]"]
STEPS = ["a", "B", "b", "`a.b`", "über", '`q"`', "`0`", "c d", "back\\slash", "it's", "````", "😀", "$", "*", "`a]`"]
TARGETS = [
    "string", "boolean", "int", "bigint", "double", "decimal(9,2)", "decimal(9,0)", "decimal(38,0)", "decimal(38,20)",
    "decimal(4,4)", "date", "timestamp", "json",
]  # fmt: skip
NUMBERS = [
    "0", "-0", "-0.0", "0.0", "1", "-1", "12.99", "12.990", "12.9900000000000000001", "38.970000000000006", "1e2",
    "1E+2", "1.5e3", "120e-1", "1e400", "-1e400", "1e-400", "5e-324", "0e999", "1e22", "1e23", "0.1",
    "0.30000000000000004", "2147483647", "2147483648", "-2147483648",
    "9007199254740992", "9007199254740993", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615",
    "18446744073709551616", "123456789012345678901234567890", "9" * 38, "9" * 39, "1" + "0" * 400, "0." + "3" * 25,
    "99999999999999999999.99", "0.0001", "0.00001", "9999999.99", "9999999.995", "100000000000000000000.5",
    "1e999999999999999999999", "1.0", "123456789012345.5", "1234567890123456.7", "1.7976931348623157e308",
]  # fmt: skip
WORDS = [
    '""', '"a"', '"1"', '"true"', '"null"', '"NaN"', r'"\u0041\n\"\\\/"', r'"\ud83d\ude00"', '"😀"', r'"\u0000"',
    r'"it\u0027s"', '"2025-03-01"', '"2025-02-30"', '"0000-01-01"', '"9999-12-31"',
    '"2025-03-01T12:30:00.1234567+02:00"',
    '"2025-03-01 12:30"', '"9999-12-31T23:59:59.999999Z"', '"0001-01-01T00:00:00+01:00"', '"12345678901234567890"',
    r'"\\ud83d"', '"\x7f\u2028"', '", ]"', '":NaN"',
]  # fmt: skip
FAULTY = [
    "NaN", "Infinity", "-Infinity", "nan", "inf", "-inf", "01", "+1", "1.", ".5", "1e", "-", "True", "nul", "'a'",
    r'"\ud83d"',
    r'"\ude00"', r'"\x41"', '"\t"', "", "1 2", "/*c*/1", "{", "[", "]", '{"a"}', '{"a":1,}', "[1,]", "[,1]", "0x10",
    r'"\u12"', "\ufeff1", "\x001", "--1", '{"a":1 "b":2}', "{a:1}",
]  # fmt: skip
SPACES = ["", "", "", " ", "\t", "\r\n"]


def name_text(random: Random) -> str:
    name = random.choice(NAMES)
    return json.dumps(name, ensure_ascii=random.random() < 0.3) if random.random() < 0.9 else r'"\u0061"'


def value_text(random: Random, deep: int, wrong: float) -> str:
    """A JSON value, in which names may be there twice; with the chance `wrong` a part of it is no JSON."""
    before, after = random.choice(SPACES), random.choice(SPACES)
    kind = random.random()
    if random.random() < wrong:
        made = random.choice(FAULTY)
    elif deep and kind < 0.5:
        members = (
            f"{random.choice(SPACES)}{name_text(random)}{random.choice(SPACES)}:{value_text(random, deep - 1, wrong)}"
            for _ in range(random.randrange(5))
        )
        made = f"{{{','.join(members) or random.choice(SPACES)}}}"
    elif deep and kind < 0.65:
        made = f"[{','.join(value_text(random, deep - 1, wrong) for _ in range(random.randrange(4)))}]"
    elif kind < 0.8:
        made = random.choice(NUMBERS)
    elif kind < 0.95:
        made = random.choice(WORDS)
    else:
        made = random.choice(["true", "false", "null"])
    return f"{before}{made}{after}"


def json_text(random: Random) -> str | None:
    chance = random.random()
    if chance < 0.02:
        return None
    if chance < 0.05:
        return random.choice(["[", '{"a":']) * (depth := random.choice([499, 500, 501])) + "1" + "]" * depth
    if chance < 0.6:
        listed = f"[{value_text(random, 1, 0)},{value_text(random, 1, 0)}]"
        return f'{{{name_text(random)}:{value_text(random, 2, 0)},"b":{listed}}}'
    return value_text(random, 3, random.choice([0, 0, 0.1]))


def place(random: Random) -> str:
    made = random.choice(STEPS) if random.random() < 0.9 else "[0]"
    while random.random() < 0.4:
        made += "." + random.choice(STEPS) if random.random() < 0.5 else f"[{random.randrange(3)}]"
    return made


def looks(random: Random) -> dict[str, Expression]:
    """Ten random looks into the column; one of them is computed with."""
    made: dict[str, Expression] = {
        f"c{number}": Col("extra").at(place(random)).as_type(random.choice(TARGETS)) for number in range(10)
    }
    number = Col("extra").at(random.choice(["a", "b[0]"])).as_type(random.choice(["bigint", "int", "decimal(9,2)"]))
    return {**made, "sum": number * 3 + Col("m"), "chosen": If(Missing("m"), number, 0)}


def rows_of(random: Random, count: int) -> list[dict[str, Any]]:
    big = (None, 0, 7, 2**63 - 1)
    return [{"at": moment(0), "extra": json_text(random), "m": random.choice(big)} for _ in range(count)]


def comparable(value: Any) -> Any:
    return repr(value) if isinstance(value, float | bool) else value


def by_reference(step: Derive, records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    made = []
    for record in records:
        kept, reasons = taken_through((step,), record, TYPES)
        made.append((reasons[0],) if reasons else (None, *(comparable(kept[0][name]) for name in step.values)))
    return made


def by_rows(step: Derive, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (row[FAILED],) if row.get(FAILED) is not None else (None, *(comparable(row[name]) for name in step.values))
        for row in rows
    ]


def a_map(step: Derive) -> Map:
    return Map(name="looks", log=LOG, each=step, what=(*TYPES, *step.values))


@cache
def database() -> duckdb.DuckDBPyConnection:
    return connect(Settings(), threads=1)


def in_process(step: Derive, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    text = query_steps(a_map(step), Relation("rows_of_json"), list(TYPES))
    assert text is not None
    database().register("rows_of_json", pa.Table.from_pylist(records, schema=arrow_schema(TYPES)))
    found: list[dict[str, Any]] = database().execute(in_duckdb_once(all_of(text))).to_arrow_table().to_pylist()
    return found


@examples(40)
@given(st.integers(0, 2**32).map(Random))
def test_X7_a_look_into_json_is_the_same_in_the_reference_and_on_duckdb(random: Random) -> None:
    step, records = Derive(looks(random)), rows_of(random, 20)
    assert by_rows(step, in_process(step, records)) == by_reference(step, records)


def test_each_value_is_the_same_in_the_reference_and_on_duckdb_as_each_type() -> None:
    texts = [*NUMBERS, *WORDS, *FAULTY, "true", "null", "[1, ]", '{"b": 1 ,}', "[nan, 1]", '"inf"', '":inf"']
    around = ['{{"a":{}}}', '{{"a": {} , "b": "2"}}', '{{"b":[-1],"a":{}}}', '{{"a":1,"b":{}}}', " {} "]
    records = [{"at": moment(0), "extra": one.format(text), "m": 1} for text in texts for one in around]
    deep = ['{{"b":{}1{},"a":1}}'.format("[" * levels, "]" * levels) for levels in (499, 500)]
    records += [{"at": moment(0), "extra": text, "m": 1} for text in deep]
    step = Derive({f"c{place}": Col("extra").at("a").as_type(target) for place, target in enumerate(TARGETS)})
    assert by_rows(step, in_process(step, records)) == by_reference(step, records)


def test_random_looks_find_values_of_each_type() -> None:
    random, found = Random(1), dict.fromkeys(TARGETS, 0)
    for text in (json_text(random) for _ in range(3_000)):
        for target in TARGETS:
            found[target] += value_inside(text, random.choice(["a", "b[0]", "b[1]"]), target) is not None
    assert min(found.values()) > 5, found


@pytest.mark.spark
def test_X7_a_look_into_json_is_the_same_in_the_reference_and_on_spark(plain: SparkSession) -> None:
    random = Random(cases(1))
    step, records = Derive(looks(random)), rows_of(random, 600)
    frame = frame_of(plain, pa.Table.from_pylist(records, schema=arrow_schema(TYPES)))
    rows = prepare(frame, a_map(step)).toArrow().to_pylist()
    assert by_rows(step, rows) == by_reference(step, records)


EXTRA = (
    '{"user": {"tier": "gold", "home country": "DE", "tier": "iron"}, "items": [{"price": 12.990}, {"price": 1e400}],'
    ' "a.b": 1, "n": null, "zero": -0, "day": "2025-03-01", "at": "1970-01-01T01:00:00.5+01:00", "on": true}'
)


@pytest.mark.parametrize(
    ("where", "target", "value"),
    [
        ("user.tier", "string", "gold"),  # the first of two
        ("user.home country", "string", "DE"),
        ("`a.b`", "bigint", 1),
        ("`a.b`", "string", None),  # a number is no text
        ("items[0].price", "decimal(9,2)", Decimal("12.99")),
        ("items[0].price", "decimal(9,1)", None),
        ("items[0].price", "json", "12.990"),
        ("items[0].price", "bigint", None),
        ("items[1].price", "double", None),
        ("items[2].price", "double", None),
        ("items.price", "double", None),
        ("items[0]", "json", '{"price": 12.990}'),
        ("user[0]", "json", None),
        ("n", "json", None),
        ("zero", "double", 0.0),
        ("day", "date", date(2025, 3, 1)),
        ("day", "timestamp", 1_740_787_200_000_000),
        ("at", "timestamp", 500_000),
        ("on", "boolean", True),
        ("on", "int", None),
    ],
)
def test_what_is_at_a_place_is_what_a_column_of_the_type_would_hold(where: str, target: str, value: Any) -> None:
    assert comparable(value_inside(EXTRA, where, target)) == comparable(value)


@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (
            Col("extra").at("a"),
            "target = None: expected the type of the value; write for example .at('a').as_type(",
        ),
        (Col("extra").at("a").as_type("strin"), "each[0].values['v'].target = 'strin'"),
        (Col("extra").at("a").as_type("array<int>"), "use string, boolean, int, bigint, double, decimal(p,s), date, "),
        (Col("extra").at("a..b").as_type("int"), "a place such as user.tier or items[0].price"),
        (Col("extra").at("a[x]").as_type("int"), "in backquotes"),
        (Col("m").at("a").as_type("int"), "expected a column of the type json, or of texts in JSON"),
        (Col("more").at("a").as_type("int"), "each[0].values['v'].of = 'more': expected one of the log's columns"),
        (Col("extra").at("a").as_type("json") * 2, "expected a whole number"),
        (If(Match("m", ">", 1), Col("extra").at("a").as_type("json"), 1), "two values of one type"),
    ],
)
def test_a_look_that_cannot_be_is_refused_with_what_to_write(one: Expression, fault: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(fault)):
        a_map(Derive({"v": one}))


def test_a_definition_is_another_if_it_looks_at_another_place_or_type() -> None:
    marks = {
        a_map(Derive({"v": Col("extra").at(where).as_type(target)})).fingerprint
        for where in ("a", "b") for target in ("int", "bigint")
    }  # fmt: skip
    assert len(marks) == 4
