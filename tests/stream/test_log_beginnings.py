"""Where a log began in its topics stays in the properties of its commits."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from tailrace.ingest.sources import Kafka, Start
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import BEGAN, OFFSET, began_text
from tailrace.settings import Settings
from tailrace.stream import log_sources
from tailrace.stream.log_sources import SourceIdentities
from tests.support.lakes.small_lake import RIDES

OFFSETS = {"rides": {"0": 17, "1": 9}}


def identities(lake: Lake, start: str) -> SourceIdentities:
    """The identities of a stream of a topic, by a process that has neither Spark nor brokers."""
    source = Kafka("rides", "nowhere:9092", start=Start.of(start))
    return SourceIdentities(cast("Any", None), lake, {RIDES.name: RIDES}, {RIDES.name: source})


def test_every_commit_of_a_log_says_where_the_log_began(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourceIdentities, "_asked", lambda *_: None)
    monkeypatch.setattr(log_sources, "first_offsets", lambda *_: OFFSETS)
    lake = Lake(settings)
    told = identities(lake, "latest").properties(RIDES.name, json.dumps(OFFSETS))
    assert json.loads(told[BEGAN]) == {"start": "latest", "offsets": OFFSETS}
    head = lake.head(RIDES.name)
    assert json.loads(head.properties[OFFSET]) == OFFSETS
    assert began_text(head) == "latest: rides-0 at 17, rides-1 at 9"
    # A start has no effect once the log has begun; without one, the property is kept, too.
    for start in ("2026-01-01T00:00:00Z", "earliest"):
        assert identities(lake, start).properties(RIDES.name, json.dumps(OFFSETS)) == told
