"""A live table is partitioned otherwise, and every engine reads and writes what is there and what comes (rule X3)."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.backfill.backfill import backfill
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.scans import scan_table
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.migration import evolve
from tailrace.lake.upkeep.rewriting import files_of
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.step.step import Record
from tailrace.operate.maintenance import maintain
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.lakes.recorded_ledgers import Epochs, no_spark, record
from tests.support.lakes.rides import HOURLY

START, HOUR = 1_767_225_600_000_000, 3_600_000_000
TABLES = ("rides", "hourly__ledger", "hourly")
FORMER: dict[str, list[str]] = {"rides": [], "hourly__ledger": ["kind"], "hourly": []}


def rides(first: int, count: int) -> Epochs:
    """An epoch every eight hours, with some rides of each."""
    found = []
    for epoch in range(first, first + count):
        end = START + 8 * HOUR * (epoch + 1)
        rows: list[Record] = [
            {"who": "ab"[n % 2], "cents": 10 * epoch + n, "day": end - back * HOUR, "seen": end}
            for n, back in enumerate((1, 2, 2, 5, 7))
        ]
        found.append((rows, Clock(epoch, end - HOUR, end)))
    return found


def by_all(spark: SparkSession, lake: Lake, table: str) -> list[str]:
    """The rows of a table, which pyiceberg, DuckDB and Spark read alike."""
    columns = [field.name for field in lake.table(table).schema().fields]

    def comparable(rows: pa.Table) -> list[str]:
        return sorted(json.dumps([row[name] for name in columns], default=str) for row in rows.to_pylist())

    connection = connect(lake.settings)
    with scan_table(connection, lake, table) as relation:
        by_duckdb = connection.execute(f"SELECT * FROM {relation}").to_arrow_table()
    connection.close()
    by_iceberg, by_spark = lake.table(table).scan().to_arrow(), spark.table(lake.spark_name(table)).toArrow()
    assert comparable(by_iceberg) == comparable(by_duckdb) == comparable(by_spark)
    return comparable(by_iceberg)


def specs(lake: Lake, table: str) -> set[int]:
    return {file.spec_id for file in files_of(lake.table(table))}


@pytest.mark.slow
def test_X3_a_live_tables_partitioning_is_changed_and_every_engine_goes_on(
    plain: SparkSession, settings: Settings
) -> None:
    lake = Lake(settings)
    settings.contracts.mkdir()
    for table, terms in FORMER.items():
        (settings.contracts / f"{table}.json").write_text(json.dumps({"partition_by": terms, "sort_by": []}))
    record(lake, HOURLY, rides(0, 4))
    before = {table: (lake.head(table).snapshot, by_all(plain, lake, table)) for table in TABLES}
    for table in TABLES:
        (settings.contracts / f"{table}.json").unlink()
    assert {one.table for one in evolve(lake, HOURLY) if one.done} == set(TABLES)
    record(lake, HOURLY, rides(4, 3))
    record(lake, HOURLY, rides(7, 2), plain)
    rows = {table: by_all(plain, lake, table) for table in TABLES}
    assert {table: len(specs(lake, table)) for table in TABLES} == dict.fromkeys(TABLES, 2)
    assert len(rows["rides"]) == 45
    for table, (snapshot, then) in before.items():
        assert lake.table(table).scan(snapshot_id=snapshot).count() == len(then)
    assert audit(lake, HOURLY).ok
    assert [run.changed for run in backfill(lake, HOURLY, BEGINNING, END_OF_TIME, reason="all")] == [0, 0]
    done = {one.table: one.rewritten for one in maintain(no_spark, lake, HOURLY).tables}
    assert all("data files" in done[table] for table in TABLES)
    assert {table: specs(lake, table) for table in TABLES} == {
        table: {lake.table(table).spec().spec_id} for table in TABLES
    }
    assert {table: by_all(plain, lake, table) for table in TABLES} == rows
    record(lake, HOURLY, rides(9, 1))
    assert audit(lake, HOURLY).ok
