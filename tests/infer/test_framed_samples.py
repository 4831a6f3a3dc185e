"""A definition is inferred from messages in Avro and Protobuf, whose schemas are in a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tailrace.infer.definition_text import definition_text
from tailrace.infer.framed_samples import add_framed
from tailrace.infer.inference import infer
from tailrace.infer.sample import Sample, SampleError
from tailrace.ingest.framed.protobuf_bodies import compile_schema
from tailrace.ingest.framed.schema_registry import RegisteredSchema, SchemaRegistry
from tailrace.model.logs.log import Log
from tailrace.settings import Settings
from tests.support.services.schema_registry import Registry, avro_body, framed, serving

START = datetime(2026, 1, 1, tzinfo=UTC)
ITEM = {"type": "record", "name": "Item", "fields": [
    {"name": "sku", "type": "string"}, {"name": "unitPrice", "type": "double"}]}  # fmt: skip
FIRST: list[Any] = [
    {"name": "orderId", "type": "string"},
    {"name": "createdAt", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "shop", "type": ["null", "string"], "default": None},
]
SECOND = [*FIRST, {"name": "items", "type": {"type": "array", "items": ITEM}}]


def avro(fields: list[Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": fields}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as made:
        yield made


def sample_of(registry: Registry, settings: Settings, messages: list[bytes]) -> Sample:
    sample, half = Sample("json", "orders", "orders", whole=False), len(messages) // 2
    arrived = [(value, (int(START.timestamp()) + n) * 10**6) for n, value in enumerate(messages)]
    add_framed(sample, [arrived[:half], arrived[half:]], SchemaRegistry(registry.settings(settings)))
    return sample


def loaded(text: str) -> Log:
    names: dict[str, Any] = {}
    exec(compile(text, "orders.py", "exec"), names)
    log = names["log"]
    assert isinstance(log, Log)
    return log


def orders(ids: tuple[int, int], count: int) -> list[bytes]:
    """Messages of two versions of a schema; the earlier one has no items."""
    made = []
    for number in range(count):
        order = {"orderId": f"o{number}", "createdAt": START + timedelta(seconds=number), "shop": "ab"[number % 2]}
        items = [{"sku": f"s{number % 3}", "unitPrice": number / 2}] * (number % 3)
        earlier = number < count // 2
        schema, record = (FIRST, order) if earlier else (SECOND, {**order, "items": items})
        made.append(framed(ids[not earlier], avro_body(avro(schema), record)))
    return made


def test_the_latest_schema_gives_the_columns_and_all_messages_are_looked_at(
    registry: Registry, settings: Settings
) -> None:
    ids = registry.register("orders-value", avro(FIRST)), registry.register("orders-value", avro(SECOND))
    junk = [b"", b'{"orderId": "x"}', framed(77, b"\0"), framed(ids[0], b"\xff")]
    sample = sample_of(registry, settings, [*orders((ids[0], ids[1]), 40), *junk])
    made = infer(sample)
    assert (sample.format, len(sample.records), sample.unread, made.rejected) == ("avro", 40, 4, {})
    log = loaded(definition_text(made))
    assert log == made.log()
    assert dict(log.columns) == {
        "order_id": "string", "created_at": "timestamp", "shop": "string",
        "items": "array<struct<sku:string,unit_price:double>>", "extra": "string",
    }  # fmt: skip
    assert (log.messages, log.event_time) == ("avro", "created_at")
    assert made.lags is not None


PROTO = """
syntax = "proto3";
package of.tests;
import "google/protobuf/timestamp.proto";
message Node { string name = 1; repeated Node inner = 2; }
message Tree { Node top = 1; }
enum Kind { NONE = 0; FAST = 1; }
message Other { string who = 1; }
message Ride {
  string rideId = 1;
  google.protobuf.Timestamp at = 2;
  map<string, double> fees = 3;
  int64 meters = 4;
  Kind kind = 5;
}
"""


def test_messages_in_protobuf_have_the_columns_of_their_type(registry: Registry, settings: Settings) -> None:
    id = registry.register("rides-value", PROTO, "PROTOBUF")
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(
        compile_schema(RegisteredSchema(id, "PROTOBUF", PROTO))
    ).file:
        pool.Add(file)
    kind, messages = GetMessageClass(pool.FindMessageTypeByName("of.tests.Ride")), []
    for number in range(20):
        ride: Any = kind(rideId=f"r{number}", fees={"toll": number / 2}, meters=2**53 + number, kind=1)
        ride.at.FromDatetime(START + timedelta(minutes=number))
        messages.append(framed(id, b"\2\6" + ride.SerializeToString()))
    made = infer(sample_of(registry, settings, messages))
    log = loaded(definition_text(made))
    assert log == made.log()
    assert made.rejected == {}
    assert (log.messages, log.event_time, log.fields["ride_id"]) == ("protobuf", "at", "rideId")
    types = {name: log.columns[name] for name in ("at", "fees", "meters", "kind")}
    assert types == {
        "at": "timestamp",
        "fees": "array<struct<key:string,value:double>>",
        "meters": "bigint",
        "kind": "string",
    }


@pytest.mark.parametrize(
    ("schema", "kind", "reason"),
    [
        (json.dumps({"type": "object"}), "JSON", "its schemas are of kind json: expected avro or protobuf"),
        ("message", "PROTOBUF", "the schema cannot be compiled"),
        (PROTO, "PROTOBUF", "none of 4 messages can be read: the schema's of.tests.Node contains itself"),
        (None, "", "does not know the schemas of its messages"),
    ],
)
def test_schemas_from_which_nothing_can_be_inferred_are_named(
    registry: Registry, settings: Settings, schema: str | None, kind: str, reason: str
) -> None:
    id = 9 if schema is None else registry.register("orders-value", schema, kind)
    with pytest.raises(SampleError, match=reason):
        sample_of(registry, settings, [framed(id, b"\0" if schema != PROTO else b"\2\2")] * 4)
