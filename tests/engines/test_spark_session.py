"""A Spark session on the embedded catalog, against what else reads and writes the same tables."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as drawn
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tailrace.engines.spark.session import open_session, socket_conf
from tailrace.engines.spark.workers.arrow_frames import arrow_of, frame_of
from tailrace.lake.catalog.backends import Sqlite
from tailrace.settings import Settings
from tailrace.toolchain import Jar, ToolchainError, pinned_jars


@pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg.*")
def test_spark_and_pyiceberg_see_each_other_commits(spark: SparkSession, settings: Settings) -> None:
    spark.sql("CREATE NAMESPACE main")
    spark.sql("CREATE TABLE t (n INT, at TIMESTAMP) USING iceberg")
    spark.sql("INSERT INTO t VALUES (1, TIMESTAMP '2026-01-01 00:00:00')")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    catalog = SqlCatalog(
        settings.catalog, uri=f"sqlite:///{Sqlite(settings).file}?timeout=60", warehouse=settings.warehouse_uri
    )
    try:
        table = catalog.load_table("main.t")
        assert table.scan().to_arrow().to_pylist() == [{"n": 1, "at": at}]
        rows = pa.table({"n": pa.array([2], pa.int32()), "at": pa.array([at], pa.timestamp("us", "UTC"))})
        table.append(rows)
    finally:
        catalog.close()
    assert sorted(row.n for row in spark.table("t").collect()) == [1, 2]
    assert Sqlite(settings).file.is_file()


def test_a_second_session_has_a_lake_and_settings_of_its_own(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    other = open_session(Settings(warehouse=tmp_path / "other"), extra={"spark.sql.shuffle.partitions": "7"})
    for session in (spark, other):
        session.sql("CREATE NAMESPACE main")
    spark.sql("CREATE TABLE mine (n INT) USING iceberg")
    assert other.sql("SHOW TABLES").collect() == []
    assert [row.tableName for row in spark.sql("SHOW TABLES").collect()] == ["mine"]
    assert other.conf.get("spark.sql.shuffle.partitions") == "7"
    assert spark.conf.get("spark.sql.shuffle.partitions") == str(settings.shuffle_partitions)


def test_merge_runs_through_the_extensions(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE main")
    spark.sql("CREATE TABLE t (k INT, v INT) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    merge = "MERGE INTO t USING (SELECT 1 AS k, {} AS v) AS s ON t.k = s.k {} WHEN NOT MATCHED THEN INSERT *"
    for value in (1, 2):
        spark.sql(merge.format(value, "WHEN MATCHED THEN UPDATE SET v = s.v"))
    assert [tuple(row) for row in spark.table("t").collect()] == [(1, 2)]


def test_overflow_is_an_error_and_times_are_utc(spark: SparkSession) -> None:
    assert spark.sql("SELECT string(timestamp_seconds(0)) AS t").collect()[0].t == "1970-01-01 00:00:00"
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        spark.sql("SELECT 2147483647 + 1 AS n").collect()


def test_python_and_the_jvm_talk_through_files_where_these_can_be(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
    assert folder is not None
    assert [file for file in Path(folder).iterdir() if file.is_socket()]
    assert socket_conf(settings.model_copy(update={"spark_master": "spark://machine:7077"})) == {}
    monkeypatch.setattr(tempfile, "tempdir", "/a/path/that/has/no/room/for/the/name/of/a/socket")
    assert socket_conf(settings) == {}


LET_GO = """
import os, socket
from tailrace.engines.spark.workers.worker_daemon import worker
ours, theirs = socket.socketpair(socket.AF_UNIX)
theirs.close()
os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
raise SystemExit(worker(ours, True))
"""


def test_a_worker_that_spark_lets_go_prints_no_trace() -> None:
    ended = subprocess.run([sys.executable, "-c", LET_GO], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_a_process_setting_is_refused_once_spark_runs(spark: SparkSession, settings: Settings) -> None:
    with pytest.raises(AnalysisException, match="CANNOT_MODIFY"):
        open_session(settings, extra={"spark.driver.memory": "1g"})


def test_jars_that_the_process_started_without_are_named(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = "tailrace.engines.spark.session.pinned_jars"
    monkeypatch.setattr(at, lambda group: (*pinned_jars(group), Jar(group, "org.example:another:1", "0")))
    with pytest.raises(ToolchainError, match=r"without the jars of lake.*groups=\('lake',\)"):
        open_session(settings)


def test_a_lake_whose_jars_the_process_started_without_names_them(spark: SparkSession, settings: Settings) -> None:
    with pytest.raises(ToolchainError, match=r"without the jars of postgres.*groups=\('lake', 'postgres'\)"):
        open_session(settings.model_copy(update={"catalog_uri": "postgresql://me@db/lake"}))


def test_starting_spark_leaves_the_environment_as_it_was(spark: SparkSession) -> None:
    assert "SPARK_LOCAL_IP" not in os.environ


@given(sizes=st.lists(st.integers(0, 3), max_size=5))
@drawn(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_X6_a_frame_has_all_rows_of_an_arrow_table_whatever_its_chunks(plain: SparkSession, sizes: list[int]) -> None:
    chunks = [pa.array([place] * size, pa.int64()) for place, size in enumerate(sizes)]
    rows = pa.table({"n": pa.chunked_array(chunks, pa.int64())})
    assert frame_of(plain, rows).toArrow()["n"].to_pylist() == rows["n"].to_pylist()


def test_rows_that_are_more_than_the_driver_takes_stay_with_the_executors(plain: SparkSession) -> None:
    most = int(plain.conf.get("spark.driver.maxResultSize") or 0)
    assert most > 0
    assert arrow_of(plain.range(0, most // 7, 1, 4)) is None
    few = arrow_of(plain.range(3))
    assert few is not None
    assert few["id"].to_pylist() == [0, 1, 2]
