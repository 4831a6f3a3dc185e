"""Values at the ends of their types, as each reader meets them: a record is read whole, or rejected, and others go on.

Nothing that a record says stops a stream (rule X7): what this process reads is what Spark reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from tailrace.ingest.framed.framed_records import ReadableSchema, framed_records
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.micro_batch import file_rows
from tailrace.ingest.parsing import read_files
from tailrace.ingest.sources import Files, Format
from tailrace.lake.catalog.data_files import write_files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.base.time import BEGINNING, END_OF_TIME, FIRST_DAY, LAST_DAY
from tailrace.model.logs.changes import Changes
from tailrace.model.logs.log import Log
from tailrace.settings import Settings
from tests.support.lakes.files import lines, put
from tests.support.services.schema_registry import as_lines, avro_body, framed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STAYS = Log(name="stays", columns={"at": "timestamp", "until": "timestamp", "day": "date"}, event_time="at")
BEYOND = "lies outside the years 1 to 9999"

IN_TEXT: Mapping[tuple[str, str], str | None] = {
    ("until", "0000-01-01T00:00:00Z"): f"until = 0000-01-01 00:00:00 {BEYOND}",
    ("until", "9999-12-31T23:59:59-05:00"): f"until = +10000-01-01 04:59:59 {BEYOND}",
    ("until", "0001-01-01T00:00:00+05:00"): f"until = 0000-12-31 19:00:00 {BEYOND}",
    ("until", "0001-01-01T00:00:00Z"): None,
    ("until", "9999-12-31T23:59:59.999999Z"): None,
    ("until", "1582-10-10T00:00:00Z"): None,
    ("day", "0000-01-01"): f"day = 0000-01-01 {BEYOND}",
    ("day", "0001-01-01"): None,
    ("day", "9999-12-31"): None,
}  # fmt: skip
"""Instants and days as text, and why each is rejected; None for those that are read."""

MOST = 2**63 - 1
IN_NUMBERS: Mapping[tuple[str, pa.DataType], Mapping[int, bool]] = {
    ("until", pa.timestamp("us", "UTC")): {
        -MOST: False, BEGINNING - 1: False, BEGINNING: True, -1: True, END_OF_TIME: True, END_OF_TIME + 1: False,
        1_767_225_600_000_000_000: False, MOST: False,
    },
    ("until", pa.timestamp("ms", "UTC")): {
        -MOST: False, BEGINNING // 1000 - 1: False, BEGINNING // 1000: True, -1: True, END_OF_TIME // 1000: True,
        END_OF_TIME // 1000 + 1: False, MOST // 1000 + 1: False, MOST: False,
    },
    ("until", pa.timestamp("ns", "UTC")): {-MOST: True, -1: True, 0: True, MOST: True},
    ("day", pa.date32()): {
        -(2**31): False, FIRST_DAY - 1: False, FIRST_DAY: True, LAST_DAY: True, LAST_DAY + 1: False, 3_000_000: False,
        2**31 - 1: False,
    },
}  # fmt: skip
"""Instants and days as numbers of a type of Parquet's, and whether each is read."""


def landed(lake: Lake, log: Log, rows: pa.Table) -> None:
    """Write the records that were read to files of the log, as a stream does."""
    lake.ensure(log_contract(log), {})
    good = rows.filter(pc.is_null(rows["_error"]))
    whole = good.append_column("_epoch", pa.repeat(pa.scalar(0, pa.int64()), len(good)))
    table = lake.table(log.name)
    assert sum(f.record_count for f in write_files(table, whole.select(list(log_contract(log).columns)))) == len(good)


@pytest.mark.parametrize("format", ["json", "csv"])
def test_X7_an_instant_beyond_the_calendar_is_rejected_and_one_at_its_end_is_read(
    spark: SparkSession, settings: Settings, tmp_path: Path, format: Format
) -> None:
    each = [{"at": NOON.isoformat(), column: text} for column, text in IN_TEXT]
    if format == "json":
        text = lines(*map(json.dumps, each))
    else:
        text = lines("at,until,day", *(f"{one['at']},{one.get('until', '')},{one.get('day', '')}" for one in each))
    paths, source = put(tmp_path / "in", {f"a.{format}": text}), Files("", format)
    by_spark, here = read_files(spark, source, STAYS, paths).toArrow(), file_rows(spark, source, STAYS, paths)
    for rows in (by_spark, here):
        ordered = rows.sort_by("_offset")
        assert ordered["_error"].to_pylist() == [*IN_TEXT.values()]
        landed(Lake(settings), STAYS, rows)


def test_X7_a_number_beyond_the_calendar_is_rejected_from_parquet(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    for place, ((column, type), values) in enumerate(IN_NUMBERS.items()):
        table = pa.table({"at": [NOON] * len(values), column: pa.array([*values], type)})
        paths, source = put(tmp_path, {f"{place}.parquet": table}), Files("", "parquet")
        for rows in (read_files(spark, source, STAYS, paths).toArrow(), file_rows(spark, source, STAYS, paths)):
            ordered = rows.sort_by("_offset")
            assert [error is None for error in ordered["_error"].to_pylist()] == [*values.values()], type
            assert all(error is None or BEYOND in error for error in ordered["_error"].to_pylist())
            landed(Lake(settings), STAYS, rows)


FRAMED = replace(STAYS, messages="avro", unknown="ignore")
TYPES = {"us": "timestamp-micros", "ms": "timestamp-millis", "ns": "timestamp-nanos"}


def test_X7_a_number_beyond_the_calendar_is_rejected_from_avro() -> None:
    for (column, type), values in IN_NUMBERS.items():
        kind = ("int", "date") if column == "day" else ("long", TYPES[type.unit])
        fields = [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                  {"name": column, "type": {"type": kind[0], "logicalType": kind[1]}}]  # fmt: skip
        schema = {"type": "record", "name": "T", "fields": fields}
        stored = {"type": "record", "name": "T", "fields": [
            {"name": "at", "type": "long"}, {"name": column, "type": kind[0]}]}  # fmt: skip
        messages = [framed(1, avro_body(stored, {"at": 0, column: value})) for value in values]
        schemas = {1: ReadableSchema(RegisteredSchema(1, "AVRO", json.dumps(schema)))}
        rows = framed_records(FRAMED, schemas, as_lines(messages)).sort_by("_offset")
        assert [error is None for error in rows["_error"].to_pylist()] == [*values.values()]
        assert rows["_raw"].to_pylist() == [
            None if fits else one for one, fits in zip(messages, values.values(), strict=True)
        ]


CHANGES = Changes(
    name="stays", columns={"changed": "timestamp", "until": "timestamp", "day": "date"}, event_time="changed",
    unknown="ignore",
)  # fmt: skip


def change(**row: Any) -> bytes:
    return json.dumps({"op": "c", "after": row, "source": {"ts_ms": 5}}).encode()


def test_X7_what_debezium_writes_for_infinity_is_rejected() -> None:
    """PostgreSQL's `infinity` comes as the driver's number for it, as text, or as a day of 32 bits."""
    numbers = replace(CHANGES, instants="microseconds")
    values = [{"until": 9223372036825200000}, {"until": -9223372036832400000}, {"day": 2**31 - 1}, {"until": 0}]
    rows = framed_records(numbers, {}, as_lines([change(**one) for one in values])).sort_by("_offset")
    assert [error is None for error in rows["_error"].to_pylist()] == [False, False, False, True]
    texts = [{column: text} for column, text in IN_TEXT] + [{"until": "infinity"}, {"day": "-infinity"}]
    rows = framed_records(CHANGES, {}, as_lines([change(**one) for one in texts])).sort_by("_offset")
    expected = [reason is None for reason in IN_TEXT.values()] + [False, False]
    assert [error is None for error in rows["_error"].to_pylist()] == expected


# ------------------------------------------------------------------------------------------------------ limits of JSON

LOOSE = Log(
    name="loose", columns={"at": "timestamp", "id": "string", "price": "decimal(10,2)", "ratio": "double"},
    event_time="at", unknown="ignore", record_bytes=20_500_000,
)  # fmt: skip
AT = '"at": "2026-01-01T12:00:00Z"'
DEEP = "nested more than 500 levels deep"
NONE = "not one JSON object"


def nested(levels: int, column: str = "more") -> str:
    return f'{{{AT}, "{column}": {"[" * (levels - 1)}{"]" * (levels - 1)}}}'


LIMITS: Mapping[str, str | None] = {
    nested(500): None,
    nested(501): DEEP,
    nested(990): DEEP,
    nested(1200): DEEP,
    nested(1200) + " ": DEEP,
    nested(100_000): DEEP,
    nested(1200, "id"): DEEP,
    nested(1200, "price"): DEEP,
    '{"a":' * 499 + f"{{{AT}}}" + "}" * 499: "the event time at is missing",
    '{"a":' * 2000 + "1" + "}" * 2000: DEEP,
    '{"a":' * 100_000: NONE,
    "[" * 100_000: NONE,
    f'{{{AT}, "id": "{"[" * 3000}"}}': None,
    f'{{{AT}, "more": {"1" * 1000}}}': None,
    f'{{{AT}, "more": {"1" * 100_000}}}': None,
    f'{{{AT}, "price": {"1" * 100_000}}}': f"price = {'1' * 100} is not a decimal(10,2)",
    f'{{{AT}, "id": "{"1" * 100_000}"}}': None,
    f'{{{AT}, "{"n" * 50_001}": 1}}': None,
}
"""Lines, and why each is rejected; None for one that is read."""


def test_X7_a_line_is_read_or_refused_by_stated_limits_on_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    paths, source = put(tmp_path, {"a.json": lines(*LIMITS)}), Files("", "json")
    by_spark, here = read_files(spark, source, LOOSE, paths).toArrow(), file_rows(spark, source, LOOSE, paths)
    for rows in (by_spark, here):
        ordered = rows.sort_by("_offset")
        assert ordered["_error"].to_pylist() == [*LIMITS.values()]
        assert [raw is None for raw in ordered["_raw"].to_pylist()] == [reason is None for reason in LIMITS.values()]
        raw = pc.binary_length(ordered["_raw"]).to_pylist()
        assert [size for size in raw if size] == [len(line) for line, reason in LIMITS.items() if reason]


LARGE: Mapping[str, tuple[int, str | None]] = {
    "x": (20_100_000, None),
    "\\n": (20_100_000, None),
    "7": (20_100_000, None),
    "y": (20_500_000, "the record has more than 20500000 bytes: set record_bytes in the log"),
    "\\t": (20_500_000, "the record has more than 20500000 bytes: set record_bytes in the log"),
}
"""Texts by how they begin and how long they are: a text may have 20,000,000 characters where Spark sets the limit."""


def test_X7_a_large_line_is_read_or_refused_by_its_size_whatever_is_in_it(spark: SparkSession, tmp_path: Path) -> None:
    for first, (size, reason) in LARGE.items():
        paths = put(tmp_path, {"a.json": lines(f'{{{AT}, "id": "{first}{"x" * size}"}}', f"{{{AT}}}")})
        source = Files("", "json")
        for rows in (read_files(spark, source, LOOSE, paths).toArrow(), file_rows(spark, source, LOOSE, paths)):
            assert rows.sort_by("_offset")["_error"].to_pylist() == [reason, None]


def test_X7_a_change_record_is_read_or_refused_by_the_same_limits() -> None:
    log = replace(CHANGES, record_bytes=1_000_000)
    told = {
        '"x": 1': None,
        f'"x": {"[" * 490}{"]" * 490}': None,
        f'"x": {"[" * 990}{"]" * 990}': DEEP,
        f'"x": {"[" * 100_000}{"]" * 100_000}': DEEP,
        f'"x": "{"[" * 3000}"': None,
        f'"x": {"1" * 10_001}': None,
        f'"x": "{"1" * 1001}"': None,
        f'"x": "{"x" * 1_000_000}"': "the record has more than 1000000 bytes: set record_bytes in the log",
    }
    messages = [f'{{"op": "c", "after": {{{more}}}, "source": {{"ts_ms": 5}}}}'.encode() for more in told]
    rows = framed_records(log, {}, as_lines(messages)).sort_by("_offset")
    assert rows["_error"].to_pylist() == [*told.values()]


def test_X7_a_line_of_csv_with_many_values_is_read_or_rejected(spark: SparkSession, tmp_path: Path) -> None:
    at = "2026-01-01T12:00:00Z"
    told = {
        f"{at},a": None,
        "x," * 30_000: "not one value for each of the 2 columns",
        f'{at},"{"," * 30_000}"': None,
        f"{at}" + "," * 19_000: "not one value for each of the 2 columns",
        f'{at},"' + '""' * 100_000 + '"': None,
    }
    paths = put(tmp_path, {"a.csv": lines("at,id", *told)})
    rows = read_files(spark, Files("", "csv"), LOOSE, paths).toArrow().sort_by("_offset")
    assert rows["_error"].to_pylist() == [*told.values()]


def test_X6_a_change_records_double_is_the_number_that_was_written() -> None:
    log = replace(CHANGES, columns={**CHANGES.columns, "ratio": "double"}, aliases={"ratio": "share"})
    told = {
        "9007199254740992": True, "9007199254740993": False, "-9007199254740993": False, "9007199254740993.0": True,
        "0.1": True, "1e-400": False, "0e-400": True, "0": True, "1e308": True, "1e300": True,
        "1" + "0" * 400: False, "NaN": False, "Infinity": False,
    }  # fmt: skip
    for name in ("ratio", "share"):
        messages = [f'{{"op": "c", "after": {{"{name}": {one}}}, "source": {{"ts_ms": 5}}}}'.encode() for one in told]
        rows = framed_records(log, {}, as_lines(messages)).sort_by("_offset")
        assert [error is None for error in rows["_error"].to_pylist()] == [*told.values()]


def test_X6_a_rejected_row_of_parquet_is_kept_with_all_its_digits_and_bytes(
    spark: SparkSession, tmp_path: Path
) -> None:
    at = 1_767_268_800_123_456
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\x00"]).buffers())
    columns: dict[str, tuple[pa.Array, Any]] = {
        "until": (pa.array([at], pa.timestamp("us", "UTC")), "2026-01-01T12:00:00.123456Z"),
        "nanos": (pa.array([at * 1000 + 789], pa.timestamp("ns", "UTC")), "2026-01-01T12:00:00.123456789Z"),
        "bytes": (pa.array([b"\xff\x00"], pa.binary()), "/wA="),
        "text": (text, "base64:/wA="),
        "exact": (pa.array([Decimal("12345678901234567890.123456789")]), Decimal("12345678901234567890.123456789")),
        "ratio": (pa.array([0.1 + 0.2]), Decimal("0.30000000000000004")),
        "nan": (pa.array([float("nan")]), "NaN"),
        "day": (pa.array([2**31 - 1], pa.date32()), "+5881580-07-11"),
    }
    # Of undeclared columns all are kept as they are; of declared ones, whose values do not fit, as well.
    table = pa.table({name: column for name, (column, _) in columns.items()})
    paths = put(tmp_path, {"a.parquet": table})
    (row,) = read_files(spark, Files("", "parquet"), STAYS, paths).select("_raw").collect()
    assert json.loads(row["_raw"], parse_float=Decimal) == {name: kept for name, (_, kept) in columns.items()}
    millis = [at // 1000, MOST, None]
    table = pa.table({
        "at": pa.array([at * 1000 + 789, at * 1000 + 789, None], pa.timestamp("ns", "UTC")),
        "until": pa.array(millis, pa.timestamp("ms", "UTC")), "day": pa.array([2**31 - 1] * 3, pa.date32()),
    })  # fmt: skip
    frame = read_files(spark, Files("", "parquet"), STAYS, put(tmp_path, {"b.parquet": table}))
    rows = frame.select("_raw").collect()
    nanos = "2026-01-01T12:00:00.123456789Z"
    assert [json.loads(row["_raw"]) for row in rows] == [
        {"at": nanos, "until": "2026-01-01T12:00:00.123000Z", "day": "+5881580-07-11"},
        {"at": nanos, "until": f"{MOST} milliseconds since 1970", "day": "+5881580-07-11"},
        {"day": "+5881580-07-11"},
    ]
