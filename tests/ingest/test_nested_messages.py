"""Nested records in Avro and Protobuf give the same records as in JSON, whatever their shape."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import count
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tailrace.ingest.framed.framed_messages import messages_reader
from tailrace.ingest.framed.framed_records import ReadableSchema, framed_records
from tailrace.ingest.framed.protobuf_bodies import compile_schema
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.plain_columns import schema_of
from tailrace.model.base.types import element_type, map_value, struct_fields
from tailrace.model.logs.log import Log
from tests.ingest.test_nested_records import TYPES
from tests.support.depth import cases
from tests.support.lakes.files import by_model, said
from tests.support.services.schema_registry import as_lines, avro_body, framed

START, MICRO = datetime(1970, 1, 1), timedelta(microseconds=1)
NAMES = count(1)


@dataclass(frozen=True)
class Atom:
    """A type in Avro, its values as Avro has them, and what each is in JSON."""

    type: Any
    stored: st.SearchStrategy[Any]
    json: Any = staticmethod(lambda value: value)


def logical(type: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type, "logicalType": name, **more}


def unscaled(value: bytes) -> float:
    return float(Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-3))


THOUSANDTHS = st.integers(-(10**7), 10**7)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
ANY = ["null", "boolean", "long", "double", "string", {"type": "array", "items": ["null", "long", "string"]}]
ATOMS: Mapping[str, Sequence[Atom]] = {
    "string": [Atom("string", st.text(max_size=4)),
               Atom("bytes", st.text(max_size=3).map(str.encode), bytes.decode)],
    "boolean": [Atom("boolean", st.booleans())],
    "int": [Atom("int", st.integers(-(2**31), 2**31 - 1))],
    "bigint": [Atom("long", st.integers(-(2**63), 2**63 - 1)), Atom("int", st.integers(-9, 9))],
    "double": [Atom("double", st.floats(allow_nan=False, allow_infinity=False)), Atom("float", FLOATS),
               Atom("long", st.integers(-(2**60), 2**60))],
    "float": [Atom("float", FLOATS), Atom("double", st.floats(-1e9, 1e9)), Atom("int", st.integers(-9, 2**31 - 1))],
    "binary": [Atom("bytes", st.binary(max_size=3), lambda value: b64encode(value).decode())],
    "decimal(8,3)": [
        Atom("double", THOUSANDTHS.map(lambda n: n / 1000) | st.floats(-9, 9)),
        Atom(logical("bytes", "decimal", precision=7, scale=3),
             THOUSANDTHS.map(lambda n: n % 10**6).map(lambda n: n.to_bytes(4, "big", signed=True)), unscaled),
    ],
    "date": [Atom(logical("int", "date"), st.dates().map(lambda day: (day - START.date()).days),
                  lambda days: (START + timedelta(days)).date().isoformat()),
             Atom("string", st.dates().map(str))],
    "timestamp": [
        Atom(logical("long", "timestamp-micros"), st.datetimes().map(lambda at: (at - START) // MICRO),
             lambda micros: (START + timedelta(microseconds=micros)).isoformat() + "Z"),
        Atom(logical("long", "local-timestamp-millis"), st.integers(-(10**12), 10**12),
             lambda millis: (START + timedelta(milliseconds=millis)).isoformat()),
        Atom("string", st.datetimes().map(lambda at: at.isoformat() + "+01:00")),
    ],
    "time": [Atom(logical("int", "time-millis"), st.integers(0, 86_399_999),
                  lambda millis: (START + timedelta(milliseconds=millis)).time().isoformat("milliseconds")),
             Atom("string", st.times().map(str))],
    "json": [Atom(ANY, st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=2)
                  | st.lists(st.none() | st.integers(0, 9), max_size=2)),
             Atom({"type": "map", "values": "long"}, st.dictionaries(st.text(max_size=1), st.integers(0, 3))),
             Atom(logical("long", "timestamp-millis"), st.just(1500), lambda _: "1970-01-01T00:00:01.500000Z")],
}  # fmt: skip


@dataclass(frozen=True)
class Way:
    """A way to write a column: the type in Avro, and pairs of a value in Avro and in JSON."""

    type: Any
    pairs: st.SearchStrategy[tuple[Any, Any]]


def way(draw: st.DrawFn, type: str) -> Way:
    """Draw a way to write values of a declared type; any value may be null."""
    if (element := element_type(type)) is not None:
        inner = way(draw, element)
        made: Any = {"type": "array", "items": inner.type}
        pairs: Any = st.lists(inner.pairs, max_size=3).map(lambda some: ([a for a, _ in some], [j for _, j in some]))
    elif (value := map_value(type)) is not None:
        inner = way(draw, value)
        made = {"type": "map", "values": inner.type}
        pairs = st.dictionaries(st.text(max_size=2), inner.pairs, max_size=3).map(
            lambda some: ({n: a for n, (a, _) in some.items()}, {n: j for n, (_, j) in some.items()})
        )
    elif (fields := struct_fields(type)) is not None:
        ways = {name: way(draw, one) for name, one in fields.items() if draw(st.integers(0, 6))}
        made = record({name: one.type for name, one in ways.items()})
        pairs = st.fixed_dictionaries({name: one.pairs for name, one in ways.items()}).map(
            lambda some: ({n: a for n, (a, _) in some.items()}, {n: j for n, (_, j) in some.items()})
        )
    else:
        atom = draw(st.sampled_from(ATOMS[type]))
        made, pairs = atom.type, atom.stored.map(lambda value: (value, atom.json(value) if value is not None else None))
    if isinstance(made, list):
        return Way(made, pairs)
    return Way(["null", made], st.just((None, None)) | pairs | pairs | pairs)


def record(fields: Mapping[str, Any]) -> dict[str, Any]:
    parts = [{"name": name, "type": type} for name, type in fields.items()]
    return {"type": "record", "name": f"R{next(NAMES)}", "fields": parts}


def stored(schema: Any) -> Any:
    """The schema without what its values stand for, so that they are written as they are given."""
    if isinstance(schema, list):
        return [stored(one) for one in schema]
    return {n: stored(o) for n, o in schema.items() if n != "logicalType"} if isinstance(schema, dict) else schema


@dataclass(frozen=True)
class Written:
    """A log, and records of it in Avro and in JSON."""

    log: Log
    schema: Any
    bodies: list[bytes]
    texts: list[bytes]


@st.composite
def written(draw: st.DrawFn) -> Written:
    types = {f"c{n}": type for n, type in enumerate(draw(st.lists(TYPES, min_size=1, max_size=4)))}
    places = {name: draw(st.sampled_from([name, f"in.{name}", f"{name.upper()}", f"in.deep.{name}"])) for name in types}
    log = Log(
        name="any", columns={"at": "timestamp", **types}, event_time="at", fields=places, elements=2,
        unknown=draw(st.sampled_from(["reject", "ignore"])), rest=draw(st.sampled_from([None, None, "extra"])),
        zone=draw(st.sampled_from(["UTC", "Europe/Berlin"])),
        rounding=draw(st.sampled_from([None, "half_even", "down"])),
    )  # fmt: skip
    ways = {name: way(draw, type) for name, type in types.items()}
    if log.unknown == "ignore" or log.rest is not None:
        ways["more"] = way(draw, "json")
    tree: dict[str, Any] = {"at": logical("long", "timestamp-millis")}
    for name, one in ways.items():
        put(tree, places.get(name, name), one.type)

    def as_record(tree: Mapping[str, Any]) -> dict[str, Any]:
        return record({name: as_record(one) if name in ("in", "deep") else one for name, one in tree.items()})

    schema, bodies, texts = as_record(tree), [], []
    for _ in range(draw(st.integers(1, 5))):
        own: dict[str, Any] = {"at": 1767268800123}
        text: dict[str, Any] = {"at": "2026-01-01T12:00:00.123Z"}
        for name, one in ways.items():
            pair = draw(one.pairs)
            put(own, places.get(name, name), pair[0])
            put(text, places.get(name, name), pair[1])
        bodies.append(avro_body(stored(schema), own))
        texts.append(json.dumps(text, ensure_ascii=False, separators=(",", ":")).encode())
    return Written(log, schema, bodies, texts)


def put(into: dict[str, Any], place: str, value: Any) -> None:
    *way, last = place.split(".")
    for step in way:
        into = into.setdefault(step, {})
    into[last] = value


def comparable(found: Sequence[dict[str, Any] | str]) -> list[Any]:
    """What was read, without the details of reasons, which name the first of several faults."""
    return ["rejected" if isinstance(one, str) else one for one in found]


def avro(id: int, schema: Any) -> ReadableSchema:
    return ReadableSchema(RegisteredSchema(id, "AVRO", json.dumps(schema)))


@settings(max_examples=cases(150))
@given(written())
def test_X6_avro_of_any_shape_is_read_as_the_same_records_in_json(made: Written) -> None:
    log = replace(made.log, messages="avro")
    rows = framed_records(log, {1: avro(1, made.schema)}, as_lines([framed(1, body) for body in made.bodies]))
    assert comparable(said(log, rows)) == comparable(by_model(made.log, made.texts))


# -------------------------------------------------------------------------------------------------- places and reasons

ORDERS = Log(
    name="orders",
    columns={
        "order_id": "string", "country": "string", "at": "timestamp", "paid": "date", "opens": "time",
        "items": "array<struct<sku:string,price:decimal(6,2),sizes:array<int>>>", "tags": "map<string,int>",
        "seen": "timestamp", "key": "binary", "weight": "float", "note": "json",
    },
    fields={"order_id": "orderId", "country": "user.country", "items.price": "unit.price", "seen": "user.seen"},
    instants={"at": "milliseconds", "paid": "%d.%m.%Y", "seen": "seconds", "opens": "microseconds"},
    event_time="at", rest="extra", elements=4,
)  # fmt: skip
WHOLE: Mapping[str, Any] = {
    "orderId": "a", "at": 1767268800123, "paid": "28.02.2026", "opens": 30_600_000_000,
    "user": {"country": "DE", "seen": 1767268800},
    "items": [{"sku": "x", "unit": {"price": 12.99}, "sizes": [1]}], "tags": {"b": 2, "a": 1},
    "key": "AAH/", "weight": 0.1, "note": {"deep": [1.5, "é"]}, "more": "m", "count": 3,
}  # fmt: skip
UNIT = record({"price": ["null", "double"]})
ORDER = record({
    "orderId": "string", "at": "long", "paid": "string", "opens": "long",
    "user": record({"country": "string", "seen": "long"}),
    "items": {"type": "array", "items": ["null", record({
        "sku": "string", "unit": ["null", UNIT], "sizes": {"type": "array", "items": "int"}})]},
    "tags": {"type": "map", "values": "int"}, "key": "bytes", "weight": "float",
    "note": record({"deep": {"type": "array", "items": ["double", "string"]}}), "more": "string", "count": "int",
})  # fmt: skip
ORDER_PROTO = """
syntax = "proto3";
message Order {
  message User { string country = 1; int64 seen = 2; }
  message Unit { optional double price = 1; }
  message Item { string sku = 1; Unit unit = 2; repeated int32 sizes = 3; }
  message Note { repeated google.protobuf.Value deep = 1; }
  string orderId = 1;
  int64 at = 2;
  string paid = 3;
  int64 opens = 4;
  User user = 5;
  repeated Item items = 6;
  map<string, int32> tags = 7;
  bytes key = 8;
  float weight = 9;
  Note note = 10;
  oneof rest { string more = 11; string less = 12; }
  int32 count = 13;
}
""".replace('"proto3";', '"proto3"; import "google/protobuf/struct.proto";')


@cache
def order_type() -> Any:
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(order_schema().descriptors).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("Order"))


@cache
def order_schema() -> ReadableSchema:
    schema = RegisteredSchema(2, "PROTOBUF", ORDER_PROTO)
    return ReadableSchema(schema, compile_schema(schema))


def as_json(order: Mapping[str, Any]) -> bytes:
    return json.dumps(order, ensure_ascii=False, separators=(",", ":")).encode()


def as_avro(order: Mapping[str, Any]) -> bytes:
    return framed(1, avro_body(ORDER, {**order, "key": b64decode(order["key"])}))


def as_protobuf(order: Mapping[str, Any]) -> bytes:
    return framed(2, b"\0" + bytes(ParseDict(order, order_type()()).SerializeToString()))


def read(way: str, orders: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | str]:
    if way == "json":
        return by_model(ORDERS, [as_json(one) for one in orders])
    log = replace(ORDERS, messages=way)  # type: ignore[arg-type]
    schemas = {1: avro(1, ORDER), 2: order_schema()}
    messages = [(as_avro if way == "avro" else as_protobuf)(one) for one in orders]
    return said(log, framed_records(log, schemas, as_lines(messages)))


MISFITS: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "digits": (
        {"items": [{"sku": "", "unit": {"price": price}, "sizes": []} for price in (1.5, 1.005)]},
        "items[1].price = 1.005 is not a decimal(6,2)",
    ),
    "large": (
        {"items": [{"sku": "", "unit": {"price": 1e9}, "sizes": []}]},
        "items[0].price = 1000000000.0 is not a decimal(6,2)",
    ),
    "many": ({"tags": dict.fromkeys("abcde", 1)}, "tags is a list of more than 4 elements: set elements in the log"),
    "deep": (
        {"items": [{"sku": "", "unit": {}, "sizes": [1] * 5}]},
        "items[0].sizes is a list of more than 4 elements: set elements in the log",
    ),
    "no day": ({"paid": "2026-02-28"}, 'paid = "2026-02-28" is not a date'),
    "no time": ({"opens": 86_400_000_000}, "opens = 86400000000 is not a time"),
    "far": ({"user": {"country": "", "seen": 10**12}}, "seen = +33658-09-27 01:46:40 lies outside the years 1 to 9999"),
    "two": ({"opens": -1, "paid": ""}, 'paid = "" is not a date; opens = -1 is not a time'),
}  # fmt: skip


@pytest.mark.parametrize("way", ["json", "avro", "protobuf"])
def test_X6_what_does_not_fit_is_rejected_with_its_place_in_every_format(way: str) -> None:
    (whole,) = read(way, [WHOLE])
    assert whole == {
        "order_id": "a", "country": "DE", "at": datetime(2026, 1, 1, 12, 0, 0, 123000, tzinfo=UTC),
        "paid": datetime(2026, 2, 28).date(), "opens": "08:30:00.000000",
        "items": [{"sku": "x", "price": Decimal("12.99"), "sizes": [1]}],
        "tags": [{"key": "a", "value": 1}, {"key": "b", "value": 2}],
        "seen": datetime(2026, 1, 1, 12, tzinfo=UTC), "key": b"\x00\x01\xff", "weight": 0.10000000149011612,
        "note": '{"deep":[1.5,"é"]}', "extra": '{"more":"m","count":3}',
    }  # fmt: skip
    orders = [{**WHOLE, **changed} for changed, _ in MISFITS.values()]
    expected = [reason for _, reason in MISFITS.values()]
    found = read(way, orders)
    prefix = {"json": "", "avro": "schema 1: ", "protobuf": "schema 2: "}[way]
    assert [str(one).removeprefix(prefix) for one in found] == expected


def test_what_a_nested_schema_cannot_give_is_told_with_its_place() -> None:
    log = Log(
        name="l", event_time="at", messages="avro", fields={"id": "user.id", "items.price": "unit.price"},
        columns={"at": "timestamp", "id": "string", "items": "array<struct<price:boolean>>", "tags": "array<int>"},
    )  # fmt: skip
    schema = record({
        "at": logical("long", "timestamp-millis"), "user": "string", "tags": {"type": "map", "values": "int"},
        "items": {"type": "array", "items": record({"unit": UNIT, "old": "int"})},
    })  # fmt: skip
    (found,) = said(log, framed_records(log, {1: avro(1, schema)}, as_lines([framed(1, b"")])))
    declare = 'declare it in the log, or set unknown="ignore"'
    assert str(found).split("; ") == [
        "schema 1: field 'user' is string, and columns are inside it",
        "field 'items[].unit.price' is double, column 'items[].price' is declared as boolean",
        "field 'tags' is a map, column 'tags' is declared as a list",
        f"unknown column 'items[].old': {declare}",
    ]


def test_X6_executors_read_nested_messages_as_this_process_does(spark: SparkSession) -> None:
    orders = [WHOLE, *({**WHOLE, **changed} for changed, _ in MISFITS.values()), {**WHOLE, "items": [], "tags": {}}]
    for way in ("avro", "protobuf"):
        log = replace(ORDERS, messages=way)
        lines = as_lines([(as_avro if way == "avro" else as_protobuf)(one) for one in orders])
        frame, schemas = spark.createDataFrame(lines).coalesce(2), {1: avro(1, ORDER), 2: order_schema()}
        rows = frame.mapInArrow(messages_reader(log, schemas), from_arrow_schema(schema_of(log))).toArrow()
        assert said(log, rows) == read(way, orders)
