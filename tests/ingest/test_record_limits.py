"""A record beyond a limit of its log costs itself alone: levels, elements and bytes, in any format and engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace.ingest.framed.framed_records import ReadableSchema, framed_records
from tailrace.ingest.framed.protobuf_bodies import compile_schema
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.json_texts import value_sizes
from tailrace.ingest.parsing import read_files
from tailrace.ingest.plain_columns import schema_of
from tailrace.ingest.plain_files import parquet_parts, read_typed
from tailrace.ingest.sources import Files
from tailrace.model.logs.log import Log, too_large
from tests.ingest.test_avro_files import opened
from tests.ingest.test_nested_messages import (
    ORDER,
    ORDERS,
    WHOLE,
    Written,
    as_avro,
    as_json,
    as_protobuf,
    avro,
    comparable,
    order_schema,
    record,
    written,
)
from tests.ingest.test_parquet_records import logs
from tests.support.depth import cases
from tests.support.lakes.avro_files import PACKINGS, container
from tests.support.lakes.files import by_model, put, said
from tests.support.services.schema_registry import as_lines, avro_body, framed

AT = "2026-01-01T12:00:00Z"


def parquet(log: Log, file: Path, most: int = 1 << 30) -> pa.Table:
    return pa.concat_tables([schema_of(log).empty_table(), *parquet_parts(log, str(file), most)])


# ------------------------------------------------------------------------------------------------------------- levels


@settings(max_examples=cases(80))
@given(written().filter(lambda made: made.log.unknown == "reject" or made.log.rest is not None), st.integers(1, 6))
def test_X7_a_record_in_avro_may_have_as_many_levels_as_in_json(made: Written, depth: int) -> None:
    log = replace(made.log, depth=depth)
    expected = comparable(by_model(log, made.texts))
    lines = as_lines([framed(1, body) for body in made.bodies])
    rows = framed_records(replace(log, messages="avro"), {1: avro(1, made.schema)}, lines)
    assert comparable(said(log, rows)) == expected
    assert comparable(said(log, opened(log, container(made.schema, made.bodies)))) == expected


@settings(max_examples=cases(80))
@given(logs(), st.integers(1, 6))
def test_X7_a_row_of_parquet_may_have_as_many_levels_as_in_json(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[Log, pa.Table, list[bytes]], depth: int
) -> None:
    log, file = replace(made[0], depth=depth), tmp_path_factory.mktemp("deep") / "a.parquet"
    pq.write_table(made[1], file)
    assert comparable(said(log, parquet(log, file))) == comparable(by_model(log, made[2]))


DEEP: Mapping[int, str] = {
    1: "country is nested more than 1 levels deep: set depth in the log",
    2: "items[0] is nested more than 2 levels deep: set depth in the log",
    3: "items[0].unit is nested more than 3 levels deep: set depth in the log",
    4: "",
}


@pytest.mark.parametrize("way", ["avro", "protobuf"])
def test_a_record_with_too_many_levels_is_rejected_with_the_place_and_the_setting(way: Any) -> None:
    order = {**WHOLE, "note": {"deep": [1.5, "é"]}}
    bare = {**order, "items": [], "tags": {}, "note": {"deep": []}, "user": {"country": "", "seen": 1}}
    for depth, reason in DEEP.items():
        log = replace(ORDERS, depth=depth, messages=way)
        messages = [(as_avro if way == "avro" else as_protobuf)(one) for one in (order, bare)]
        found = said(log, framed_records(log, {1: avro(1, ORDER), 2: order_schema()}, as_lines(messages)))
        assert reason in str(found[0])
        assert isinstance(found[0], str) == (depth < 4) == isinstance(by_model(log, [as_json(order)])[0], str)
        assert isinstance(found[1], str) == (depth < 3) == isinstance(by_model(log, [as_json(bare)])[0], str)


LAYERS: Mapping[str, Any] = {
    "records": lambda inner: record({"a": inner}),
    "lists": lambda inner: {"type": "array", "items": inner},
    "maps": lambda inner: {"type": "map", "values": inner},
    "unions": lambda inner: {"type": "array", "items": ["null", "string", inner]},
}


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("log", [
    Log(name="l", columns={"at": "timestamp", "x": "json"}, event_time="at"),
    Log(name="l", columns={"at": "timestamp"}, event_time="at", rest="more"),
    Log(name="l", columns={"at": "timestamp"}, event_time="at", unknown="ignore"),
], ids=["json", "rest", "ignored"])  # fmt: skip
def test_X7_a_schema_of_many_levels_stops_no_reader(layers: str, log: Log) -> None:
    types: list[Any] = ["long"]
    for _ in range(300):
        types.append(LAYERS[layers](types[-1]))
    for levels, refused in ((20, False), (99, False), (120, True), (260, True)):
        schema = record({"at": "string", "x": ["null", types[levels]]})
        body = avro_body("string", AT) + b"\0"
        found = said(log, framed_records(replace(log, messages="avro"), {1: avro(1, schema)},
                                         as_lines([framed(1, body)])))  # fmt: skip
        reasons = ("schema 1: the schema has more than 100 levels", "schema 1: the schema cannot be parsed")
        assert str(found[0]).startswith(reasons) == refused, (levels, found)


def test_X7_a_protobuf_schema_of_many_levels_stops_no_reader() -> None:
    deep = "".join(f"message Node{level} {{ Node{level + 1} a = 1; }}\n" for level in range(400))
    text = f'syntax = "proto3"; message T {{ string at = 1; Node0 x = 2; }}\n{deep} message Node400 {{ int32 a = 1; }}'
    schema = RegisteredSchema(1, "PROTOBUF", text)
    for log in (
        Log(name="l", columns={"at": "timestamp", "x": "json"}, event_time="at", messages="protobuf"),
        Log(name="l", columns={"at": "timestamp"}, event_time="at", rest="more", messages="protobuf"),
    ):
        line = framed(1, b"\0\x0a\x14" + AT.encode())
        found = said(log, framed_records(log, {1: ReadableSchema(schema, compile_schema(schema))}, as_lines([line])))
        assert "more than 100 levels" in str(found[0])


# -------------------------------------------------------------------------------------------------------------- bytes


@settings(max_examples=cases(60))
@given(logs(), st.integers(1, 120), st.integers(1, 4), st.sampled_from([1, 10**6]))
def test_X7_a_row_of_parquet_that_is_too_large_is_rejected_alone_however_the_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, made: tuple[Log, pa.Table, list[bytes]], size: int, group: int, most: int
) -> None:
    log, table, _ = made
    file = tmp_path_factory.mktemp("large") / "a.parquet"
    pq.write_table(table, file, row_group_size=group)
    limited = replace(log, record_bytes=size)
    found, whole = said(log, parquet(limited, file, most)), said(log, parquet(log, file))
    sizes = np.sum([value_sizes(column.combine_chunks()) for column in pq.read_table(file).columns], axis=0)
    expected = [too_large(limited) if own > size else one for own, one in zip(sizes, whole, strict=True)]
    assert found == expected


@settings(max_examples=cases(60))
@given(written(), st.integers(1, 80), st.sampled_from([*PACKINGS]), st.integers(1, 3))
def test_X7_a_record_of_an_avro_file_that_is_too_large_is_rejected_alone(
    made: Written, size: int, codec: str, per_block: int
) -> None:
    log = replace(made.log, record_bytes=size)
    file = container(made.schema, made.bodies, codec, per_block)
    found, whole = opened(log, file), said(made.log, opened(made.log, file))
    large = [len(body) > size for body in made.bodies]
    assert said(log, found) == [too_large(log) if over else one for over, one in zip(large, whole, strict=True)]
    assert found["_offset"].to_pylist() == list(range(len(large)))


HOSTILE: Mapping[str, tuple[Mapping[str, Any], Any]] = {
    "whole": ({"tags": [[1]], "who": "x", "note": "[1]"}, None),
    "elements": ({"tags": [[1]] * 4, "who": "x"}, "tags is a list of more than 3 elements: set elements in the log"),
    "inside": ({"tags": [[1], [2] * 4]}, "tags[1] is a list of more than 3 elements: set elements in the log"),
    "bytes": ({"who": "x" * 1000}, "the record has more than 900 bytes: set record_bytes in the log"),
    "levels": ({"note": "[[[1]]]"}, "note is nested more than 3 levels deep: set depth in the log"),
    "last": ({"tags": [[], None], "who": "y"}, None),
}


def test_X7_both_engines_reject_a_hostile_record_alone(spark: SparkSession, tmp_path: Path) -> None:
    log = Log(
        name="l", columns={"at": "timestamp", "tags": "array<array<int>>", "who": "string", "note": "json"},
        event_time="at", depth=3, elements=3, record_bytes=900,
    )  # fmt: skip
    rows = [{"at": AT, "tags": None, "who": None, "note": None, **one} for one, _ in HOSTILE.values()]
    lists = pa.list_(pa.list_(pa.int32()))
    table = pa.Table.from_pylist(
        rows, pa.schema([("at", pa.string()), ("tags", lists), ("who", pa.string()), ("note", pa.string())])
    )
    inner = {"type": "array", "items": ["null", {"type": "array", "items": "int"}]}
    schema = record({"at": "string", "tags": ["null", inner], "who": ["null", "string"], "note": ["null", "string"]})
    bodies = [avro_body(schema, row) for row in rows]
    for format, file in (("parquet", table), ("avro", container(schema, bodies))):
        paths = put(tmp_path, {f"a.{format}": file})
        here = read_typed(log, format, paths)  # type: ignore[arg-type]
        assert _reasons(here) == [reason for _, reason in HOSTILE.values()]
        there = read_files(spark, Files("", format), log, paths).toArrow()  # type: ignore[arg-type]
        assert there.cast(here.schema).sort_by("_offset").equals(here)
        raw = dict(zip(HOSTILE, here["_raw"].to_pylist(), strict=True))
        assert [name for name, one in raw.items() if one is not None] == ["elements", "inside", "levels"]
        assert json.loads(raw["levels"])["note"] == "[[[1]]]"


def _reasons(rows: pa.Table) -> Sequence[str | None]:
    reasons: Sequence[str | None] = rows.sort_by("_offset")["_error"].to_pylist()
    return reasons


def test_X7_a_text_of_many_megabytes_costs_its_row_alone(tmp_path: Path) -> None:
    log = Log(name="l", columns={"at": "timestamp", "tags": "array<bigint>", "who": "string"}, event_time="at")
    rows = [{"at": AT, "tags": [1, 2], "who": "x"} for _ in range(100)]
    rows[50]["who"], rows[60]["tags"] = "\x01" * 60_000_000, list(range(3_000_000))
    paths = put(tmp_path, {"a.parquet": pa.Table.from_pylist(rows)})
    reasons = _reasons(read_typed(log, "parquet", paths))
    assert {place: one for place, one in enumerate(reasons) if one is not None} == {
        50: too_large(log),
        60: too_large(log),
    }
