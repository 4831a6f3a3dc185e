"""A log of rides that a test lands file by file, with the stream that folds it on a lake of its own."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Log, Map, Pipeline, Sum, minutes
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.commit_history import commit_history
from tailrace.operate.answers_repair import accept
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream

RIDES = Log(
    name="rides",
    columns={"who": "string", "cents": "bigint", "day": "timestamp", "seen": "timestamp"},
    event_time="day",
    arrival_time="seen",
    disorder=minutes(10),
)
HOURLY = Pipeline(
    name="hourly", log=RIDES, key="who", what={"n": Count(), "cents": Sum("cents")}, where=Fixed(minutes(60)),
    when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)), how=RETRACTING, allowed_lateness=minutes(120),
)  # fmt: skip


class Case:
    def __init__(self, spark: SparkSession, settings: Settings, folder: Path) -> None:
        self.spark, self.lake, self.folder, self.landed = spark, Lake(settings), folder, 0
        folder.mkdir()
        spark.sql("SET TIME ZONE 'UTC'")

    @property
    def source(self) -> Files:
        return Files(str(self.folder), per_epoch=1)

    def land(self, *rides: tuple[str, int, str]) -> None:
        """Rides by who, cents and the minute of the first day, or of another one: `02T08:15`."""
        times = [at if "T" in at else f"01T{at}" for _, _, at in rides]
        rows = [
            {"who": who, "cents": cents, "day": f"2026-01-{at}:00Z", "seen": f"2026-01-{at}:01Z"}
            for (who, cents, _), at in zip(rides, times, strict=True)
        ]
        file = self.folder / f".{self.landed}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + self.landed, 1_700_000_000 + self.landed))
        file.rename(self.folder / f"{self.landed:03}.json")
        self.landed += 1

    def stream(self, *pipelines: Pipeline | Map) -> Stream:
        return Stream(self.spark, self.lake, pipelines, self.source)

    def drain(self, *pipelines: Pipeline | Map) -> None:
        one = self.stream(*pipelines)
        one.start(once=True)
        one.wait()
        one.close()

    def lose(self, pipeline: Pipeline, who: str) -> None:
        """A fault of an older version: what the state held of a key is gone."""
        table = self.lake.spark_name(f"{pipeline.name}__ledger")
        self.spark.sql(f"DELETE FROM {table} WHERE kind = 'partial' AND who = '{who}'")
        ledger = f"{pipeline.name}__ledger"
        deleted = [one.snapshot for one in commit_history(self.lake, ledger).foreign]
        accept(self.lake, [ledger], deleted, "what an older version lost")

    def answers(self, pipeline: Pipeline) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        text = f"SELECT who, DATE_FORMAT(window_start, 'HH:mm'), n, cents FROM {pipeline.name}"
        return {tuple(row)[:2]: tuple(row)[2:] for row in self.spark.sql(text).collect()}


def within(running: Stream, holds: Any, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert not running.wait(0.2)
        assert time.monotonic() < end
