"""Backfills whose log the executors' Python reads: the ledger is as Spark or the process would have left it (L1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import (
    AfterCount,
    AfterWatermark,
    Col,
    Derive,
    Each,
    Fixed,
    Map,
    Match,
    Max,
    Pipeline,
    Sessions,
    Sum,
    minutes,
)
from tailrace.backfill.backfill import backfill_stages
from tailrace.engines.choose import WORTH
from tailrace.engines.duckdb import file_query
from tailrace.engines.spark import cluster
from tailrace.engines.spark.workers import worker_queries
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.settings import Settings
from tests.support.engines.executors import watched, without_package
from tests.support.lakes.rides import HOURLY, RIDES, Case

DEAR = Map(
    name="dear",
    log=RIDES,
    each=[Derive({"euros": Col("cents") // 10}), Derive({"more": Col("euros") + 1})],
    keep=Match("cents", ">", 3),
)
TWICE = Derive({"twice": Col("cents") * 2})
BY_RIDER = replace(HOURLY, name="by_rider", each=TWICE, what={"twice": Sum("twice"), "most": Max("cents")})
BY_HOUR = Pipeline(
    name="by_hour",
    log=BY_RIDER.panes,
    each=Derive({"both": Col("twice") + Col("most")}),
    what={"both": Sum("both")},
    where=Fixed(minutes(120)),
    when=AfterWatermark(late=AfterCount(1)),
)
# The rides of each file are a part of a rider's one session.
BY_SESSION = replace(HOURLY, name="by_session", where=Sessions(minutes(50)))

SECOND_DAY = instant(datetime(2026, 1, 2, tzinfo=UTC))


@pytest.fixture
def case(plain: SparkSession, settings: Settings, tmp_path: Path) -> Case:
    case = Case(plain, settings, tmp_path / "landing")
    for number in range(3):
        case.land(*(("ann" if one % 2 else "zoe", one, f"{8 + number:02}:{one:02}") for one in range(20)))
    # With it the windows before are closed.
    case.land(("ann", 1, "03T08:00"))
    return case


@contextmanager
def tried(monkeypatch: pytest.MonkeyPatch, worth: int) -> Iterator[dict[str, list[bool]]]:
    """Note which ways were tried to have the executors read the log, and whether they did."""
    with monkeypatch.context() as patch:
        patch.setattr(worker_queries, "WORTH", worth)
        yield {way: watched(patch, worker_queries.LogFiles, way) for way in ("write", "fetched")}


def backfilled(case: Case, definition: Map | Pipeline, engine: str) -> list[list[tuple[Any, ...]]]:
    """Drop what a stream has left of a definition, backfill all of it, and return each ledger's rows."""
    lake = Lake(case.lake.settings.model_copy(update={"engine": engine}))
    for stage in definition.stages:
        table = case.lake.spark_name(ledger_name(stage.name))
        case.spark.sql(f"DELETE FROM {table} WHERE kind <> 'partial'")
        if isinstance(stage, Pipeline):
            case.spark.sql(f"DELETE FROM {case.lake.spark_name(stage.name)}")
    backfill_stages(lake, definition, BEGINNING, END_OF_TIME if isinstance(definition, Map) else SECOND_DAY)
    found = []
    for stage in definition.stages:
        rows = lake.table(ledger_name(stage.name)).scan(row_filter="kind <> 'partial'").to_arrow().to_pylist()
        left = ("generation", "processing_time")
        found.append(sorted((tuple(row[name] for name in sorted(row) if name not in left) for row in rows), key=str))
    return found


@pytest.mark.parametrize(
    ("definition", "way"),
    [(DEAR, "write"), (BY_HOUR, "fetched"), (BY_SESSION, "fetched")],
    ids=["a map", "two stages", "sessions"],
)
def test_L1_a_ledger_by_the_executors_is_the_one_by_spark_and_by_the_process(
    case: Case, monkeypatch: pytest.MonkeyPatch, definition: Map | Pipeline, way: str
) -> None:
    case.drain(*definition.stages)
    by_process = backfilled(case, definition, "duckdb")
    assert all(by_process)
    for worth, taken in ((0, [True]), (WORTH, [])):
        with tried(monkeypatch, worth) as found:
            assert backfilled(case, definition, "spark") == by_process
        assert found[way] == taken


@pytest.mark.parametrize("here", [True, False])
def test_L1_a_run_on_spark_compares_with_small_tables_here_as_spark_would(
    case: Case, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    case.drain(*BY_HOUR.stages)
    expected = backfilled(case, BY_HOUR, "duckdb")
    answers = [case.lake.spark_name(stage.name) for stage in BY_HOUR.stages]
    before = [answered(case, table) for table in answers]
    for table in (answers[0], case.lake.spark_name(ledger_name(BY_RIDER.name))):
        case.spark.sql(f"DELETE FROM {table} WHERE who = 'ann'")
    reading = watched(monkeypatch, cluster.ClusterSession, "_name_here")
    if not here:
        monkeypatch.setattr(cluster.ClusterSession, "_read_here", lambda session, relations: not relations)
    lake = Lake(case.lake.settings.model_copy(update={"engine": "spark"}))
    with tried(monkeypatch, 0) as found:
        runs = backfill_stages(lake, BY_HOUR, BEGINNING, SECOND_DAY)
    assert found["fetched"] == [True]
    assert bool(reading) == here
    assert [(one.changed, one.untouched, one.retracted) for _, [one] in runs] == [(3, 3, 0), (0, len(expected[1]), 0)]
    assert [answered(case, table) for table in answers] == before


def answered(case: Case, table: str) -> list[str]:
    return sorted(map(str, case.spark.table(table).drop("generation").collect()))


def test_a_map_with_a_step_of_ones_own_is_sparks(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = replace(DEAR, each=Each(doubled, {"euros": "bigint"}))
    case.drain(definition)
    by_process = backfilled(case, definition, "duckdb")
    with tried(monkeypatch, 0) as found:
        assert backfilled(case, definition, "spark") == by_process
    assert found == {"write": [], "fetched": []}


def doubled(record: Any) -> dict[str, int]:
    return {"euros": record["cents"] * 2}


def test_executors_that_cannot_write_leave_the_rows_to_spark(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.drain(DEAR)
    by_process = backfilled(case, DEAR, "duckdb")
    without_package(monkeypatch, file_query.FileQuery)
    with tried(monkeypatch, 0) as found:
        assert backfilled(case, DEAR, "spark") == by_process
    assert found["write"] == [False]
