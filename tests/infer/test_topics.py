"""`tailrace infer` reads a bounded sample of a topic: the latest messages of each partition."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.infer.inference import infer
from tailrace.infer.sample import SampleError
from tailrace.infer.topics import read_topic
from tailrace.ingest.kafka_access import PLAINTEXT
from tailrace.plan.loader import load
from tests.support.services.schema_registry import avro_body, framed, serving

if TYPE_CHECKING:
    from tests.support.services.kafka import Broker

pytest_plugins = ["tests.support.services.kafka"]
pytestmark = pytest.mark.kafka

AT = datetime.now(UTC) - timedelta(hours=1)


def message(number: int, late: int = 0) -> bytes:
    at = AT + timedelta(seconds=number - late)
    return json.dumps({"eventId": f"e{number}", "at": at.isoformat(), "shop": "ab"[number % 2]}).encode()


def test_the_latest_messages_of_each_partition_are_the_sample(broker: Broker, tmp_path: Path) -> None:
    broker.create("infer_shop", 3)
    broker.produce("infer_shop", [(number % 2, message(number, late=30 * (number % 8 == 7))) for number in range(400)])
    broker.produce("infer_shop", [(0, b"no json"), (1, None)])
    sample = read_topic("infer_shop", broker.bootstrap, PLAINTEXT, 90)
    assert (len(sample.records), sample.unread, sample.whole) == (29 + 29, 1, False)
    assert len(sample.arrivals) == len(sample.records)
    made = infer(sample)
    log = made.log()
    assert (log.record_id, log.event_time, log.rest) == ("event_id", "at", "extra")
    assert made.lateness.most == timedelta(seconds=28)
    assert made.lags is not None
    assert made.lags.most > timedelta(minutes=50)

    out = tmp_path / "shop.py"
    words = ["infer", "infer_shop", "--bootstrap", broker.bootstrap, "--out", str(out)]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert load(str(out)).log.name == "infer_shop"
    for topic in ("infer_nothing", "infer_none"):
        if topic == "infer_nothing":
            broker.create(topic)
        with pytest.raises(SampleError, match=topic):
            read_topic(topic, broker.bootstrap, PLAINTEXT, 90)


def test_messages_with_registered_schemas_need_the_registry_and_become_a_definition(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "record", "name": "Order", "fields": [
        {"name": "orderId", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ]}  # fmt: skip
    broker.create("infer_avro")
    words = ["infer", "infer_avro", "--bootstrap", broker.bootstrap, "--out", str(tmp_path / "orders.py")]
    with serving() as registry:
        id = registry.register("infer_avro-value", schema)
        orders = [{"orderId": f"o{number}", "at": AT + timedelta(seconds=number)} for number in range(30)]
        broker.produce("infer_avro", [(0, framed(id, avro_body(schema, order))) for order in orders])
        done = CliRunner().invoke(app, words)
        assert done.exit_code != 0
        assert "set TAILRACE_SCHEMA_REGISTRY_URI" in done.output
        monkeypatch.setenv("TAILRACE_SCHEMA_REGISTRY_URI", registry.uri)
        assert CliRunner().invoke(app, words).exit_code == 0
    log = load(str(tmp_path / "orders.py")).log
    assert (log.messages, log.fields["order_id"]) == ("avro", "orderId")
