"""Protobuf messages in Confluent's wire format: what any of a schema's types wrote is read, anything else is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from tailrace.ingest.framed import protobuf_bodies
from tailrace.ingest.framed.framed_records import ReadableSchema, framed_records
from tailrace.ingest.framed.protobuf_bodies import compile_schema
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.schema_columns import UnreadableSchemaError
from tailrace.model.logs.log import Log
from tests.support.services.schema_registry import as_lines, framed

FARES = Log(
    name="fares",
    columns={
        "at": "timestamp", "who": "string", "n": "bigint", "small": "int", "ratio": "double", "price": "decimal(10,2)",
        "ok": "boolean", "zone": "string", "tip": "bigint", "note": "string",
    },
    event_time="at",
    unknown="ignore",
    messages="protobuf",
    aliases={"who": "rider"},
)  # fmt: skip
START = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = """
syntax = "proto3";
package of.tests;
import "google/protobuf/timestamp.proto";
message Fare {
  google.protobuf.Timestamp at = 1;
  string rider = 2;
  int32 n = 3;
  float ratio = 5;
  string price = 6;
  bool ok = 7;
}
"""
SECOND = """
syntax = "proto3";
package of.tests;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "zones.proto";
message Other { string who = 1; }
message Outer {
  message Fare {
    google.protobuf.Timestamp at = 1;
    string who = 2;
    uint64 n = 3;
    optional sint32 small = 4;
    double ratio = 5;
    string price = 6;
    bool ok = 7;
    Zone zone = 8;
    google.protobuf.Int64Value tip = 9;
    oneof more { string note = 10; bytes picture = 11; }
    repeated int64 tags = 12;
  }
}
"""
ZONES = 'syntax = "proto3"; package of.tests; enum Zone { NONE = 0; NORTH = 1; SOUTH = 2; }'
SCHEMAS = {
    1: RegisteredSchema(1, "PROTOBUF", FIRST),
    2: RegisteredSchema(2, "PROTOBUF", SECOND, (("zones.proto", ZONES),)),
}
ONE, TWO = b"\0", b"\4\2\0"
"""The places of the types that are written, before each message."""


@cache
def readable() -> Mapping[int, ReadableSchema]:
    return {id: ReadableSchema(schema, compile_schema(schema)) for id, schema in SCHEMAS.items()}


@cache
def type_of(id: int, name: str) -> Any:
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(readable()[id].descriptors).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def fare(id: int, **values: Any) -> bytes:
    """A message of one of the two schemas; an instant is given in microseconds."""
    made = type_of(id, "of.tests.Fare" if id == 1 else "of.tests.Outer.Fare")()
    at = values.pop("at", 0)
    made.at.seconds, made.at.nanos = at // 10**6, at % 10**6 * 1000 + 999
    tip = values.pop("tip", None)
    if tip is not None:
        made.tip.value = tip
    made.MergeFrom(type(made)(**values))
    return framed(id, (ONE if id == 1 else TWO) + bytes(made.SerializeToString()))


def read(log: Log, values: list[bytes]) -> list[dict[str, Any]]:
    rows = sorted(framed_records(log, readable(), as_lines(values)).to_pylist(), key=lambda row: int(row["_offset"]))
    assert [row["_offset"] for row in rows] == list(range(len(values)))
    assert [row["_raw"] for row in rows] == [v if r["_error"] else None for v, r in zip(values, rows, strict=True)]
    return rows


MICROS = st.integers(-(2 * 10**15), 4 * 10**15)
CENTS = st.integers(-(10**10) + 1, 10**10 - 1).map(lambda cents: str(Decimal(cents) / 100))
COMMON = {"at": MICROS, "price": CENTS, "ok": st.booleans()}
TEXTS = st.text(max_size=5)
WRITTEN = st.tuples(
    st.just(1), st.fixed_dictionaries(COMMON, optional={
        "rider": TEXTS, "n": st.integers(-(2**31), 2**31 - 1), "ratio": st.floats(width=32, allow_nan=False)})
) | st.tuples(
    st.just(2), st.fixed_dictionaries(COMMON, optional={
        "who": TEXTS, "n": st.integers(0, 2**63 - 1), "small": st.integers(-(2**31), 2**31 - 1),
        "ratio": st.floats(allow_nan=False), "zone": st.sampled_from([0, 1, 2]),
        "tip": st.integers(-(2**63), 2**63 - 1), "note": TEXTS})
)  # fmt: skip


def as_columns(id: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a record is in the log: what is not written is what the schema says, or null where it may be missing."""
    usual = {"at": 0, "who": values.get("rider", ""), "n": 0, "small": None, "ratio": 0.0, "ok": False, "zone": None,
             "tip": None, "note": None, **({"zone": 0} if id == 2 else {})}  # fmt: skip
    found = usual | {name: value for name, value in values.items() if name != "rider"}
    found["at"], found["price"] = START + timedelta(microseconds=found["at"]), Decimal(found["price"])
    found["zone"] = None if id == 1 else ("NONE", "NORTH", "SOUTH")[found["zone"]]
    return found


@given(st.lists(WRITTEN, min_size=1, max_size=8))
def test_X6_what_evolved_schemas_wrote_comes_out_as_the_logs_columns(records: list[tuple[int, dict[str, Any]]]) -> None:
    rows = read(FARES, [fare(id, **values) for id, values in records])
    assert [row["_error"] for row in rows] == [None] * len(rows)
    assert [{name: row[name] for name in FARES.columns} for row in rows] == [as_columns(*one) for one in records]


@given(st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=3), st.booleans()), max_size=12))
def test_X6_spoiled_bytes_are_rejected_or_read_as_they_would_be_alone(spoils: list[tuple[int, bytes, bool]]) -> None:
    whole = fare(2, who="né", n=7, small=-3, ratio=0.5, price="1.50", ok=True, zone=1, tip=5, note="x", tags=[1, 2])
    values = [whole[: 5 + place] + put + (whole[5 + place :] if on else b"") for place, put, on in spoils]
    for value, row in zip(values, read(FARES, values), strict=True):
        if row["_error"] is None:
            path = len(TWO) if value[5:].startswith(TWO) else None
            alone = type_of(2, "of.tests.Outer.Fare").FromString(value[5 + path :]) if path else None
            if alone is not None:
                assert (row["who"], row["n"], row["ok"]) == (alone.who, alone.n, alone.ok)


def test_X6_what_no_type_of_the_schema_wrote_is_rejected_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_bodies, "SHAPES", 4)
    good = fare(1, rider="a", price="1")
    values = [
        framed(1, b""), framed(1, b"\2\6"), framed(1, b"\3"), framed(2, b"\0" + b"\x0a\1a"),
        framed(1, ONE + b"\x0a\5"), framed(1, b"\xff\xff\xff\xff\xff"), framed(1, b"\4\0\0"), good,
        framed(1, b"\2\0" + good[6:]), fare(1, price="x"), fare(2, n=2**63, price="1"), fare(2, zone=9, price="1"),
        fare(1, price="1.005"), fare(1, at=10**17, price="1"), framed(1, b"\2"),
    ]  # fmt: skip
    found = [row["_error"] for row in read(FARES, values)]
    place = "schema 1: the bytes do not begin with the place of a message type"
    assert found[:3] == [place, "schema 1: the schema has no message type at [3]", place]
    assert found[3] == "schema 2: no field 'at'"
    assert found[4] is not None
    assert found[4].startswith("schema 1: the bytes are no message of the schema: ")
    assert found[5:7] == [place, "schema 1: the schema has no message type at [0, 0]"]
    assert found[7:9] == [None, None], "the first type may be written as a list of one, too"
    assert found[9:13] == [
        'schema 1: price = "x" is not a decimal(10,2)',
        "schema 2: n = 9223372036854775808 is not a bigint",
        "schema 2: the bytes are no message of the schema: zone = 9 is no value of Zone",
        'schema 1: price = "1.005" is not a decimal(10,2)',
    ]
    assert found[13] is not None
    assert "the event time at = 5138-11-16 09:46:40 lies outside" in found[13]
    assert found[14] == place


def test_all_that_a_schema_cannot_give_is_told_at_once() -> None:
    log = Log(name="fares", columns={"at": "timestamp", "n": "date", "zone": "bigint", "tags": "bigint"},
              event_time="at", messages="protobuf")  # fmt: skip
    (row,) = read(log, [fare(2)])
    declare = 'declare it in the log, or set unknown="ignore"'
    assert row["_error"].split("; ")[:4] == [
        "schema 2: field 'n' is uint64, column 'n' is declared as date",
        "field 'zone' is enum, column 'zone' is declared as bigint",
        "field 'tags' is a list, column 'tags' is declared as bigint",
        f"unknown column 'who': {declare}",
    ]


def test_a_schema_that_does_not_compile_or_reaches_for_other_files_is_refused() -> None:
    with pytest.raises(UnreadableSchemaError, match=r"cannot be compiled: .*Expected"):
        compile_schema(RegisteredSchema(1, "PROTOBUF", "message {"))
    for name in ("/etc/x.proto", "../x.proto", "a\\b.proto"):
        with pytest.raises(UnreadableSchemaError, match="no name of a file"):
            compile_schema(replace(SCHEMAS[2], references=((name, ZONES),)))
