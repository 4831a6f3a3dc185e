"""Topics of Avro and Protobuf through the real stream: both engines land the same rows, and nothing is lost."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession

from tailrace.backfill.backfill import backfill
from tailrace.ingest.framed import schema_registry
from tailrace.ingest.framed.protobuf_bodies import compile_schema
from tailrace.ingest.framed.schema_registry import RegisteredSchema
from tailrace.ingest.sources import Kafka, Source, SourceError
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import BEGINNING, days, hours
from tailrace.model.combiners.basic import Count, Max, Sum
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.changes import Changes
from tailrace.model.logs.log import Log
from tailrace.model.triggers.combinators import Repeat
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import RETRACTING
from tailrace.model.windows.windows import Fixed, Global
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.engines.sessions import session
from tests.support.services.schema_registry import Registry, any_registry, avro_body, framed, serving

if TYPE_CHECKING:
    from tests.support.services.kafka import Broker

pytest_plugins = ["tests.support.services.kafka"]
pytestmark = pytest.mark.kafka

RIDES = Log(
    name="rides", columns={"zone": "string", "at": "timestamp", "cents": "bigint"}, event_time="at", unknown="ignore",
    messages="avro", aliases={"cents": "price"},
)  # fmt: skip
TIPS = Log(name="tips", columns={"at": "timestamp", "cents": "bigint"}, event_time="at", messages="protobuf")
PIPELINES = [
    Pipeline(name=f"hourly_{log.name}", log=log, what={"all": Count(), "cents": Sum("cents")}, where=Fixed(hours(1)),
             when=Repeat(AfterCount(1)), allowed_lateness=days(365))
    for log in (RIDES, TIPS)
]  # fmt: skip

INSTANT = {"type": "long", "logicalType": "timestamp-millis"}
OLD = {"type": "record", "name": "Ride", "fields": [
    {"name": "zone", "type": "string"}, {"name": "at", "type": INSTANT}, {"name": "price", "type": "int"}]}  # fmt: skip
NEW = {"type": "record", "name": "Ride", "fields": [
    {"name": "at", "type": INSTANT}, {"name": "cents", "type": ["null", "long"]},
    {"name": "riders", "type": {"type": "array", "items": "string"}}]}  # fmt: skip
TIP = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Tip { google.protobuf.Timestamp at = 1; int64 cents = 2; }
"""
DAY = datetime(2026, 1, 1, tzinfo=UTC)


def ride(schema: Any, number: int) -> bytes:
    at = DAY + timedelta(minutes=number)
    told = {"zone": f"z{number % 3}", "at": at, "price": number, "cents": None if number % 5 == 0 else number,
            "riders": ["a"]}  # fmt: skip
    return avro_body(schema, {field["name"]: told[field["name"]] for field in schema["fields"]})


@cache
def tip_type() -> Any:
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compile_schema(RegisteredSchema(0, "PROTOBUF", TIP))).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("Tip"))


def tip(number: int) -> bytes:
    made = tip_type()(cents=number)
    made.at.FromDatetime((DAY + timedelta(minutes=number)).replace(tzinfo=None))
    return b"\0" + bytes(made.SerializeToString())


def quick(lake: Lake) -> SparkSession:
    """A session without generated code: compiling would dwarf the few records of an epoch."""
    spark = session(lake.settings)
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return spark


@dataclass(frozen=True)
class Topics:
    """The two topics, the lakes of the two engines, and the registry."""

    broker: Broker
    registry: Registry
    name: str
    lakes: dict[str, Lake]

    def drain(self, engine: str) -> None:
        lake = self.lakes[engine]
        sources: dict[str, Source] = {
            log: Kafka(f"{self.name}_{log}", self.broker.bootstrap) for log in ("rides", "tips")
        }
        stream = Stream(quick(lake), lake, PIPELINES, sources)
        try:
            stream.start(once=True)
            stream.wait()
        finally:
            stream.close()

    def rows(self, engine: str, table: str) -> list[dict[str, Any]]:
        """The rows of a table but for what epochs made of them."""
        found = self.lakes[engine].table(table).scan().to_arrow().to_pylist()
        rows = [{name: value for name, value in row.items() if name != "_epoch"} for row in found]
        return sorted(rows, key=lambda row: (row["_source"], row["_offset"]))


@pytest.fixture
def topics(broker: Broker, spark: SparkSession, settings: Settings, request: pytest.FixtureRequest) -> Iterator[Topics]:
    name = request.node.name[:60]
    for log in ("rides", "tips"):
        broker.create(f"{name}_{log}", 2)
    with any_registry() as registry:
        lakes = {
            engine: Lake(registry.settings(settings, engine=engine, namespace=f"on_{engine}"))
            for engine in ("duckdb", "spark")
        }
        yield Topics(broker, registry, name, lakes)


def test_X6_both_engines_land_the_same_rows_of_evolved_schemas_and_keep_the_bytes_of_the_rest(topics: Topics) -> None:
    old, new = (topics.registry.register("rides-value", schema) for schema in (OLD, NEW))
    tips = topics.registry.register("tips-value", TIP, "PROTOBUF")
    written = [(n % 2, framed(new if n % 3 else old, ride(NEW if n % 3 else OLD, n))) for n in range(100)]
    bad = [
        None, b"", b'{"zone": "z1"}', framed(new, ride(NEW, 1))[:-2], framed(2**31 - 1, b"x"), framed(tips, tip(1)),
        framed(old, ride(OLD, 1) + b"\0"),
    ]  # fmt: skip
    topics.broker.produce(f"{topics.name}_rides", [*written, *((1, value) for value in bad)])
    worse = [b"\0\0", framed(tips, tip(1)[:-2] + b"\xff"), framed(old, ride(OLD, 1))]
    topics.broker.produce(
        f"{topics.name}_tips", [*((0, framed(tips, tip(n))) for n in range(30)), *((1, one) for one in worse)]
    )
    for engine in topics.lakes:
        topics.drain(engine)
    for table in ("rides", "rides__rejected", "tips", "tips__rejected"):
        assert topics.rows("duckdb", table) == topics.rows("spark", table), table
    rides, tipped = topics.rows("duckdb", "rides"), topics.rows("duckdb", "tips")
    expected = sorted(
        (DAY + timedelta(minutes=n), None if n % 3 else f"z{n % 3}", None if n % 3 and n % 5 == 0 else n)
        for n in range(100)
    )
    assert sorted((row["at"], row["zone"], row["cents"]) for row in rides) == expected
    assert sorted((row["at"], row["cents"]) for row in tipped) == [(DAY + timedelta(minutes=n), n) for n in range(30)]
    rejected = topics.rows("duckdb", "rides__rejected")
    assert [row["raw"] for row in rejected] == bad
    assert rejected[4]["error"] == f"schema {2**31 - 1}: the registry does not know it"
    assert rejected[5]["error"] == f"schema {tips}: it is of kind PROTOBUF, and the log's messages are avro"
    assert [row["raw"] for row in topics.rows("duckdb", "tips__rejected")] == worse
    assert all(audit(topics.lakes["duckdb"], pipeline).ok for pipeline in PIPELINES)


ORDERS = Changes(
    name="orders", columns={"id": "bigint", "city": "string", "cents": "bigint", "changed": "timestamp"},
    event_time="changed",
)  # fmt: skip
TOTALS = Pipeline(
    name="totals", log=ORDERS, key="city", what={"orders": Count(), "cents": Sum("cents"), "most": Max("cents")},
    where=Global(), when=Repeat(AfterCount(1)),
)  # fmt: skip


CITIES = replace(TOTALS, name="cities", what={"orders": Count()}, how=RETRACTING)
SIZES = Pipeline(
    name="sizes", log=CITIES.panes, key="orders", what={"cities": Count()}, where=Global(), when=Repeat(AfterCount(1))
)


def changes(chance: random.Random, table: dict[int, dict[str, Any]], count: int, at: int) -> Iterator[bytes | None]:
    """Changes of a table, made in it as they are given; a deleted row is forgotten by a message without a value."""
    for number in range(count):
        some: dict[str, Any] = {
            "id": chance.randrange(10**9),
            "city": chance.choice("abcd"),
            "cents": chance.randrange(1000),
        }
        before = table.pop(chance.choice(list(table))) if table and chance.random() < 0.6 else None
        after = None if before is not None and chance.random() < 0.4 else some
        if after is not None:
            after["id"] = after["id"] if before is None else before["id"]
            table[after["id"]] = after
        op = "c" if before is None else "d" if after is None else "u"
        yield json.dumps({"op": op, "before": before, "after": after, "source": {"ts_ms": at + number}}).encode()
        if op == "d":
            yield None


def test_L1_totals_of_changes_are_those_of_the_table_as_it_is(
    broker: Broker, spark: SparkSession, settings: Settings
) -> None:
    chance, table = random.Random(7), dict[int, dict[str, Any]]()
    lakes = {one: Lake(settings.model_copy(update={"engine": one, "namespace": one})) for one in ("duckdb", "spark")}
    broker.create("orders")

    def drain(engine: str) -> list[EpochReport]:
        lake, epochs = lakes[engine], list[EpochReport]()
        definitions = [TOTALS, SIZES] if engine == "duckdb" else [TOTALS]
        stream = Stream(quick(lake), lake, definitions, Kafka("orders", broker.bootstrap, 40), watch=epochs.append)
        try:
            stream.start(once=True)
            stream.wait()
        finally:
            stream.close()
        return epochs

    def totals(engine: str) -> dict[str, tuple[int, int, int]]:
        rows = lakes[engine].table("totals").scan().to_arrow().to_pylist()
        return {row["city"]: (row["orders"], row["cents"], row["most"]) for row in rows}

    def now() -> dict[str, tuple[int, int, int]]:
        of = {city: [row["cents"] for row in table.values() if row["city"] == city] for city in "abcd"}
        return {city: (len(cents), sum(cents), max(cents)) for city, cents in of.items() if cents}

    first = [*changes(chance, table, 90, 10**12)]
    broker.produce("orders", [(0, one) for one in first])
    epochs = drain("duckdb")
    assert len(epochs) > 1
    assert sum(epoch.landed.blank for epoch in epochs) == first.count(None) > 0
    assert totals("duckdb") == now()
    for row in [row for row in table.values() if row["city"] in "ab"]:
        # A city of which no order is left has no total.
        del table[row["id"]]
        change = {"op": "d", "before": row, "after": None, "source": {"ts_ms": 10**12 + 500}}
        broker.produce("orders", [(0, json.dumps({"payload": change}).encode())])
    broker.produce("orders", [(0, b"{}")])
    drain("duckdb")
    assert totals("duckdb") == now()
    # A backfill finds nothing to mend, and the stream goes on from what it leaves.
    for run in backfill(lakes["duckdb"], TOTALS, BEGINNING):
        assert (run.changed, run.retracted) == (0, 0)
    assert totals("duckdb") == now()
    broker.produce("orders", [(0, one) for one in changes(chance, table, 30, 10**12 + 600)])
    for engine, lake in lakes.items():
        drain(engine)
        assert totals(engine) == now(), engine
        audited = audit(lake, TOTALS)
        assert audited.ok, [check for check in audited.checks if not check.ok]
        (rejected,) = lake.table("orders__rejected").scan().to_arrow().to_pylist()
        assert (rejected["raw"], rejected["error"]) == (b"{}", "there is no op")
    assert drain("duckdb") == []
    assert replay(lakes["duckdb"], TOTALS).ok
    sizes = lakes["duckdb"].table("sizes").scan().to_arrow().to_pylist()
    orders = Counter(orders for orders, _, _ in now().values())
    assert {row["orders"]: row["cities"] for row in sizes} == orders
    for stage in (CITIES, SIZES):
        audited = audit(lakes["duckdb"], stage)
        assert audited.ok, [check for check in audited.checks if not check.ok]
        assert replay(lakes["duckdb"], stage).ok


def test_X2_a_registry_that_is_away_stops_the_stream_and_loses_nothing(
    broker: Broker, spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "ATTEMPTS", 1)
    with serving() as registry:
        assert registry.server is not None
        engine = "duckdb"
        topics = Topics(broker, registry, "away", {engine: Lake(registry.settings(settings, engine=engine))})
        for log in ("rides", "tips"):
            broker.create(f"{topics.name}_{log}")
        old, new = (registry.register("rides-value", schema) for schema in (OLD, NEW))
        broker.produce(f"{topics.name}_rides", [(0, framed(old, ride(OLD, n))) for n in range(20)])
        topics.drain(engine)
        broker.produce(f"{topics.name}_rides", [(0, framed(new, ride(NEW, n))) for n in range(20, 40)])
        registry.server.failing = 503
        with pytest.raises(SourceError, match=r"log rides cannot be read .*does not answer .*SCHEMA_REGISTRY_URI"):
            topics.drain(engine)
        assert len(topics.rows(engine, "rides")) == 20
        assert topics.rows(engine, "rides__rejected") == []
        registry.server.failing = None
        topics.drain(engine)
        assert [row["_offset"] for row in topics.rows(engine, "rides")] == list(range(40))
