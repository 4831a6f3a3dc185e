"""A bound on how far ahead of its arrival an event time may be: every reader rejects the same records, no others."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tailrace import Fixed, Log, Pipeline, days, hours, minutes
from tailrace.engines import choose
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.framed.framed_records import ReadableSchema, framed_records
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.landing_task import LandingTask
from tailrace.ingest.line_reader import LINES
from tailrace.ingest.micro_batch import file_rows, message_rows
from tailrace.ingest.parsing import read_files, read_messages
from tailrace.ingest.plain_files import read_text, read_typed
from tailrace.ingest.sources import FORMATS, TYPED, Files, Format
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.base.time import instant
from tailrace.model.logs.changes import Changes
from tailrace.model.samples.sample_records import from_json
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.lakes.avro_files import container
from tests.support.lakes.files import lines, put
from tests.support.lakes.rides import HOURLY, RIDES, Case
from tests.support.services.schema_registry import avro_body, framed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
COLUMNS = {"at": "timestamp", "seen": "timestamp"}
LOGS = {
    "a day by default": Log(name="things", columns=COLUMNS, event_time="at", arrival_time="seen"),
    "as the log says": Log(name="things", columns=COLUMNS, event_time="at", arrival_time="seen", ahead=minutes(5)),
    "of files and messages": Log(name="things", columns=COLUMNS, event_time="at", ahead=hours(1)),
    "no bound": Log(name="things", columns=COLUMNS, event_time="at", arrival_time="seen", ahead=None),
    "no bound by default": Log(name="things", columns=COLUMNS, event_time="at"),
}
BOUNDS = {"a day by default": "1 day", "as the log says": "5 minutes", "of files and messages": "1 hour"}
NEVER = datetime(2126, 1, 1, tzinfo=UTC)


def times(log: Log) -> list[datetime]:
    """Event times long before the arrival, at the bound, just beyond it, and of a year to come."""
    bound = log.bound_ahead or days(1)
    return [datetime(1901, 1, 1, tzinfo=UTC), NOON, NOON + bound, NOON + bound + MICROSECOND, NEVER]


def reasons(name: str) -> list[str | None]:
    """Why each of `times` is rejected; None for those that are read."""
    if name not in BOUNDS:
        return [None] * 5
    told = [at.replace(tzinfo=None).isoformat(" ") for at in times(LOGS[name])]
    tail = f"is more than {BOUNDS[name]} (ahead in the log) after its arrival at 2026-01-01 12:00:00"
    return [None, None, None, *(f"the event time at = {at} {tail}" for at in told[3:])]


def as_json(at: datetime) -> str:
    return json.dumps({"at": at.isoformat(), "seen": NOON.isoformat()})


def files(folder: Path, log: Log, format: Format) -> list[str]:
    """A file of the records, written at noon."""
    at = pa.timestamp("us", "UTC")
    content: dict[str, bytes | pa.Table] = {
        "json": lines(*map(as_json, times(log))),
        "csv": lines("at,seen", *(f"{at.isoformat()},{NOON.isoformat()}" for at in times(log))),
        "parquet": pa.table({"at": pa.array(times(log), at), "seen": pa.array([NOON] * 5, at)}),
        "avro": container(SCHEMA, bodies(log)),
    }
    paths = put(folder, {f"a.{format}": content[format]})
    os.utime(folder / f"a.{format}", (NOON.timestamp(),) * 2)
    return paths


def bodies(log: Log) -> list[bytes]:
    """The records in Avro."""
    return [avro_body(STORED, {"at": instant(at), "seen": instant(NOON)}) for at in times(log)]


def messages(values: Sequence[bytes]) -> pa.Table:
    """Messages that were sent at noon."""
    rows = [{"_bytes": one, "_source": "t-0", "_offset": n, "_arrival": NOON} for n, one in enumerate(values)]
    return pa.Table.from_pylist(rows, LINES)


def judged(rows: pa.Table) -> list[str | None]:
    ordered = rows.sort_by("_offset")
    raw = [one is not None for one in ordered["_raw"].to_pylist()]
    assert raw == [one is not None for one in ordered["_error"].to_pylist()], "what is rejected keeps its bytes"
    return [*ordered["_error"].to_pylist()]


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("format", FORMATS)
def test_X7_a_record_too_far_ahead_of_its_arrival_is_rejected_from_files(
    spark: SparkSession, tmp_path: Path, name: str, format: Format
) -> None:
    log, source = LOGS[name], Files("", format)
    paths = files(tmp_path, log, format)
    assert judged(read_files(spark, source, log, paths).toArrow()) == reasons(name)
    assert judged(file_rows(spark, source, log, paths)) == reasons(name)


@pytest.mark.parametrize("name", LOGS)
def test_X7_a_record_too_far_ahead_of_its_arrival_is_rejected_from_messages(spark: SparkSession, name: str) -> None:
    log = LOGS[name]
    rows = [(as_json(at).encode(), "t-0", offset, NOON) for offset, at in enumerate(times(log))]
    batch = spark.createDataFrame(rows, "value binary, _source string, _offset bigint, _arrival timestamp")
    assert judged(read_messages(spark, log, batch).toArrow()) == reasons(name)
    assert judged(message_rows(spark, log, batch)) == reasons(name)


SCHEMA = {"type": "record", "name": "T", "fields": [
    {"name": name, "type": {"type": "long", "logicalType": "timestamp-micros"}} for name in COLUMNS]}  # fmt: skip
STORED = {"type": "record", "name": "T", "fields": [{"name": name, "type": "long"} for name in COLUMNS]}


@pytest.mark.parametrize("name", LOGS)
def test_X7_a_record_too_far_ahead_of_its_arrival_is_rejected_from_avro(name: str) -> None:
    log = replace(LOGS[name], messages="avro")
    schemas = {1: ReadableSchema(RegisteredSchema(1, "AVRO", json.dumps(SCHEMA)))}
    assert judged(framed_records(log, schemas, messages([framed(1, body) for body in bodies(log)]))) == reasons(name)


def test_X7_a_change_too_far_ahead_of_its_arrival_is_rejected() -> None:
    log = Changes(name="things", columns={"id": "bigint", "at": "timestamp"}, event_time="at", ahead=hours(1))
    ahead = [hours(1), hours(1) + timedelta(milliseconds=1), -days(9)]
    changes = [{"op": "c", "after": {"id": 1}, "source": {"ts_ms": instant(NOON + by) // 1000}} for by in ahead]
    found = judged(framed_records(log, {}, messages([json.dumps(one).encode() for one in changes])))
    assert [error is None for error in found] == [True, False, True]
    assert "2026-01-01 13:00:00.001 is more than 1 hour (ahead in the log) after its arrival at 2026" in str(found[1])


@pytest.mark.parametrize("name", LOGS)
def test_X7_a_python_process_rejects_what_is_beyond_the_bound_as_spark_does(
    settings: Settings, tmp_path: Path, name: str
) -> None:
    """Also on an executor."""
    log, good = LOGS[name], reasons(name).count(None)
    lake = Lake(settings)
    lake.ensure(log_contract(log), {})
    for format in FORMATS:
        paths = files(tmp_path, log, format)
        typed = format in TYPED
        read = read_typed(log, format, paths) if typed else read_text(log, format, paths, BlankLines())
        assert read is not None
        assert [error is None for error in read["_error"].to_pylist()].count(True) == good
        task = LandingTask.of(lake, log, format, 0)
        part = None if task is None else task.land(paths)
        assert part is not None
        assert part.rejected is not None
        assert (part.records, part.rejected.num_rows) == (good, 5 - good)
        assert [one.latest for one in part.seen.values()] == [instant(times(log)[good - 1])]


def test_a_record_of_which_no_arrival_is_known_is_within_the_bound() -> None:
    log = replace(LOGS["of files and messages"], messages="avro")
    body = avro_body(STORED, {"at": instant(NEVER), "seen": 0})
    schemas = {1: ReadableSchema(RegisteredSchema(1, "AVRO", json.dumps(SCHEMA)))}
    lines = pa.Table.from_pylist([{"_bytes": framed(1, body), "_source": "t-0", "_offset": 0}], LINES)
    assert judged(framed_records(log, schemas, lines)) == [None]


def test_a_sample_is_judged_by_the_arrival_that_its_rows_have() -> None:
    log = LOGS["as the log says"]
    sample = from_json(log, map(as_json, times(log)))
    assert [row.line for row in sample.rejected] == [4, 5]
    assert all("5 minutes (ahead in the log)" in row.reason for row in sample.rejected)


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_X6_T3_a_record_of_the_future_is_rejected_and_carries_no_watermark_away(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr(choose, "BROUGHT", -1 if engine == "spark" else 2**60)
    case = Case(plain, settings.model_copy(update={"engine": engine}), tmp_path / "landing")
    case.land(("a", 1, "08:00"), ("a", 2, "09:30"))
    odd = {"who": "a", "cents": 9, "day": NEVER.isoformat(), "seen": "2026-01-01T09:30:00Z"}
    with (case.folder / "000.json").open("a") as file:
        file.write(json.dumps(odd) + "\n")
    case.land(("a", 4, "09:40"))
    case.drain(HOURLY)
    head = case.lake.head("hourly__ledger").properties
    assert int(head["watermark"]) == instant(datetime(2026, 1, 1, 9, 30, tzinfo=UTC))
    rejected = case.lake.table("rides__rejected").scan().to_arrow()
    assert [json.loads(one) for one in rejected["raw"].to_pylist()] == [odd]
    assert "more than 1 day (ahead in the log) after its arrival at 2026-01-01 09:30:00" in rejected["error"][0].as_py()
    assert len(case.lake.table("rides").scan().to_arrow()) == 3
    assert case.answers(HOURLY) == {("a", "08:00"): (1, 1), ("a", "09:00"): (2, 6)}
    assert audit(case.lake, HOURLY).ok


def test_the_bound_is_no_part_of_the_meaning() -> None:
    def of(log: Log) -> str:
        return Pipeline(name="p", log=log, key=(), what=HOURLY.what, where=Fixed(hours(1))).fingerprint

    assert of(RIDES) == of(replace(RIDES, ahead=None)) == of(replace(RIDES, ahead=minutes(1)))
