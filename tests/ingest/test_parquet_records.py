"""Parquet files as they are: any types, nested or not, read as the same records are read from JSON."""

from __future__ import annotations

import base64
import json
import math
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.ingest import sources
from tailrace.ingest.arrow_values import ArrowValues
from tailrace.ingest.json_reader import read_lines
from tailrace.ingest.parsing import read_files
from tailrace.ingest.plain_files import parquet_parts, read_typed, stored_name
from tailrace.ingest.sources import Files
from tailrace.model.base.json_scalars import ROUNDINGS, Rounded, decimal_value
from tailrace.model.base.types import element_type, map_value, struct_fields
from tailrace.model.logs.log import Log
from tailrace.model.logs.shapes import Plain
from tests.ingest.test_nested_records import TYPES
from tests.support.depth import cases
from tests.support.lakes.files import by_model, put, said
from tests.support.services.schema_registry import as_lines

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def instants(unit: str) -> pa.DataType:
    return pa.timestamp(unit, "UTC")


def number(value: Any) -> str:
    return str(value)


def iso(value: datetime) -> str:
    return f'"{value.replace(tzinfo=None).isoformat()}Z"'


def quoted(value: Any) -> str:
    return json.dumps(str(value))


LEAVES: Mapping[str, list[tuple[pa.DataType, st.SearchStrategy[Any], Callable[[Any], str]]]] = {
    "string": [
        (pa.string(), st.text(max_size=4), json.dumps),
        (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b"]), json.dumps),
    ],
    "boolean": [(pa.bool_(), st.booleans(), json.dumps)],
    "int": [(pa.int64(), st.integers(-3, 3) | st.sampled_from([2**31 - 1, 2**31, -(2**31) - 1]), number)],
    "bigint": [
        (pa.int8(), st.integers(-128, 127), number), (pa.uint64(), st.sampled_from([0, 2**63 - 1, 2**64 - 1]), number),
    ],
    "double": [
        (pa.float64(), st.integers(-(10**6), 10**6).map(lambda n: n / 1000), repr),
        (pa.int64(), st.sampled_from([1, 2**53, -(2**53) - 1]), number),
    ],
    "float": [
        (pa.float32(), st.sampled_from([0.5, -1.25]), repr), (pa.float64(), st.sampled_from([0.1, -3.5e38]), repr),
    ],
    "binary": [(pa.binary(), st.binary(max_size=3), lambda value: quoted(base64.b64encode(value).decode()))],
    "decimal(8,3)": [
        (pa.float64(), st.integers(-(10**9), 10**9).map(lambda n: n / 10**4), repr),
        (pa.decimal128(12, 5), st.decimals(-(10**6), 10**6, places=5), number),
        (pa.int64(), st.integers(-(10**5) - 2, 10**5 + 2), number),
    ],
    "date": [
        (pa.date32(), st.dates(), quoted), (pa.string(), st.sampled_from(["2026-02-28", "2026-02-30", "x"]), quoted),
    ],
    "timestamp": [
        (instants("us"), st.datetimes(timezones=st.just(UTC)), iso),
        (instants("ms"), st.just(NOON + timedelta(milliseconds=7)), iso),
        (instants("ns"), st.just(datetime(1960, 1, 1, tzinfo=UTC)), iso),
        (pa.string(), st.sampled_from(["2026-01-01 12:00:00+02:00", "2026-01-01", "noon"]), quoted),
    ],
    "time": [
        (pa.time64("us"), st.times(), quoted), (pa.time32("s"), st.just(time(8, 30)), quoted),
        (pa.string(), st.sampled_from(["08:30", "24:00"]), quoted),
    ],
    "json": [(pa.string(), st.sampled_from(['{"a": [1.10]}', "[]", '"x"', "1"]), str)],
}  # fmt: skip
"""For each type: the types of Parquet columns, values of which some do not fit, and how JSON has these values."""


@st.composite
def columns(draw: st.DrawFn, type: str) -> tuple[pa.DataType, st.SearchStrategy[Any], Callable[[Any], str]]:
    """A Parquet type for a declared type, values of it, and the text of a value in JSON."""

    def or_null(text: Callable[[Any], str]) -> Callable[[Any], str]:
        return lambda value: "null" if value is None else text(value)

    if (element := element_type(type)) is not None:
        inner, value, text = draw(columns(element))
        some = st.lists(value, max_size=3)
        kind = draw(st.sampled_from([pa.list_, pa.large_list]))
        return kind(inner), st.none() | some, or_null(lambda each: f"[{','.join(map(text, each))}]")
    if (inside := map_value(type)) is not None:
        inner, value, text = draw(columns(inside))
        entries = st.lists(st.tuples(st.text(max_size=1), value), max_size=3)
        return (
            pa.map_(pa.string(), inner), st.none() | entries,
            or_null(lambda each: f"{{{','.join(f'{json.dumps(key)}:{text(one)}' for key, one in each)}}}"),
        )  # fmt: skip
    if (fields := struct_fields(type)) is not None:
        made = {name: draw(columns(one)) for name, one in fields.items()}
        values = st.fixed_dictionaries({name: value for name, (_, value, _) in made.items()})
        return (
            pa.struct([(name, one) for name, (one, _, _) in made.items()]), st.none() | values,
            or_null(lambda row: f"{{{','.join(f'{quoted(n)}:{one[2](row[n])}' for n, one in made.items())}}}"),
        )  # fmt: skip
    arrow, values, text = draw(st.sampled_from(LEAVES[type]))
    return arrow, st.none() | values, or_null(text)


@st.composite
def logs(draw: st.DrawFn) -> tuple[Log, pa.Table, list[bytes]]:
    """A log of any columns, and the same records of it in a table and in JSON."""
    declared = draw(st.lists(TYPES, min_size=1, max_size=4))
    types = {f"c{place}": type for place, type in enumerate(declared)}
    inside = draw(st.booleans())
    log = Log(
        name="any", columns={"at": "timestamp", **types}, event_time="at", elements=2,
        fields={name: f"`in`.`{name}.of`" for name in types} if inside else {},
        rounding=draw(st.sampled_from([None, "half_even", "down"])),
    )  # fmt: skip
    made = {f"{name}.of" if inside else name: draw(columns(type)) for name, type in types.items()}
    rows = draw(st.lists(st.fixed_dictionaries({name: value for name, (_, value, _) in made.items()}), max_size=5))
    schema = pa.struct([(name, one) for name, (one, _, _) in made.items()])
    whole = pa.array([{"at": NOON, "in": row} if inside else {"at": NOON, **row} for row in rows], pa.struct(
        [("at", instants("us")), ("in", schema)] if inside else [("at", instants("us")), *schema]
    ))  # fmt: skip
    texts = []
    for row in rows:
        fields = ",".join(
            f"{quoted(name)}:{made[name][2](value)}" for name, value in ((name, row[name]) for name in made)
        )
        within = f'"in":{{{fields}}}' if inside else fields
        texts.append(f'{{"at":{iso(NOON)},{within}}}'.encode())
    return log, pa.Table.from_struct_array(whole), texts


@settings(max_examples=cases(100))
@given(logs(), st.integers(1, 4), st.sampled_from([1, 10**6]))
def test_X6_records_of_any_shape_are_read_from_parquet_as_from_json(
    made: tuple[Log, pa.Table, list[bytes]], group: int, most: int
) -> None:
    log, table, texts = made
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/a.parquet"
        pq.write_table(table, file, row_group_size=group)
        rows = pa.concat_tables([read_typed(log, "parquet", [file]).slice(0, 0), *parquet_parts(log, file, most)])
        rows.validate(full=True)
        assert read_typed(log, "parquet", [file]).equals(rows)
    assert said(log, rows) == by_model(log, texts) == said(log, read_lines(log, as_lines(texts)))


# ------------------------------------------------------------------------------------------------- places and misfits

ORDERS = Log(
    name="orders",
    columns={
        "order_id": "string", "country": "string", "at": "timestamp", "opens": "time",
        "items": "array<struct<sku:string,price:decimal(6,2)>>", "tags": "map<string,int>", "note": "json",
    },
    fields={"order_id": "orderId", "country": "user.`home country`", "items.price": "unit.price", "at": "createdAt"},
    instants={"at": "milliseconds", "opens": "seconds"}, event_time="at", rest="extra", elements=3,
)  # fmt: skip
SCHEMA = pa.schema([
    ("orderId", pa.string()), ("createdAt", pa.int64()), ("opens", pa.int32()),
    ("user", pa.struct([("home country", pa.string()), ("zip", pa.int32())])),
    ("items", pa.list_(pa.struct([("sku", pa.string()), ("unit", pa.struct([("price", pa.float64())]))]))),
    ("tags", pa.map_(pa.string(), pa.int64())), ("note", pa.list_(pa.float64())), ("device", pa.string()),
])  # fmt: skip
WHOLE: dict[str, Any] = {
    "orderId": "a", "createdAt": 1767268800123, "opens": 30600, "user": {"home country": "DE", "zip": 1},
    "items": [{"sku": "x", "unit": {"price": 12.99}}, None, {}], "tags": [("b", 2), ("a", 1)], "note": [1.5, None],
    "device": 'i"os',
}  # fmt: skip
READ = {
    "order_id": "a", "country": "DE", "at": NOON + timedelta(milliseconds=123), "opens": "08:30:00.000000",
    "items": [{"sku": "x", "price": Decimal("12.99")}, None, {"sku": None, "price": None}],
    "tags": [{"key": "a", "value": 1}, {"key": "b", "value": 2}], "note": "[1.5,null]", "extra": '{"device":"i\\"os"}',
}  # fmt: skip
MISFITS: Mapping[str, dict[str, Any]] = {
    "items[1].price = 12.999 is not a decimal(6,2)": {"items": [{}, {"unit": {"price": 12.999}}]},
    'items[0].price = "NaN" is not a decimal(6,2)': {"items": [{"unit": {"price": math.nan}}]},
    "items is a list of more than 3 elements: set elements in the log": {"items": [None] * 4},
    'tags["x"] = 2147483648 is not a int': {"tags": [("x", 2**31)]},
    'tags has the key "x" twice': {"tags": [("x", 1), ("x", 1)]},
    "opens = 86400 is not a time": {"opens": 86400},
    "at = 9223372036854775807 is not a timestamp; opens = -1 is not a time": {"createdAt": 2**63 - 1, "opens": -1},
    "the event time at is missing": {"createdAt": None},
}


def test_X6_rows_are_read_from_their_places_and_rejected_with_the_place_alike_by_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_TASK", 1)
    rows = [WHOLE, *({**WHOLE, **changed} for changed in MISFITS.values()), WHOLE]
    (tmp_path / "a b").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), tmp_path / "a b" / "é#1.parquet", row_group_size=3)
    paths = [f"file:{tmp_path}/a b/é#1.parquet"]
    here = read_typed(ORDERS, "parquet", paths)
    assert said(ORDERS, here) == [READ, *MISFITS, READ]
    raw = [json.loads(text) for text in here["_raw"].to_pylist() if text is not None]
    assert [row["device"] for row in raw] == ['i"os'] * len(MISFITS)
    assert raw[3]["tags"] == {"x": 2**31}
    frame = read_files(spark, Files("", "parquet"), ORDERS, paths)
    assert frame.rdd.getNumPartitions() == 4
    assert here.equals(frame.toArrow().sort_by("_offset").cast(here.schema))
    by_spark = spark.read.parquet(str(tmp_path / "a b")).selectExpr("_metadata.file_path AS path").first()
    assert by_spark is not None
    assert set(here["_source"].to_pylist()) == {by_spark["path"]} == {stored_name(paths[0])}


UNLIKE: Mapping[str, tuple[pa.DataType, Any]] = {
    "column 'c.n' is string, declared as bigint": (pa.struct([("n", pa.string())]), {"n": "5"}),
    "unknown column 'c.m': declare it in the log, or set unknown=\"ignore\"": (pa.struct([("m", pa.int8())]), {"m": 5}),
    "column 'c' is int, declared as struct": (pa.int8(), 5),
}


@pytest.mark.parametrize("reason", UNLIKE)
def test_X6_a_file_whose_types_can_never_fit_is_rejected_row_by_row(tmp_path: Path, reason: str) -> None:
    log = Log(name="l", columns={"at": "timestamp", "c": "struct<n:bigint>"}, event_time="at")
    type, value = UNLIKE[reason]
    table = pa.table({"at": pa.array([NOON], instants("us")), "c": pa.array([value], type)})
    (row,) = read_typed(log, "parquet", put(tmp_path, {"a.parquet": table})).to_pylist()
    assert row["_error"] == reason
    assert json.loads(row["_raw"]) == {"at": "2026-01-01T12:00:00.000000Z", "c": value}


# ------------------------------------------------------------------------------------------------ numbers and clocks


@given(
    st.lists(st.floats(width=64) | st.integers(-(10**9), 10**9).map(lambda n: n / 100), max_size=20),
    st.sampled_from([(10, 2), (38, 20), (38, 30), (6, 4), (18, 0)]), st.sampled_from(["d", "f"]),
    st.sampled_from([None, *ROUNDINGS]),
)  # fmt: skip
def test_a_double_is_the_decimal_of_its_shortest_text(
    numbers: list[float], type: tuple[int, int], width: str, rounding: str | None
) -> None:
    with np.errstate(over="ignore"):
        given = np.array(numbers, np.float64 if width == "d" else np.float32)
    expected = list[Decimal | None]()
    for one in given:
        try:
            expected.append(decimal_value(str(one), *type, rounding) if np.isfinite(one) else None)
        except (ValueError, ArithmeticError):
            expected.append(None)
    log = Log(name="l", columns={"at": "timestamp"}, event_time="at")
    found = ArrowValues(log).convert(Plain(f"decimal({type[0]},{type[1]})", rounding=rounding), pa.array(given))
    misfits = np.zeros(len(given), np.bool_) if found.misfits is None else found.misfits
    made = [None if bad else one for one, bad in zip(found.values.to_pylist(), misfits, strict=True)]
    assert made == expected
    assert misfits.tolist() == [one is None for one in expected]
    counts = np.zeros(len(given)) if found.rounded is None else found.rounded
    assert counts.tolist() == [isinstance(one, Rounded) for one in expected]


@given(st.lists(st.datetimes() | st.sampled_from(
    [datetime(2026, 10, 25, 2, 30), datetime(2026, 3, 29, 2, 30), datetime(2011, 12, 30, 5)]
)), st.sampled_from(["Europe/Berlin", "Pacific/Apia", "America/Sao_Paulo", "UTC"]))  # fmt: skip
def test_local_times_of_parquet_are_read_as_texts_of_json_are(
    tmp_path_factory: pytest.TempPathFactory, times: list[datetime], zone: str
) -> None:
    log = Log(name="l", columns={"at": "timestamp", "seen": "timestamp"}, event_time="at", zone=zone)
    table = pa.table({"at": pa.array([NOON] * len(times), instants("us")), "seen": pa.array(times, pa.timestamp("us"))})
    paths = put(tmp_path_factory.mktemp("local"), {"a.parquet": table})
    texts = [json.dumps({"at": NOON.isoformat(), "seen": at.isoformat()}).encode() for at in times]
    assert said(log, read_typed(log, "parquet", paths)) == by_model(log, texts)


def test_old_instants_are_read_in_any_year_also_inside_of_lists(tmp_path: Path) -> None:
    log = Log(name="l", columns={"at": "timestamp", "seen": "array<timestamp>"}, event_time="at")
    far = [datetime(1066, 10, 14, 9, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
    table = pa.table({"at": pa.array([NOON], instants("us")), "seen": pa.array([far], pa.list_(instants("us")))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert pq.ParquetFile(tmp_path / "a.parquet").schema.column(0).physical_type == "INT96"
    (row,) = read_typed(log, "parquet", [f"file:{tmp_path}/a.parquet"]).to_pylist()
    assert (row["at"], row["seen"], row["_error"]) == (NOON, far, None)


def test_only_the_parts_of_columns_are_read_that_the_log_needs(tmp_path: Path) -> None:
    log = Log(
        name="l", columns={"at": "timestamp", "items": "array<struct<n:int>>"}, event_time="at", unknown="ignore"
    )  # fmt: skip
    item = {"n": 1, "text": "x" * 100}
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"at": [NOON] * 9, "items": [[item]] * 9, "more": ["y" * 100] * 9}), file)
    whole, data = pq.ParquetFile(file), bytearray(file.read_bytes())
    for place in range(whole.metadata.num_columns):
        chunk = whole.metadata.row_group(0).column(place)
        if chunk.path_in_schema.endswith(("text", "more")):
            begins = chunk.dictionary_page_offset or chunk.data_page_offset
            data[begins : begins + chunk.total_compressed_size] = b"\xa5" * chunk.total_compressed_size
    file.write_bytes(data)
    assert read_typed(log, "parquet", [str(file)])["items"].to_pylist() == [[{"n": 1}]] * 9
