"""The values that a log rounds are counted, alike by each reader and engine, and once for each record that landed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tailrace import Changes, Csv, Log
from tailrace.ingest.csv_reader import csv_reader
from tailrace.ingest.framed.framed_records import framed_records
from tailrace.ingest.json_reader import read_lines
from tailrace.ingest.landing import Landing
from tailrace.ingest.landing_task import LandingTask
from tailrace.ingest.line_reader import read_all
from tailrace.ingest.plain_files import read_typed
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.status import log_status
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.logs.log import ROUNDED, SIGN
from tailrace.settings import Settings
from tests.ingest.test_avro_files import opened
from tests.ingest.test_change_records import Row
from tests.ingest.test_deduplicating import ORDERS, SALES, Shop, order
from tests.ingest.test_nested_messages import avro, record
from tests.support.lakes.avro_files import container
from tests.support.services.schema_registry import as_lines, avro_body, framed

LOG = Log(
    name="sums",
    columns={
        "at": "timestamp", "total": "decimal(9,2)", "parts": "array<decimal(6,1)>", "by": "map<string,decimal(6,1)>",
        "one": "struct<x:decimal(6,1),y:double>",
    },
    event_time="at", rounding="half_even", csv=Csv(delimiter=";", quote=None),
)  # fmt: skip
AT = "2026-01-01T12:00:00Z"
NOISE: tuple[dict[str, Any], ...] = (
    {"total": 38.970000000000006, "parts": [0.1, 0.15, 0.25], "by": {"b": 1.05, "a": 1.5}, "one": {"x": 0.11, "y": 1}},
    {"total": 38.97, "parts": [], "by": {}, "one": {"x": 1.0, "y": 0.0}},
    {"total": -0.001, "parts": [0.3, 0.30000000000000004], "by": None, "one": None},
    {"total": 12345678.9, "parts": [0.15], "by": {}, "one": {"x": 0.15, "y": 2.5}},
    {"total": None, "parts": [None], "by": {"a": None}, "one": {"x": None, "y": None}},
)
COUNTS = [5, 0, 2, None, 0]
"""The rounded values of each record; the fourth record is rejected."""


def in_json(folder: Path) -> pa.Table:
    return read_lines(LOG, as_lines([json.dumps({"at": AT, **row}).encode() for row in NOISE]))


def in_json_beside_others(folder: Path) -> pa.Table:
    """Maps and undeclared fields are read by the model, and so is a record with a number that is too long for Arrow."""
    log = replace(LOG, rest="extra")
    texts = [json.dumps({"at": AT, **row, "odd": 1}).replace("006,", f"006{'0' * 30},").encode() for row in NOISE]
    return read_lines(log, as_lines(texts))


def in_csv(folder: Path) -> pa.Table:
    cells = [[AT, *("" if one is None else json.dumps(one) for one in row.values())] for row in NOISE]
    return read_all(csv_reader(LOG, b"at;total;parts;by;one"), as_lines([";".join(one).encode() for one in cells]))


def in_parquet(folder: Path) -> pa.Table:
    types = pa.schema({
        "at": pa.string(), "total": pa.float64(), "parts": pa.list_(pa.float64()),
        "by": pa.map_(pa.string(), pa.float64()), "one": pa.struct({"x": pa.float64(), "y": pa.float64()}),
    })  # fmt: skip
    rows = [{"at": AT, **row, "by": None if row["by"] is None else [*row["by"].items()]} for row in NOISE]
    pq.write_table(pa.Table.from_pylist(rows, types), folder / "a.parquet")
    return read_typed(LOG, "parquet", [str(folder / "a.parquet")])


def of_avro(number: str) -> dict[str, Any]:
    null: list[Any] = ["null"]
    fields = {
        "at": "string", "total": ["null", number], "parts": ["null", {"type": "array", "items": ["null", number]}],
        "by": ["null", {"type": "map", "values": ["null", number]}],
        "one": [*null, record({"x": ["null", number], "y": ["null", "double"]})],
    }  # fmt: skip
    return record(fields)


def in_avro_files(folder: Path) -> pa.Table:
    schema = of_avro("double")
    return opened(LOG, container(schema, [avro_body(schema, {"at": AT, **row}) for row in NOISE]))


def in_avro_messages_with_texts(folder: Path) -> pa.Table:
    def texts(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: texts(one) if name != "y" else one for name, one in value.items()}
        return [*map(texts, value)] if isinstance(value, list) else value if value is None else repr(value)

    schema = of_avro("string")
    bodies = [framed(1, avro_body(schema, {"at": AT, **texts(row)})) for row in NOISE]
    return framed_records(replace(LOG, messages="avro"), {1: avro(1, schema)}, as_lines(bodies))


@pytest.mark.parametrize(
    "read", [in_json, in_json_beside_others, in_csv, in_parquet, in_avro_files, in_avro_messages_with_texts]
)
def test_each_reader_counts_the_values_that_it_rounds(read: Callable[[Path], pa.Table], tmp_path: Path) -> None:
    rows = read(tmp_path).sort_by("_offset").to_pylist()
    assert [None if row["_error"] else row[ROUNDED] or 0 for row in rows] == COUNTS
    assert "total" in rows[3]["_error"]


def test_the_rows_before_and_after_a_change_are_counted_apart() -> None:
    log = Changes(
        name="prices", columns={"changed": "timestamp", "price": "decimal(6,2)", "fee": "decimal(6,2)"},
        event_time="changed", rounding="half_even", aliases={"fee": "tax"},
    )  # fmt: skip
    sides: tuple[tuple[str, Row | None, Row | None], ...] = (
        ("u", {"price": 0.125, "fee": 0.5}, {"price": 0.125, "tax": 0.001}),
        ("c", {"price": 0.125, "fee": 0.5}, {"price": 0.5, "tax": 0.001}),
        ("d", {"price": 0.12, "fee": 0.5}, None),
    )
    source = {"ts_ms": 5}
    texts = [json.dumps({"op": op, "before": before, "after": after, "source": source}) for op, before, after in sides]
    wrapped = [json.dumps({"payload": json.loads(text)}) for text in texts]
    for given in (texts, wrapped):
        rows = framed_records(log, {}, as_lines([one.encode() for one in given])).to_pylist()
        found = sorted((row["_offset"], row[SIGN], row[ROUNDED]) for row in rows)
        assert found == [(0, -1, 1), (0, 1, 2), (1, 1, 1), (2, -1, 0)]


def priced(number: int, hour: float, price: float) -> dict[str, Any]:
    return order("a", number, hour) | {"price": price}


SUMS = replace(
    SALES, log=replace(ORDERS, columns={**ORDERS.columns, "price": "decimal(9,2)"}, rounding="half_even")
)  # fmt: skip


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_X2_a_rounded_value_counts_once_in_status_whatever_comes_again(
    plain: SparkSession, settings: Settings, tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(plain, settings.model_copy(update={"engine": engine}), tmp_path / "landing", SUMS)
    shop.land([priced(1, 1, 38.970000000000006), priced(1, 1, 0.125), priced(2, 1, 0.5), {"shop": "a", "price": 0.125}])
    shop.drain()
    assert [one.landed.rounded for one in shop.reports] == [1]
    shop.land([priced(1, 2, 0.125), priced(3, 2, 0.125), priced(4, 2, 0.001)])
    with monkeypatch.context() as patched:
        patched.setattr(Landing, "publish", lambda landing: 1 / 0)
        with pytest.raises(Exception, match="division by zero"):
            shop.drain()
    shop.drain()
    assert [one.landed.rounded for one in shop.reports] == [1, 2]
    found = log_status(shop.lake, "orders", SUMS.log)
    assert (found.records, found.rejected, found.duplicates, found.rounded) == (4, 1, 2, 3)
    assert ROUNDED not in plain.table("orders").columns


def test_a_task_on_an_executor_counts_the_rounded_values_of_the_records_that_it_writes(
    settings: Settings, tmp_path: Path
) -> None:
    lake = Lake(settings)
    lake.ensure(log_contract(LOG), {})
    (tmp_path / "a.json").write_text("".join(json.dumps({"at": AT, **row}) + "\n" for row in NOISE))
    task = LandingTask.of(lake, LOG, "json", 0)
    assert task is not None
    part = task.land([str(tmp_path / "a.json")])
    assert part is not None
    assert (part.records, part.rounded) == (4, 7)
