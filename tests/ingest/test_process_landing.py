"""Large epochs that threads of the process land: the tables are as if all records were read into memory (X2, X6)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import Col, Count, Derive, Fixed, Pipeline, Sum, hours
from tailrace.engines import choose
from tailrace.engines.choose import Engine as EngineName
from tailrace.engines.choose import EngineChoice, EnginePolicy
from tailrace.engines.duckdb.executions import sql_execution
from tailrace.ingest import process_landing
from tailrace.ingest.process_landing import ProcessLanding
from tailrace.ingest.sources import Files, Format
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.definition import Definition
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tests.ingest.test_worker_landing import STAYS, orphans, rides, told
from tests.support.engines.executors import watched
from tests.support.lakes.rides import HOURLY, RIDES

SHARES = Pipeline(
    name="shares", log=RIDES, key="who", each=[Derive({"half": Col("cents") // 2})],
    what={"n": Count(), "halves": Sum("half")}, where=Fixed(hours(1)),
)  # fmt: skip
"""A pipeline whose step is a view over the files."""


def drained(spark: SparkSession, lake: Lake, folder: Path, format: Format) -> list[EpochReport]:
    found: list[EpochReport] = []
    pipelines = [HOURLY, STAYS, SHARES]
    stream = Stream(spark, lake, pipelines, Files(str(folder), format, per_epoch=3), watch=found.append)
    stream.start(once=True)
    stream.wait()
    stream.close()
    return found


def held(lake: Lake, reports: list[EpochReport]) -> list[Any]:
    """What `told` tells, and each record with its place."""
    places = [
        sorted(map(repr, lake.table(name).scan(selected_fields=columns).to_arrow().to_pylist()))
        for name, columns in (
            ("rides", ("who", "cents", "_epoch", "_source", "_offset")), ("rides__rejected", ("raw", "_offset")),
            ("shares", ("who", "n", "halves", "window_start")),
        )
    ]  # fmt: skip
    return [*told(lake, reports), *places]


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_L1_X6_what_threads_land_and_fold_from_files_is_what_the_process_reads(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    folder = rides(tmp_path / "landing", format)
    monkeypatch.setattr(process_landing, "PART", 600)
    found = []
    for threads, many in ((0, 1), (1, 1), (2, sql_execution.MANY), (8, 1)):
        monkeypatch.setattr(process_landing, "WORTH", 0 if threads else 2**40)
        monkeypatch.setattr(sql_execution, "MANY", many)
        changes = {"namespace": f"threads_{threads}", "threads": max(1, threads), "memory": "8GB"}
        lake = Lake(settings.model_copy(update=changes))
        with monkeypatch.context() as patch:
            landed = watched(patch, ProcessLanding, "land")
            reports = drained(plain, lake, folder, format)
        assert landed == [bool(threads)] * 2
        assert {one.engine for report in reports for one in report.folded.values()} == {"duckdb"}
        assert orphans(lake) == 0
        found.append(held(lake, reports))
    in_memory, *by_threads = found
    for one in by_threads:
        assert one == in_memory


def test_X2_a_fold_that_goes_over_to_spark_takes_the_records_that_threads_have_landed(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = rides(tmp_path / "landing", "parquet")
    over, own = EngineChoice(EngineName.SPARK, "the second epoch is Spark's"), EnginePolicy.goes_over

    def second(policy: EnginePolicy, definition: Definition, *, here: bool, rows: int) -> EngineChoice | None:
        return over if rows else own(policy, definition, here=here, rows=rows)

    found = []
    for name, worth in (("memory", 2**40), ("threads", 0)):
        monkeypatch.setattr(process_landing, "WORTH", worth)
        lake = Lake(settings.model_copy(update={"namespace": name, "memory": "8GB"}))
        with monkeypatch.context() as patch:
            if name == "threads":
                patch.setattr(EnginePolicy, "goes_over", second)
            reports = drained(plain, lake, folder, "parquet")
        assert (reports[-1].folded["hourly"].engine == "spark") is (name == "threads")
        found.append(held(lake, reports))
    assert found[0] == found[1]


def test_an_epoch_that_may_have_more_windows_than_the_process_holds_is_landed_here_and_folded_by_spark(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = rides(tmp_path / "landing", "parquet")
    monkeypatch.setattr(process_landing, "WORTH", 0)
    monkeypatch.setattr(choose, "_BYTES_A_ROW", 10**10)
    landed = watched(monkeypatch, ProcessLanding, "land")
    reports = drained(plain, lake := Lake(settings.model_copy(update={"memory": "8GB"})), folder, "parquet")
    assert landed[0]
    assert reports[0].folded["hourly"].engine == "spark"
    assert sum(one.landed.records for one in reports) == lake.table("rides").scan().count() == 128


def test_X2_an_epoch_with_a_damaged_file_is_read_otherwise_and_leaves_no_file_behind(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = rides(tmp_path / "landing", "parquet")
    damaged = folder / "1.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    os.utime(damaged, (1_700_000_001,) * 2)
    monkeypatch.setattr(process_landing, "WORTH", 0)
    landed = watched(monkeypatch, ProcessLanding, "land")
    reports = drained(plain, lake := Lake(settings.model_copy(update={"memory": "8GB"})), folder, "parquet")
    assert landed == [False, False]
    assert orphans(lake) == 0
    assert [one.landed.rejected for one in reports] == [1, 0]
    assert lake.table("rides").scan().count() == 103


def test_with_too_little_memory_for_one_thread_no_epoch_is_landed_by_threads(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = rides(tmp_path / "landing", "parquet")
    monkeypatch.setattr(process_landing, "WORTH", 0)
    landed = watched(monkeypatch, ProcessLanding, "land")
    lake = Lake(settings.model_copy(update={"memory": "500MB"}))
    assert sum(one.landed.records for one in drained(plain, lake, folder, "parquet")) == 128
    assert landed == []
