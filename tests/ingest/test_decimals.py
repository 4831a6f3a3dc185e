"""Decimals out of doubles, decimals and whole numbers of any format are those out of the same numbers in JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailrace.ingest.csv_reader import csv_reader
from tailrace.ingest.framed.framed_records import framed_records
from tailrace.ingest.json_reader import read_lines
from tailrace.ingest.line_reader import read_all
from tailrace.ingest.plain_files import read_typed
from tailrace.ingest.plain_values import fitted_decimals
from tailrace.model.base.json_scalars import ROUNDINGS, Rounded, decimal_value
from tailrace.model.logs.csv_records import CsvRecords
from tailrace.model.logs.json_records import as_record
from tailrace.model.logs.log import Log
from tests.ingest.test_avro_files import opened
from tests.ingest.test_nested_messages import avro, comparable, logical, record, stored
from tests.support.depth import cases
from tests.support.lakes.avro_files import container
from tests.support.lakes.files import by_model, counted, said
from tests.support.services.schema_registry import as_lines, avro_body, framed

AT = "2026-01-01T12:00:00Z"
PRECISE = Context(prec=100)


@dataclass(frozen=True)
class Numbers:
    """Numbers as Parquet and Avro have them, and their texts in JSON."""

    arrow: pa.DataType
    avro: Any
    values: list[Any]
    stored: list[Any]
    texts: list[str]


@st.composite
def numbers(draw: st.DrawFn) -> Numbers:
    kind = draw(st.sampled_from(["decimal", "decimal", "double", "float", "long", "int"]))
    if kind == "decimal":
        precision = draw(st.integers(1, 38))
        scale = draw(st.integers(0, precision))
        whole = st.integers(-(10**precision) + 1, 10**precision - 1)
        short = st.integers(-999, 999).map(lambda n: max(-(10**precision) + 1, min(10**precision - 1, n * 5)))
        units = draw(st.lists(whole | short | st.just(10**precision - 1), min_size=1, max_size=6))
        given = [Decimal(n).scaleb(-scale, PRECISE) for n in units]
        bodies = [n.to_bytes(max(1, (n.bit_length() + 8) // 8), "big", signed=True) for n in units]
        type = logical("bytes", "decimal", precision=precision, scale=scale)
        return Numbers(pa.decimal128(precision, scale), type, given, bodies, [f"{one:f}" for one in given])
    if kind in ("long", "int"):
        bits = 63 if kind == "long" else 31
        wholes = draw(st.lists(st.integers(-(2**bits), 2**bits - 1) | st.integers(-99, 99), min_size=1, max_size=6))
        arrow = pa.int64() if kind == "long" else pa.int32()
        return Numbers(arrow, kind, wholes, wholes, [str(one) for one in wholes])
    noisy = st.integers(-(10**6), 10**6).map(lambda n: n / 1000) | st.just(38.970000000000006) | st.just(0.125)
    floats = st.floats(allow_nan=False, allow_infinity=False, width=64 if kind == "double" else 32)
    some = draw(st.lists(noisy | floats, min_size=1, max_size=6))
    if kind == "double":
        return Numbers(pa.float64(), kind, some, some, [repr(one) for one in some])
    singles = [float(np.float32(one)) for one in some]
    return Numbers(pa.float32(), kind, singles, singles, [str(np.float32(one)) for one in some])


@settings(max_examples=cases(120))
@given(numbers(), st.integers(1, 38), st.data(), st.sampled_from([None, *ROUNDINGS]), st.booleans())
def test_X6_decimals_are_the_same_from_parquet_avro_and_json(
    tmp_path_factory: pytest.TempPathFactory, given: Numbers, precision: int, data: st.DataObject, rounding: str | None,
    nested: bool,
) -> None:  # fmt: skip
    type = f"decimal({precision},{data.draw(st.integers(0, precision))})"
    log = Log(
        name="l", columns={"at": "timestamp", "x": f"array<struct<v:{type}>>" if nested else type}, event_time="at",
        rounding=rounding,
    )  # fmt: skip
    texts = [f'{{"at":"{AT}","x":{f"""[{{"v":{one}}},null]""" if nested else one}}}'.encode() for one in given.texts]
    expected = by_model(log, texts)
    assert said(log, read_lines(log, as_lines(texts))) == expected
    struct = pa.struct([("v", given.arrow)])
    rows = [[{"v": one}, None] for one in given.values] if nested else given.values
    table = pa.table({
        "at": pa.array([AT] * len(rows)), "x": pa.array(rows, pa.list_(struct) if nested else given.arrow)
    })  # fmt: skip
    file = tmp_path_factory.mktemp("decimals") / "a.parquet"
    pq.write_table(table, file)
    # Arrow writes small decimals with an exponent, in reasons too.
    assert comparable(said(log, read_typed(log, "parquet", [str(file)]))) == comparable(expected)
    if not nested:
        cells = as_lines([f"{AT},{one}".encode() for one in given.texts])
        assert comparable(said(log, read_all(csv_reader(log, b"at,x"), cells))) == comparable(expected)
    schema = record({"at": "string", "x": given.avro})
    if nested:
        schema = record({"at": "string", "x": {"type": "array", "items": ["null", record({"v": given.avro})]}})
    own = [{"at": AT, "x": [{"v": one}, None] if nested else one} for one in given.stored]
    bodies = [avro_body(stored(schema), one) for one in own]
    assert said(log, opened(log, container(schema, bodies))) == expected
    lines = as_lines([framed(1, body) for body in bodies])
    framed_rows = said(log, framed_records(replace(log, messages="avro"), {1: avro(1, schema)}, lines))
    assert [one.removeprefix("schema 1: ") if isinstance(one, str) else one for one in framed_rows] == expected


HOSTILE = [
    ("decimal(1,1)", "9" * 29), ("decimal(12,2)", "99999999999.999"), ("decimal(12,2)", "9999999999.995"),
    ("decimal(38,18)", "9" * 29), ("decimal(38,1)", "17014118346046923173168730371588410572.8"),
    ("decimal(10,2)", "1e38"), ("decimal(10,2)", "3402823669209384634633746074317682114.56"), ("decimal(38,38)", "10"),
    ("decimal(12,2)", "1e3"), ("decimal(12,2)", "1e-3"), ("decimal(38,18)", "12345678901234567890.123456789012345678"),
]  # fmt: skip
"""Numbers that Arrow reads wrongly, with digits beyond 128 bits, or that are near to such numbers."""


@pytest.mark.parametrize(("type", "number"), HOSTILE)
@pytest.mark.parametrize("rounding", [None, "half_even"])
def test_X6_a_number_of_too_many_digits_is_never_another_number(type: str, number: str, rounding: str | None) -> None:
    for shape, text in (
        (type, number),
        (f"array<{type}>", f"[1, {number}]"),
        (f"array<array<{type}>>", f"[[{number}]]"),
    ):
        log = Log(name="l", columns={"at": "timestamp", "x": shape}, event_time="at", rounding=rounding)
        lines = [f'{{"at": "{AT}", "x": {text}}}'.encode(), f'{{"at": "{AT}", "x": null}}'.encode()] * 3
        assert said(log, read_lines(log, as_lines(lines))) == by_model(log, lines)
    log = Log(name="l", columns={"at": "timestamp", "x": type}, event_time="at", rounding=rounding)
    found = said(log, read_all(csv_reader(log, b"at,x"), as_lines([f"{AT},{number}".encode(), f"{AT},1".encode()])))
    reader = CsvRecords(log, b"at,x")
    assert comparable(found) == comparable([
        one if isinstance(one, str) else as_record(log, one) | counted(log, one)
        for one in (reader.read(f"{AT},{text}".encode()) for text in (number, "1"))
    ])  # fmt: skip


@pytest.mark.parametrize("type", ["bigint", "int", "double", "float", "decimal(12,2)"])
def test_a_number_in_a_text_is_read_only_where_the_format_has_no_other(tmp_path: Path, type: str) -> None:
    log, file = Log(name="l", columns={"at": "timestamp", "x": type}, event_time="at"), tmp_path / "a.parquet"
    line = f'{{"at": "{AT}", "x": "12"}}'.encode()
    pq.write_table(pa.table({"at": [AT], "x": ["12"]}), file)
    schema = record({"at": "string", "x": "string"})
    bodies = [avro_body(stored(schema), {"at": AT, "x": "12"})]
    messages = as_lines([framed(1, body) for body in bodies])
    found = {
        "json": said(log, read_lines(log, as_lines([line]))),
        "simulate": by_model(log, [line]),
        "parquet": said(log, read_typed(log, "parquet", [str(file)])),
        "csv": said(log, read_all(csv_reader(log, b"at,x"), as_lines([f"{AT},12".encode()]))),
        "avro": said(log, opened(log, container(schema, bodies))),
        "messages": said(log, framed_records(replace(log, messages="avro"), {1: avro(1, schema)}, messages)),
    }
    taken = {"csv", "avro", "messages"} if type.startswith("decimal") else {"csv"}
    assert {kind: one["x"] for kind, [one] in found.items() if not isinstance(one, str)} == dict.fromkeys(taken, 12)


def test_X6_texts_in_lists_of_lists_are_no_decimals() -> None:
    log = Log(name="l", columns={"at": "timestamp", "x": "array<array<decimal(6,2)>>", "y": "string"}, event_time="at")
    lines = [f'{{"at": "{AT}", "x": {one}, "y": "z"}}'.encode() for one in ('[[1], ["2"]]', "[[1], [2]]", "[]")]
    found = said(log, read_lines(log, as_lines(lines)))
    assert found == by_model(log, lines)
    assert [isinstance(one, str) for one in found] == [True, False, False]


@given(
    st.integers(0, 76), st.lists(st.integers(-(10**76) + 1, 10**76 - 1) | st.just(10**76 - 1) | st.none(), max_size=5),
    st.integers(1, 38), st.integers(0, 38), st.sampled_from([None, *ROUNDINGS]),
)  # fmt: skip
@example(76, [10**76 - 1], 3, 2, "half_even")
def test_decimals_of_any_width_are_fitted_as_their_digits_are(
    scale: int, units: list[int | None], precision: int, to: int, rounding: str | None
) -> None:
    to = min(to, precision)
    given = [None if one is None else Decimal(one).scaleb(-scale, PRECISE) for one in units]
    made, misfits, rounded = fitted_decimals(pa.array(given, pa.decimal256(76, scale)), precision, to, rounding)
    columns = (given, made.to_pylist(), misfits.tolist(), rounded.tolist())
    for one, found, bad, lost in zip(*columns, strict=True):
        try:
            expected = None if one is None else decimal_value(f"{one:f}", precision, to, rounding)
            assert (found, bad, lost) == (expected, False, isinstance(expected, Rounded))
        except (ValueError, ArithmeticError):
            assert bad


def test_a_double_that_is_no_number_is_no_decimal(tmp_path: Path) -> None:
    log = Log(name="l", columns={"at": "timestamp", "x": "decimal(6,2)"}, event_time="at", rounding="half_even")
    table = pa.table({"at": [AT] * 3, "x": [math.nan, math.inf, 1.005]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = said(log, read_typed(log, "parquet", [str(tmp_path / "a.parquet")]))
    assert [one if isinstance(one, str) else one["x"] for one in found] == [
        'x = "NaN" is not a decimal(6,2)', 'x = "Infinity" is not a decimal(6,2)', Decimal("1.00"),
    ]  # fmt: skip
