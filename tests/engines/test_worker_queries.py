"""A log's accumulators by the executors' Python: the answers are those of Spark's own reading (L1)."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any
from zipimport import zipimporter

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace import Sessions, minutes
from tailrace.engines.batch.batch_answers import answering
from tailrace.engines.choose import WORTH, Engine, EngineChoice
from tailrace.engines.duckdb import file_query
from tailrace.engines.duckdb.session import DuckSession
from tailrace.engines.log_records import rows_of_log
from tailrace.engines.spark import cluster
from tailrace.engines.spark.executions.preparation import empty_frame
from tailrace.engines.spark.workers import python_tasks, worker_queries
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import BEGINNING, instant
from tailrace.settings import Settings
from tailrace.sql.results.answers import in_range
from tailrace.sql.terms import Query
from tests.support.engines.executors import watched, without_package
from tests.support.lakes.rides import HOURLY, Case


@pytest.fixture
def lake(plain: SparkSession, settings: Settings, tmp_path: Path) -> Lake:
    case = Case(plain, settings, tmp_path / "landing")
    for number in range(3):
        case.land(*(("ann" if one % 2 else "zoe", one, f"{8 + number:02}:{one:02}") for one in range(20)))
    case.drain(HOURLY)
    return case.lake


def answered(session: cluster.ClusterSession) -> list[Any]:
    """The answers by Spark and by the executors, without the number of records."""
    by, rows = answering(session, HOURLY), rows_of_log(session, HOURLY.log, 2)
    taken = session.counted(by.brought(rows), {"all": "true"})  # type: ignore[dict-item]
    assert taken.counts == {"all": 6}
    return sorted(session.rows(Query(f"SELECT who, window_start, n, cents FROM {taken.relation}")), key=str)


@pytest.mark.parametrize(
    ("small", "fits", "room", "ways"),
    [
        pytest.param(True, True, True, [[True], []], id="put together here"),
        pytest.param(True, True, False, [[True], []], id="put together as it is read"),
        pytest.param(True, False, True, [[False], [True]], id="too much for here"),
        pytest.param(False, True, True, [[], [True]], id="left with the executors"),
    ],
)
def test_L1_what_the_executors_add_up_is_what_spark_adds_up(
    plain: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch,
    small: bool, fits: bool, room: bool, ways: list[list[bool]],
) -> None:  # fmt: skip
    def no_room(*_: object) -> None:
        raise duckdb.OutOfMemoryException("no room")

    found = []
    if not room:
        monkeypatch.setattr(DuckSession, "materialized", no_room)
    brought, kept = (watched(monkeypatch, worker_queries.LogFiles, way) for way in ("fetched", "answer"))
    for worth in (0, WORTH):
        monkeypatch.setattr(worker_queries, "WORTH", worth)
        choice = EngineChoice(Engine.SPARK, "of the test")
        with closing(cluster.ClusterSession(plain, lake, choice, small=small)) as session:
            monkeypatch.setattr(session, "_bound", session._bound if fits else 1)
            found.append(answered(session))
    assert found[0] == found[1]
    assert [brought, kept] == ways


def test_V5_a_session_is_in_a_range_by_its_end_though_each_task_has_a_part_of_it(
    plain: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_queries, "WORTH", 0)
    fetched = watched(monkeypatch, worker_queries.LogFiles, "fetched")
    with closing(cluster.ClusterSession(plain, lake, EngineChoice(Engine.SPARK, "of the test"), small=True)) as session:
        by, rows = answering(session, replace(HOURLY, where=Sessions(minutes(50)))), rows_of_log(session, HOURLY.log, 2)
        ends = (instant(datetime(2026, 1, 1, hour, 30, tzinfo=UTC)) for hour in (9, 11))
        found = [session.rows(by.brought(rows, in_range(BEGINNING, end))) for end in ends]
    assert [sorted(row["n"] for row in rows) for rows in found] == [[], [30, 30]]
    assert fetched == [True, True]


def test_a_task_of_python_leaves_nothing_for_spark_to_look_through_before_the_next(plain: SparkSession) -> None:
    def state(part: Sequence[str]) -> tuple[bool, bool]:
        archives = any(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
        return gc.get_freeze_count() > 0, archives

    for _ in range(2):
        found = python_tasks.call_results(plain, [["part"]], state)
    assert found == [(True, False)]


def test_a_task_of_python_gives_back_the_memory_that_it_took(plain: SparkSession) -> None:
    def taken(part: Sequence[str]) -> tuple[int, int, int]:
        def resident() -> int:
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20

        before = resident()
        held = [pa.repeat(1, 8_000_000) for _ in range(3)]
        most = resident()
        del held
        return os.getpid(), before, most

    found = [python_tasks.call_results(plain, [["part"]], taken) for _ in range(4)]
    one_by_one = [task for tasks in found for task in tasks or ()]
    again = [(most, before) for (first, _, most), (then, before, _) in combinations(one_by_one, 2) if first == then]
    assert again
    assert all(before < most - 150 for most, before in again)


def test_an_empty_frame_needs_no_python(plain: SparkSession) -> None:
    made = empty_frame(plain, "`a b` bigint, nested struct<n:int,`x y`:array<string>>")
    assert (made.schema.names, made.schema["nested"].dataType.simpleString()) == (
        ["a b", "nested"],
        "struct<n:int,x y:array<string>>",
    )
    assert made.collect() == []
    assert "Python" not in made._jdf.queryExecution().logical().rdd().toDebugString()


def test_executors_without_the_package_leave_the_log_to_spark(
    plain: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_queries, "WORTH", 0)
    without_package(monkeypatch, file_query.FileQuery)
    choice = EngineChoice(Engine.SPARK, "of the test")
    with closing(cluster.ClusterSession(plain, lake, choice, small=True)) as session:
        assert [row["n"] for row in answered(session)] == [10] * 6
