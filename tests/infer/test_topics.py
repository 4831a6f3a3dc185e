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
