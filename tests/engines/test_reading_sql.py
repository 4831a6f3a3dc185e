"""A query only reads the lake's tables, whatever is written in it; what analysts ask is answered."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace.engines.duckdb.iceberg_query import by_duckdb
from tailrace.engines.duckdb.query import try_duckdb
from tailrace.engines.spark.query import by_spark
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.query_views import ALLOWED, QueryError
from tailrace.settings import Settings
from tests.support.lakes import small_lake

SECRET = "a-secret-that-no-query-tells"

QUERIES = Path(__file__).parent / "queries"


def queries(name: str) -> list[str]:
    return (QUERIES / f"{name}.txt").read_text().splitlines()


CHANGES, ELSEWHERE = queries("change_tables"), queries("read_elsewhere")
BY_SPARK, BY_DUCKDB, USEFUL = queries("refused_by_spark"), queries("refused_by_duckdb"), queries("useful")

Ask = Callable[[str], pa.Table]


@dataclass(frozen=True)
class Tried:
    """A lake, and a folder with a secret; queries know both places."""

    lake: Lake
    folder: Path

    def text(self, way: str) -> str:
        places = {"{secret}": self.folder / "secret.csv", "{folder}": self.folder, "{out}": self.folder / "out"}
        for name, place in places.items():
            way = way.replace(name, str(place))
        return way

    def state(self) -> object:
        """All that a query might have changed."""
        places = (Path(self.lake.settings.warehouse), self.folder)
        found = (one for place in places for one in place.rglob("*") if not one.name.startswith("catalog.db-"))
        files = sorted((str(one), one.stat().st_size) for one in found)
        around = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return files, sorted(os.listdir()), around, {table: self.lake.head(table) for table in self.lake.tables}


@pytest.fixture
def tried(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tried]:
    monkeypatch.setenv("TOLD_TO_NOBODY", SECRET)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "secret.csv").write_text(f"a,b\n{SECRET},1\n")
    made = Tried(small_lake.make(settings), folder)
    made.lake.catalog.create_namespace_if_not_exists("other")
    before = made.state()
    yield made
    assert made.state() == before


def refusal(ask: Ask, query: str) -> str:
    with pytest.raises(QueryError) as caught:
        ask(query)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert SECRET not in said
    assert ALLOWED in said or "yntax error" in said or "Parser Error" in said, (query, said)
    return said


def test_what_does_more_than_read_the_lakes_tables_is_refused_by_duckdb(tried: Tried) -> None:
    ways = [tried.text(way) for way in [*CHANGES, *ELSEWHERE, *BY_DUCKDB]]
    said = [refusal(lambda query: by_duckdb(tried.lake, query), way) for way in ways]
    assert sum(ALLOWED in one for one in said) > 110


def test_what_does_more_than_read_the_lakes_tables_is_refused_by_spark(plain: SparkSession, tried: Tried) -> None:
    ways = [tried.text(way) for way in [*CHANGES, *ELSEWHERE, *BY_SPARK]]
    said = [refusal(lambda query: by_spark(plain, tried.lake, query), way) for way in ways]
    assert sum(ALLOWED in one for one in said) > 80


def test_without_an_engine_asked_for_no_such_query_is_answered_in_the_process(tried: Tried) -> None:
    for way in [*CHANGES, *ELSEWHERE, *BY_SPARK, *BY_DUCKDB]:
        try:
            answer: object = try_duckdb(tried.lake, tried.text(way))
        except QueryError as error:
            answer = str(error)
        assert isinstance(answer, str), way
        assert SECRET not in answer


def test_spark_fills_nothing_of_a_query_in_from_the_environment(plain: SparkSession, tried: Tried) -> None:
    for text in ("${env:TOLD_TO_NOBODY}", "${system:user.home}", "${spark.app.name}"):
        assert by_spark(plain, tried.lake, f"select '{text}' as a").to_pylist() == [{"a": text}]


def test_letters_that_look_like_quotes_are_letters(plain: SparkSession, tried: Tried) -> None:
    for text in ("‘ union all select content from read_text(’", "ʼ; delete from hourly_rides --", "＇ or 1=1 --"):
        query = f"select '{text}' as a"
        for found in (by_spark(plain, tried.lake, query), by_duckdb(tried.lake, query)):
            assert found.to_pylist() == [{"a": text}]


def test_while_duckdb_answers_it_reads_the_files_of_the_tables_alone(tried: Tried) -> None:
    from tailrace.engines.duckdb import iceberg_query

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iceberg_query, "check", lambda *_: None)
        for way in (f"select * from read_text('{tried.folder}/secret.csv')", f"copy (select 1) to '{tried.folder}/out'",
                    "set lock_configuration = false", "load httpfs"):  # fmt: skip
            with pytest.raises(QueryError, match=r"disabled|locked|not found"):
                by_duckdb(tried.lake, way)


def unanswered(ask: Ask, asked_for: list[str]) -> dict[str, str]:
    found = {}
    for query in asked_for:
        try:
            assert ask(query).num_columns
        except QueryError as error:
            found[query] = str(error)
    return found


def test_what_analysts_ask_is_answered_by_duckdb(tried: Tried) -> None:
    assert unanswered(lambda query: by_duckdb(tried.lake, query), [*USEFUL, *queries("useful_on_duckdb")]) == {}


def test_what_analysts_ask_is_answered_by_spark(plain: SparkSession, tried: Tried) -> None:
    snapshot, namespace = tried.lake.head("hourly_rides").snapshot, tried.lake.settings.namespace
    places = {"{snapshot}": str(snapshot), "{namespace}": namespace}

    def ask(query: str) -> pa.Table:
        return by_spark(plain, tried.lake, re.sub(r"{\w+}", lambda found: places[found[0]], query))

    assert unanswered(ask, [*USEFUL, *queries("useful_on_spark")]) == {}


def test_of_an_epoch_no_table_is_read_as_it_is_now(plain: SparkSession, tried: Tried) -> None:
    query = f"select * from {tried.lake.settings.namespace}.hourly_rides__ledger"
    assert by_spark(plain, tried.lake, query).num_rows
    with pytest.raises(QueryError):
        by_spark(plain, tried.lake, query, 2)


def test_a_query_too_deep_to_read_is_an_error_of_a_line(tried: Tried) -> None:
    deep = "select " + "abs(" * 3000 + "1" + ")" * 3000
    with pytest.raises(QueryError) as caught:
        by_duckdb(tried.lake, deep)
    assert len(str(caught.value).splitlines()) == 1
    assert isinstance(try_duckdb(tried.lake, deep), str)
