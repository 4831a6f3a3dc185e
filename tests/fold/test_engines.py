"""Streams that change their engine at epoch boundaries end as if there were one: the law of two engines (L1, L2)."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Every, Fixed, Log, Pipeline, Sessions, Sum, seconds
from tailrace.backfill.backfill import backfill
from tailrace.engines.choose import EnginePolicy
from tailrace.engines.protocol import AnySide
from tailrace.engines.spark.driver_side import DriverSide
from tailrace.fold.fold_engines import StreamEngines
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.events import EngineSwitched, Notice
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import instant
from tailrace.model.definition.definition import Definition
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tests.support.checks.batch_answers import batch

START = datetime(2024, 5, 1, tzinfo=UTC)
CALLS = Log(
    name="calls",
    columns={"who": "string", "cents": "bigint", "at": "timestamp", "seen": "timestamp"},
    event_time="at",
    arrival_time="seen",
    disorder=seconds(20),
)
WHEN = AfterWatermark(early=Every(seconds(15)), late=AfterCount(1))
HOURS = Pipeline(
    name="call_minutes",
    log=CALLS,
    key="who",
    what={"n": Count(), "cents": Sum("cents")},
    where=Fixed(seconds(60)),
    when=WHEN,
    how=RETRACTING,
    allowed_lateness=seconds(60),
)
TALKS = Pipeline(
    name="talks",
    log=CALLS,
    key="who",
    what={"n": Count()},
    where=Sessions(seconds(20)),
    when=WHEN,
    how=RETRACTING,
    allowed_lateness=seconds(40),
)
EPOCHS = 6


def land(folder: Path, seed: int) -> list[dict[str, Any]]:
    """Calls in a file an epoch, some too late, and at last one by which the windows of all others are over."""
    chance, found = random.Random(seed), []
    for epoch in range(EPOCHS):
        rows = []
        for _ in range(12):
            seen = START + timedelta(seconds=15 * epoch + chance.random() * 15)
            at = seen - timedelta(seconds=chance.choice([1, 5, 10, 30, 600]) * chance.random())
            rows.append({"who": chance.choice("abc"), "cents": chance.randrange(9), "at": at, "seen": seen})
        if epoch == EPOCHS - 1:
            last = START + timedelta(minutes=30)
            rows.append({"who": "d", "cents": 1, "at": last, "seen": last})
        file = folder / f"{epoch:03}.json"
        file.write_text("".join(json.dumps(row, default=datetime.isoformat) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + epoch, 1_700_000_000 + epoch))
        found += rows
    return found


def test_L1_L2_a_stream_that_changes_its_engine_ends_as_if_it_had_one(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, chance, told = tmp_path / "landing", random.Random(3), list[Notice]()
    folder.mkdir()
    records, lake, reports = land(folder, 3), Lake(settings, told.append), list[EpochReport]()
    takes = EnginePolicy.takes
    # Some epochs are taken for too large; the bundle then comes as Spark's, and the folds go over.
    monkeypatch.setattr(EnginePolicy, "takes", lambda *said, **ids: chance.random() < 0.75 and takes(*said, **ids))
    # Of these some are taken for too much for the driver, and executors have the windows from there on.
    fits, goes_on, sides = DriverSide.takes, StreamEngines.next, Counter[tuple[str, str]]()
    monkeypatch.setattr(DriverSide, "takes", lambda self, *given: fits(self, *given) and chance.random() < 0.5)

    def goes_on_told(self: StreamEngines, side: AnySide, definition: Definition, *given: Any) -> AnySide:
        taken = goes_on(self, side, definition, *given)
        sides[definition.name, type(taken).__name__] += 1
        return taken

    monkeypatch.setattr(StreamEngines, "next", goes_on_told)
    while len(reports) < EPOCHS:
        stream = Stream(plain, lake, [HOURS, TALKS], Files(str(folder), "json", 1), watch=reports.append)
        before, most = len(reports), chance.randrange(2, 6)
        stream.start(once=True)
        while not stream.wait(0.02) and len(reports) < before + most:
            pass
        stream.stop()
        stream.close()
    engines = Counter(report.folded["talks"].engine for report in reports)
    assert set(engines) == {"duckdb", "spark"}, engines
    assert any(isinstance(one, EngineSwitched) for one in told)
    assert {kind for name, kind in sides if name == HOURS.name} == {"DuckSide", "DriverSide", "SparkSide"}, sides
    by = {engine: Lake(settings.model_copy(update={"engine": engine})) for engine in ("duckdb", "spark")}
    for pipeline, engine, other in ((HOURS, "duckdb", "spark"), (TALKS, "spark", "duckdb")):
        found = audit(by[other], pipeline)
        assert found.ok, [check for check in found.checks if not check.ok]
        assert found.counts["late"] > 0
        done = backfill(by[engine], pipeline, instant(START - timedelta(hours=1)))
        assert {one.engine.engine.value for one in done} == {engine}
        found = audit(by["duckdb"], pipeline)
        assert found.ok, [check for check in found.checks if not check.ok]
        rows = lake.table(pipeline.name).scan().to_arrow().to_pylist()
        held = {
            (row["who"], instant(row["window_start"]), instant(row["window_end"])): row["n"]
            for row in rows
            if row["who"] != "d"
        }
        ended = batch(pipeline, [one for one in records if one["who"] != "d"])
        expected = {(key[0], *window): one["n"] for (key, window), one in ended.items()}
        assert held == expected
