"""One query, two engines, the same rows; what is no query is one line of error."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tailrace.cli import main
from tailrace.lake.catalog import Lake
from tailrace.lake.querying import QueryError, by_duckdb
from tailrace.settings import Settings
from tailrace.spark.querying import by_spark
from tests.support import small_lake

QUERIES = [
    "select city, rides, mean_price, window_start from hourly_rides order by city, window_start",
    "select city, count(*) as n, sum(rides) as r from hourly_rides__panes where not retraction group by 1 order by 1",
    "with late as (select * from hourly_rides__late) select reason, behind, event_time from late",
    "select count(*) as open from hourly_rides__state where not gone",
    "select l.kind, a.rides from hourly_rides__ledger l join hourly_rides a using (city, window_start) order by all",
]

Ask = Callable[[str], pa.Table]


@pytest.fixture(params=["spark", "duckdb"])
def ask(request: pytest.FixtureRequest, plain: SparkSession, settings: Settings) -> Ask:
    lake = small_lake.make(settings)
    return (
        (lambda query: by_spark(plain, lake, query))
        if request.param == "spark"
        else lambda query: by_duckdb(lake, query)
    )


def test_both_engines_give_the_same_rows(plain: SparkSession, settings: Settings) -> None:
    lake = small_lake.make(settings)
    for query in QUERIES:
        found = [by_spark(plain, lake, query).to_pylist(), by_duckdb(lake, query).to_pylist()]
        assert found[0] == found[1], query
        assert found[0]


@pytest.mark.parametrize(
    "query", ["drop table hourly_rides", "insert into hourly_rides select * from hourly_rides", "select 1; select 2"]
)
def test_what_does_more_than_read_is_refused(ask: Ask, query: str) -> None:
    with pytest.raises(QueryError):
        ask(query)


@pytest.mark.parametrize("query", ["select nothing from hourly_rides", "select * from nowhere", "selec 1"])
def test_an_error_is_one_line(ask: Ask, query: str) -> None:
    with pytest.raises(QueryError) as caught:
        ask(query)
    assert len(str(caught.value).splitlines()) == 1
    assert "SQLSTATE" not in str(caught.value)


def run(*args: str) -> Any:
    return CliRunner().invoke(main.app, ["sql", *args, "--engine", "duckdb"])


@pytest.fixture
def made(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(settings.warehouse))
    return small_lake.make(settings)


def test_rows_are_printed_as_asked(made: Lake) -> None:
    query = "select city, window_start, rides, null as nothing from hourly_rides order by all"
    shown = run(query, "--rows", "2").stdout.splitlines()
    assert shown[0].split() == ["city", "window_start", "rides", "nothing"]
    assert shown[1].split() == ["Oslo", "2026-01-01T09:00:00Z", "3", "–"]
    assert shown[-1] == "3 rows, 1 of them not shown: --rows 0 shows all"
    assert run(query, "--format", "csv").stdout.splitlines()[:2] == [
        "city,window_start,rides,nothing",
        "Oslo,2026-01-01T09:00:00Z,3,",
    ]
    assert json.loads(run(query, "--format", "json").stdout)[0] == {
        "city": "Oslo", "window_start": "2026-01-01T09:00:00Z", "rides": 3, "nothing": None
    }  # fmt: skip


def test_a_wrong_query_is_a_usage_error(made: Lake) -> None:
    result = run("select nothing from hourly_rides")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
