"""A field that is dropped where a column of nearly its name is missing is told once, of every format (rule X6)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import Count, Fixed, Log, Pipeline, minutes
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.framed.framed_messages import FramedMessages
from tailrace.ingest.framed.topic_reader import framed_reader
from tailrace.ingest.near_names import NearNames, near_names
from tailrace.ingest.sources import Files, Format, Kafka
from tailrace.lake.catalog.events import NearName, Notice
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.status import log_status
from tailrace.model.logs.changes import Changes
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tests.support.services.schema_registry import Registry, any_registry, avro_body, framed

CLICKS = Log(
    name="clicks", columns={"at": "timestamp", "userid": "string", "price": "bigint"}, event_time="at",
    unknown="ignore",
)  # fmt: skip
COUNTED = Pipeline(name="counted", log=CLICKS, key="price", what={"n": Count()}, where=Fixed(minutes(10)))
AT = "2026-01-01T00:00:00Z"
RECORD = {"at": AT, "userId": "a", "Price_": 1, "price": 2, "other": 3}
"""A record whose `userId` is dropped and its `userid` missing; `Price_` is dropped as well, but `price` is there."""

NAMES = st.lists(st.sampled_from(["userid", "userId", "user_id", "USER-ID", "user.id", "users", "at", "price"]))


@given(NAMES)
def test_X6_a_near_name_is_told_where_the_column_itself_is_missing_and_nowhere_else(names: list[str]) -> None:
    near = {name for name in names if name not in ("userid", "users", "at", "price")}
    assert near_names(CLICKS, names) == ({} if "userid" in names else dict.fromkeys(near, "userid"))


def test_X6_another_name_of_a_column_is_the_column() -> None:
    renamed = replace(CLICKS, messages="avro", aliases={"userid": "user_id"})
    assert near_names(renamed, ["user_id", "userId"]) == {}
    assert near_names(renamed, ["userId"]) == {"userId": "userid"}


def _json(file: Path) -> None:
    file.write_text(json.dumps(RECORD) + "\n")


def _gzip(file: Path) -> None:
    file.with_suffix(".json.gz").write_bytes(gzip.compress(json.dumps(RECORD).encode()))


def _csv(file: Path) -> None:
    file.with_suffix(".csv").write_text(f"at,userId,Price_,price,other\r\n{AT},a,1,2,3\r\n")


def _parquet(file: Path) -> None:
    row = {**RECORD, "at": datetime.fromisoformat(AT)}
    pq.write_table(pa.Table.from_pylist([row]), file.with_suffix(".parquet"))


WAYS: Mapping[str, tuple[Format, Callable[[Path], None]]] = {
    "json": ("json", _json), "gzip": ("json", _gzip), "csv": ("csv", _csv), "parquet": ("parquet", _parquet),
}  # fmt: skip


@pytest.mark.parametrize(("way", "engine"), [*((way, "duckdb") for way in WAYS), ("json", "spark")])
def test_X6_a_stream_tells_near_names_of_files_once_and_status_has_them(
    plain: SparkSession, settings: Settings, tmp_path: Path, way: str, engine: str
) -> None:
    notices = list[Notice]()
    lake = Lake(settings.model_copy(update={"engine": engine}), notices.append)
    (format, write), folder = WAYS[way], tmp_path / "landing"
    folder.mkdir()
    for name in ("a.json", "b.json"):
        write(folder / name)
    stream = Stream(plain, lake, [COUNTED], Files(str(folder), format, 1))
    stream.start(once=True)
    stream.wait()
    stream.close()
    assert [one for one in notices if isinstance(one, NearName)] == [NearName("clicks", "userId", "userid")]
    assert log_status(lake, "clicks").near_names == {"userId": "userid"}
    rows = lake.table("clicks").scan().to_arrow().to_pylist()
    assert [(row["userid"], row["price"]) for row in rows] == [(None, 2)] * 2


def _told(log: Log) -> tuple[NearNames, list[NearName]]:
    told = list[NearName]()
    return NearNames(log, told.append), told


def test_X6_messages_of_json_and_changes_in_it_are_looked_at(plain: SparkSession) -> None:
    change = json.dumps({"payload": {"op": "c", "before": None, "after": RECORD}})
    for log, text, found in (
        (CLICKS, json.dumps(RECORD), True),
        (replace(CLICKS, unknown="reject"), json.dumps(RECORD), False),
        (Changes(name="clicks", columns=CLICKS.columns, event_time="at"), change, True),
    ):
        near, told = _told(log)
        near.of_messages(plain.createDataFrame([(b"{",), (None,), (text.encode(),)], "value binary"))
        assert told == [NearName("clicks", "userId", "userid")] * found


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with any_registry() as found:
        yield found


SCHEMA = {"type": "record", "name": "Click", "fields": [
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "userId", "type": "string"},
]}  # fmt: skip
PROTO = """
syntax = "proto3";
message Other { string user_id = 1; }
message Outer { message Click { int64 price = 1; string userId = 2; } }
"""


def test_X6_the_schemas_of_messages_are_looked_at_once(
    plain: SparkSession, settings: Settings, registry: Registry
) -> None:
    for log, id, body in (
        (replace(CLICKS, messages="avro"), registry.register("a", SCHEMA), avro_body(SCHEMA, {"at": 0, "userId": "a"})),
        (replace(CLICKS, messages="protobuf"), registry.register("p", PROTO, "PROTOBUF"), b"\x00"),
    ):
        reader = framed_reader(log, Kafka("topic", "localhost:9"), registry.settings(settings))
        assert isinstance(reader, FramedMessages)
        rows = [(framed(id, body), "topic-0", 0, datetime.fromisoformat(AT))]
        batch = plain.createDataFrame(rows, "value binary, _source string, _offset bigint, _arrival timestamp")
        near, told = _told(log)
        reader.rows(plain, batch, BlankLines())
        near.of_records(reader.new_fields())
        assert told == [NearName("clicks", "userId", "userid")]
        reader.rows(plain, batch, BlankLines())
        assert reader.new_fields() == []
