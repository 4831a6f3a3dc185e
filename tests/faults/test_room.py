"""DuckDB runs out of memory or of room to spill to, or its folder vanishes: nothing is lost, and the error says so."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace import AfterWatermark, Collect, Count, Fixed, Log, Pipeline, hours
from tailrace.backfill.backfill import backfill
from tailrace.engines.choose import Engine
from tailrace.engines.duckdb import session
from tailrace.engines.duckdb.database.connection import EngineError, connect
from tailrace.engines.duckdb.follower import ProcessFollower
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import log_contract
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.pipeline_tables import answer_contract, ledger_contract
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.settings import Settings
from tests.support.depth import deep

START = datetime(2024, 1, 1, tzinfo=UTC)
KEYS, TIMES = 60_000, 8
PIPELINE = Pipeline(
    name="gathered",
    log=Log(name="things", columns={"who": "bigint", "what": "string", "at": "timestamp"}, event_time="at"),
    key="who",
    what={"n": Count(), "all": Collect("what")},
    where=Fixed(hours(1)),
    when=AfterWatermark(),
)


def landed(settings: Settings) -> Lake:
    """A log with a list of values for each of many keys, and a ledger that has no answer of it yet."""
    lake, contract = Lake(settings), log_contract(PIPELINE.log)
    said = {"epoch": "0", "watermark": str(END_OF_TIME), "processing_time": str(instant(START)), "generation": "1"}
    lake.ensure(contract, said)
    count = KEYS * TIMES
    who = pa.array([number * 7919 % KEYS for number in range(count)], pa.int64())
    at = pa.array([START + timedelta(microseconds=number) for number in range(count)], pa.timestamp("us", "UTC"))
    own = {"who": who, "what": pa.array([f"a value of some length, number {n}" for n in range(count)]), "at": at}
    own |= {"_epoch": pa.array([0] * count, pa.int64()), "_offset": pa.arange(0, count)}
    schema = iceberg_schema(contract).as_arrow()
    rows = pa.table([own.get(field.name, pa.nulls(count, field.type)).cast(field.type) for field in schema], schema)
    files = tuple(lake.write_files(contract.table, rows))
    lake.change(contract.table, FileChange(files), said, lake.head(contract.table).snapshot)
    Runs(lake, PIPELINE).start("stream", BEGINNING, END_OF_TIME, log_epoch=None)
    lake.ensure(ledger_contract(PIPELINE), said | {"fingerprint": PIPELINE.fingerprint})
    lake.ensure(answer_contract(PIPELINE))
    return lake


def bounded(lake: Lake, **changes: object) -> Lake:
    return Lake(lake.settings.model_copy(update={"engine": "duckdb", **changes}))


def test_X2_a_backfill_that_has_no_room_changes_nothing_says_what_to_set_and_can_be_run_again(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, scratch = landed(settings), tmp_path / "scratch"

    def tight(given: Settings, threads: int | None) -> duckdb.DuckDBPyConnection:
        made = connect(given, threads)
        made.execute("SET max_temp_directory_size = '1MB'")
        return made

    def without_its_folder(given: Settings, threads: int | None) -> duckdb.DuckDBPyConnection:
        made = connect(given, threads)
        shutil.rmtree(scratch)
        return made

    for opened, memory in ((connect, "8MB"), (tight, "40MB"), (without_its_folder, "8MB")):
        monkeypatch.setattr(session, "connect", opened)
        with pytest.raises(EngineError, match="TAILRACE_SCRATCH"):
            backfill(bounded(lake, memory=memory, scratch=scratch), PIPELINE, instant(START))
        assert lake.table("gathered").scan().count() == 0
    runs = [run for run in Runs(lake, PIPELINE).all() if run.kind == "backfill"]
    assert [run.status for run in runs] == ["failed"] * 3
    monkeypatch.setattr(session, "connect", connect)
    [done] = backfill(bounded(lake, memory="1GB", scratch=scratch), PIPELINE, instant(START))
    assert done.changed == KEYS
    rows = lake.table("gathered").scan().to_arrow()
    assert rows.num_rows == KEYS
    assert set(rows["n"].to_pylist()) == {TIMES}
    left = [one for one in scratch.rglob("*") if one.is_file() and one.name != ".lock"]
    assert not left, "what was spilled goes with the run"


@pytest.mark.parametrize("writes", [pytest.param(True, marks=deep), False], ids=["written_here", "written_by_spark"])
def test_what_has_no_room_in_the_process_goes_to_spark_by_itself(
    plain: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    lake = landed(settings)

    def full(*_: object, **__: object) -> None:
        raise duckdb.OutOfMemoryException("no room for what Spark computed, either")

    if not writes:
        monkeypatch.setattr(session.DuckSession, "write", full)
        monkeypatch.setattr(ProcessFollower, "merge", full)
    [done] = backfill(Lake(settings.model_copy(update={"memory": "8MB"})), PIPELINE, instant(START))
    assert (done.engine.engine, done.changed) == (Engine.SPARK, KEYS)
    rows = lake.table("gathered").scan().to_arrow()
    assert (rows.num_rows, set(rows["n"].to_pylist())) == (KEYS, {TIMES})
    assert {len(one) for one in rows["all"].to_pylist()} == {TIMES}
    statuses = [(run.status, str(run.engine).partition(":")[0]) for run in Runs(lake, PIPELINE).all()[1:]]
    assert statuses == [("failed", "duckdb"), ("committed", "spark")]
