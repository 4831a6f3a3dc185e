"""One query, two engines, the same rows; what is no query is one line of error."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tailrace.cli import main
from tailrace.engines import choose
from tailrace.engines.choose import Engine
from tailrace.engines.duckdb.iceberg_query import by_duckdb
from tailrace.engines.duckdb.query import try_duckdb
from tailrace.engines.spark.query import by_spark
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.query_views import QueryError
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.step.step import WindowsState, step
from tailrace.model.windows.panes import Pane, settled_indexes
from tailrace.settings import Settings
from tailrace.trace.key_history import history
from tests.support.lakes import small_lake
from tests.support.lakes.several_logs import PATIENT, Logs, Part, random_epochs

QUERIES = [
    "select city, rides, mean_price, window_start from hourly_rides order by city, window_start",
    "select city, count(*) as n, sum(rides) as r from hourly_rides__panes where not retraction group by 1 order by 1",
    "select city, timing, settled_index from hourly_rides__panes order by city, settled_index nulls first, timing",
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


def test_M4_a_pane_says_which_of_its_windows_it_is(settings: Settings) -> None:
    logs = Logs(Lake(settings))
    for parts in random_epochs(Random(7), 12):
        logs.land(parts)
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    logs.fold(PATIENT)
    state, fired = WindowsState(), list[Pane]()
    for records, clock in logs.together():
        state, panes, _, _ = step(PATIENT, state, records, clock)
        fired += panes
    places = settled_indexes(((p.key, p.window, p.version.generation), p.timing.value, p.retraction) for p in fired)
    expected = Counter(
        (p.key, p.window.start, p.version.index, p.timing.value, p.is_last, place)
        for p, place in zip(fired, places, strict=True)
    )
    query = "select ad, window_start, pane_index, timing, is_last, settled_index from patient__panes"
    found = try_duckdb(logs.lake, query)
    assert isinstance(found, tuple)
    rows = [tuple(row.values()) for row in found[0].to_pylist()]
    assert Counter(((ad,), instant(start), *said) for ad, start, *said in rows) == expected
    assert {(timing, last, place) for _, _, _, timing, last, place in expected} > {
        ("early", False, None), ("early", None, None), ("on_time", False, 0), ("late", False, 1), ("late", True, 1)
    }  # fmt: skip
    of_one_key = history(logs.lake, PATIENT, ("a",))
    assert Counter(
        (("a",), p.window.start, p.version.index, p.timing, p.is_last, p.settled_index) for p in of_one_key.panes
    ) == Counter({said: times for said, times in expected.items() if said[0] == ("a",)})


ALIKE = [
    *QUERIES[:5],
    "select l.kind, a.rides from hourly_rides__ledger l join hourly_rides a using (city, window_start) order by 1, 2",
    "select count(*), sum(rides), max(city), avg(mean_price), count_if(rides > 2) as many from hourly_rides",
    "select city, rides + 1 as more, case when rides > 2 then 'many' end as m from hourly_rides order by m, city, more",
    "select distinct city from hourly_rides where window_start >= timestamp '2026-01-01 10:00:00' order by city",
    "select * from (select city, rides from hourly_rides union all select 'Rome', null) order by 2 desc, 1 limit 3",
    "select sum(rides) from hourly_rides where city = 'nowhere'",
]

SPARKS = [
    "select round(mean_price, 1) as p from hourly_rides",
    "select rides / 2 as half from hourly_rides",
    "select rides * 1.5 as more from hourly_rides",
    "select cast(window_start as string) as at from hourly_rides",
    "select city from hourly_rides where city like 'O%'",
    "select *, row_number() over (order by city) as n from hourly_rides",
    "select * from hourly_rides a join hourly_rides b using (city)",
    "select rides from (select * from hourly_rides a join hourly_rides b using (city, window_start))",
    "select rides + 1 from hourly_rides",
    "select city from hourly_rides where window_start = timestamp '2026-1-1'",
    "drop table hourly_rides",
    "selec 1",
]


@pytest.mark.parametrize("query", ALIKE)
def test_what_means_the_same_is_answered_in_the_process_as_spark_does(
    plain: SparkSession, settings: Settings, query: str
) -> None:
    lake = small_lake.make(settings)
    answered, sparks = try_duckdb(lake, query), by_spark(plain, lake, query)
    assert not isinstance(answered, str), answered
    rows, choice = answered
    assert choice.engine is Engine.DUCKDB
    assert rows.to_pylist() == sparks.to_pylist()
    assert [(field.name, str(field.type)) for field in rows.schema] == [
        (field.name, str(field.type)) for field in sparks.schema
    ]


@pytest.mark.parametrize("query", SPARKS)
def test_what_may_mean_another_thing_is_sparks(settings: Settings, query: str) -> None:
    assert isinstance(try_duckdb(small_lake.make(settings), query), str)


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"engine": "spark"}, "TAILRACE_ENGINE is spark"), ({"memory": "1MB"}, "are more than TAILRACE_MEMORY")],
)
def test_what_is_much_or_asked_of_spark_is_sparks(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], why: str
) -> None:
    lake = Lake(small_lake.make(settings).settings.model_copy(update=changes))
    monkeypatch.setattr(choose, "in_bytes", lambda size: 1 if size == "1MB" else 10**9)
    assert why in str(try_duckdb(lake, QUERIES[0]))


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
    assert shown[-1] == "3 rows, 1 of them not shown: --rows 0 shows all  duckdb"
    assert run(query, "--format", "csv").stdout.splitlines()[:2] == [
        "city,window_start,rides,nothing",
        "Oslo,2026-01-01T09:00:00Z,3,",
    ]
    assert json.loads(run(query, "--format", "json").stdout)[0] == {
        "city": "Oslo", "window_start": "2026-01-01T09:00:00Z", "rides": 3, "nothing": None
    }  # fmt: skip


def test_without_an_engine_asked_for_no_spark_is_started_for_what_the_process_answers(
    made: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.cli.commands.run.sql.session", lambda *_, **__: pytest.fail("Spark was started"))
    shown = CliRunner().invoke(main.app, ["sql", "select city, sum(rides) from hourly_rides group by 1 order by 1"])
    assert shown.exit_code == 0
    assert [line.split() for line in shown.stdout.splitlines()[:3]] == [
        ["city", "sum(rides)"], ["Oslo", "7"], ["Rome", "1"]
    ]  # fmt: skip
    assert "2 rows  duckdb: the files to read" in shown.stdout


def test_a_wrong_query_is_a_usage_error(made: Lake) -> None:
    result = run("select nothing from hourly_rides")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
