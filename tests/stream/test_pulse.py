"""Time and people have their say while no record comes: epochs without records (rules T2 to T4)."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tailrace import (
    AfterCount,
    AfterDelay,
    AfterWatermark,
    Arrivals,
    Count,
    Fixed,
    Log,
    Pipeline,
    Sessions,
    hours,
    minutes,
    seconds,
)
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.signal_tables import Completions
from tailrace.model.base.time import instant
from tailrace.model.logs.watermark_strategies import Injected
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit

CLICKS = Log(name="clicks", columns={"who": "string", "at": "timestamp"}, event_time="at", disorder=hours(3))
DROPS = Log(
    name="drops", columns={"who": "string", "at": "timestamp"}, event_time="at",
    watermark=Injected(files=r"(?P<partition>eu|us)-(?P<until>[0-9T-]+)\.json", partitions=("eu", "us")),
)  # fmt: skip
WITHIN = 60.0
"""Seconds to wait for what must come, on a busy machine."""


def counted(name: str, log: Log) -> Pipeline:
    return Pipeline(
        name=name, log=log, key="who", what={"n": Count()}, where=Fixed(minutes(60)),
        when=AfterWatermark(early=AfterDelay(seconds(1)), late=AfterCount(1)), allowed_lateness=hours(2),
    )  # fmt: skip


class Case:
    def __init__(self, spark: SparkSession, settings: Settings, folder: Path) -> None:
        self.spark, self.lake, self.folder, self.landed = spark, Lake(settings), folder, 0
        self.reports: list[EpochReport] = []
        folder.mkdir()

    def land(self, name: str, *hours: int) -> None:
        rows = [{"who": "ann", "at": f"2026-01-01T{hour:02}:10:00Z"} for hour in hours]
        file = self.folder / f".{name}"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + self.landed, 1_700_000_000 + self.landed))
        file.rename(self.folder / name)
        self.landed += 1

    def stream(self, pipeline: Pipeline) -> Stream:
        return Stream(self.spark, self.lake, [pipeline], Files(str(self.folder)), watch=self.reports.append)

    def drain(self, pipeline: Pipeline) -> None:
        one = self.stream(pipeline)
        one.start(once=True)
        one.wait()
        one.close()

    def panes(self, name: str) -> list[tuple[Any, ...]]:
        text = f"SELECT epoch, HOUR(window_start), timing, n FROM {name}__ledger WHERE kind = 'pane' ORDER BY ALL"
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def until(self, running: Stream, timings: list[str], name: str) -> None:
        end = time.monotonic() + WITHIN
        while [timing for _, _, timing, _ in self.panes(name)] != timings:
            assert not running.wait(0.5)
            assert time.monotonic() < end, self.panes(name)


def test_T4_a_delay_goes_by_and_a_window_is_said_to_be_complete_with_no_record_to_show_for_it(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    fresh = settings.model_copy(update={"freshness": timedelta(seconds=2)})
    case, pipeline = Case(plain, fresh, tmp_path / "landing"), counted("counted", CLICKS)
    plain.sql("SET TIME ZONE 'UTC'")
    running = case.stream(pipeline)
    running.start()
    case.land("first.json", 1, 1, 2)
    case.until(running, ["early", "early"], "counted")
    # Nothing is fresh any more, so time alone makes no further epoch.
    epochs = len(case.reports)
    assert not running.wait(4)
    assert len(case.reports) == epochs == 2
    assert case.lake.table("counted").scan().to_arrow().num_rows == 2, "the answers are no longer behind"
    completions = Completions(case.lake, CLICKS)
    completions.say(instant_of(2, 30), note="the month is over")
    case.until(running, ["early", "early", "on_time"], "counted")
    completions.say(instant_of(4), partition="", note="all files are here")
    case.until(running, ["early", "early", "on_time", "on_time"], "counted")
    case.land("second.json", 2)
    case.until(running, ["early", "early", "on_time", "on_time", "late"], "counted")
    running.stop()
    running.close()
    assert case.panes("counted") == [
        (1, 1, "early", 2), (1, 2, "early", 1), (2, 1, "on_time", 2), (3, 2, "on_time", 1), (4, 2, "late", 2),
    ]  # fmt: skip
    found = audit(case.lake, pipeline)
    assert found.ok, [check for check in found.checks if not check.ok]
    # Who catches up later goes through the same epochs, with the same clocks.
    others = counted("others", CLICKS)
    case.drain(others)
    assert case.panes("others") == case.panes("counted")


def test_T4_a_window_of_processing_time_is_over_when_it_is_with_no_record_to_show_for_it(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    plain.sql("SET TIME ZONE 'UTC'")
    pipeline = Pipeline(
        name="sittings", log=Arrivals(of=CLICKS), key="who", what={"n": Count()}, where=Sessions(seconds(2))
    )
    running = case.stream(pipeline)
    running.start()
    case.land("first.json", 1, 1, 2)
    case.until(running, ["on_time"], "sittings")
    # No window is open any more, so time alone makes no further epoch.
    assert not running.wait(3)
    running.stop()
    running.close()
    assert [(epoch, timing, n) for epoch, _, timing, n in case.panes("sittings")] == [(1, "on_time", 3)]
    assert len(case.reports) == 2
    found = audit(case.lake, pipeline)
    assert found.ok, [check for check in found.checks if not check.ok]


def instant_of(hour: int, minute: int = 0) -> int:
    from datetime import UTC, datetime

    return instant(datetime(2026, 1, 1, hour, minute, tzinfo=UTC))


def test_T3_files_say_how_far_they_are_complete_and_the_last_partition_decides(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case, pipeline = Case(plain, settings, tmp_path / "landing"), counted("counted", DROPS)
    plain.sql("SET TIME ZONE 'UTC'")
    case.land("eu-2026-01-01T05.json", 1, 2, 3, 4)
    case.drain(pipeline)
    assert case.reports[-1].folded["counted"].clock.watermark < 0
    case.land("us-2026-01-01T03.json", 1, 2)
    case.drain(pipeline)
    assert case.reports[-1].folded["counted"].clock.watermark == instant_of(3)
    on_time = [(hour, n) for _, hour, timing, n in case.panes("counted") if timing == "on_time"]
    assert on_time == [(1, 2), (2, 2)]
    # Said without a file, to a stream that takes what there is and ends.
    Completions(case.lake, DROPS).say(instant_of(4), partition="us")
    case.drain(pipeline)
    assert case.reports[-1].landed.records == 0
    assert [hour for _, hour, timing, _ in case.panes("counted") if timing == "on_time"] == [1, 2, 3]
    assert audit(case.lake, pipeline).ok
