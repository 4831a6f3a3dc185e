"""Values at the ends of their types, as each reader meets them: a record is read whole, or rejected, and others go on.

Nothing that a record says stops a stream (rule X7): what this process reads is what Spark reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from tailrace.ingest.framed.framed_messages import ReadableSchema, framed_records
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.micro_batch import file_rows
from tailrace.ingest.parsing import read_files
from tailrace.ingest.plain_files import read_parquet
from tailrace.ingest.sources import Files, Format
from tailrace.lake.catalog.data_files import written_files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.base.time import BEGINNING, END_OF_TIME, FIRST_DAY, LAST_DAY
from tailrace.model.logs.changes import Changes
from tailrace.model.logs.log import Log
from tailrace.settings import Settings
from tests.support.files import lines, put
from tests.support.schema_registry import as_lines, avro_body, framed

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
    assert sum(f.record_count for f in written_files(table, whole.select(list(log_contract(log).columns)))) == len(good)


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
        good = pa.array([value for value, fits in values.items() if fits], type)
        alone = put(tmp_path, {"good.parquet": pa.table({"at": [NOON] * len(good), column: good})})
        assert (read_parquet(STAYS, alone) is not None) == (type.unit != "ns" if column == "until" else True)


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
