"""Maintenance beside a running stream and a backfill: nothing is lost, doubled or forgotten (rule X3)."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Log, Pipeline, Sum, minutes
from tailrace.backfill.backfill import backfill
from tailrace.ingest.landing import Landing
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import MAIN, Lake
from tailrace.lake.commit.archive import archive, commits
from tailrace.lake.commit.epoch_properties import epoch_commits
from tailrace.lake.commit.signal_tables import Completions
from tailrace.model.base.time import BEGINNING, instant
from tailrace.operate import maintenance
from tailrace.operate.maintenance import Maintenance, maintain
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.engines.sessions import session

RIDES = Log(
    name="rides",
    columns={"who": "string", "cents": "bigint", "day": "timestamp", "seen": "timestamp"},
    event_time="day",
    arrival_time="seen",
    disorder=minutes(10),
)
HOURLY = Pipeline(
    name="hourly", log=RIDES, key="who", what={"n": Count(), "cents": Sum("cents")}, where=Fixed(minutes(60)),
    when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)), how=RETRACTING, allowed_lateness=minutes(60),
)  # fmt: skip
LATER = replace(HOURLY, name="later")


class Case:
    """A lake whose snapshots are kept for no time at all, and files that land for it, a fault in each."""

    def __init__(self, spark: SparkSession, settings: Settings, folder: Path) -> None:
        # Fewer than anybody may set: each epoch is then trimmed or maintained.
        self.settings = settings.model_copy(update={"keep_snapshots": timedelta(0), "most_snapshots": 5})
        self.spark, self.lake, self.folder = spark, Lake(self.settings), folder
        self.rides: list[tuple[str, int, str]] = []
        self.landed = 0
        folder.mkdir()

    def land(self, *rides: tuple[str, int, str]) -> None:
        """Rides by who, cents and the minute of the day."""
        rows = [
            {"who": who, "cents": cents, "day": f"2026-01-01T{at}:00Z", "seen": f"2026-01-01T{at}:01Z"}
            for who, cents, at in rides
        ]
        file = self.folder / f".{self.landed}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"who": 1, \n')
        os.utime(file, (1_700_000_000 + self.landed, 1_700_000_000 + self.landed))
        file.rename(self.folder / f"{self.landed:03}.json")
        self.landed += 1
        self.rides += rides

    def stream(self, *pipelines: Pipeline) -> Stream:
        return Stream(self.spark, self.lake, pipelines, Files(str(self.folder), per_epoch=1), follow_every=2)

    def drain(self, *pipelines: Pipeline) -> None:
        one = self.stream(*pipelines)
        one.start(once=True)
        one.wait()
        one.close()

    def caught_up(self, running: Stream) -> None:
        """Wait until all that has landed is folded."""
        end = time.monotonic() + 400
        while self.lake.table("rides").scan().count() < len(self.rides) or running.folds[0].epoch < running.epoch:
            assert not running.wait(0.3)
            assert time.monotonic() < end

    def answers(self) -> dict[tuple[str, str], tuple[int, int]]:
        text = "SELECT who, DATE_FORMAT(window_start, 'HH'), n, cents FROM hourly"
        return {(row[0], row[1]): (row[2], row[3]) for row in self.spark.sql(text).collect()}

    def expected(self) -> dict[tuple[str, str], tuple[int, int]]:
        """The answers over all rides there were, by the hour."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for who, cents, at in self.rides:
            found[who, at[:2]].append(cents)
        return {key: (len(cents), sum(cents)) for key, cents in found.items()}


@pytest.mark.slow
def test_X3_a_lake_maintained_under_a_stream_and_a_backfill_is_as_one_that_never_was(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    lake, done, ended, failures = case.lake, list[Maintenance](), threading.Event(), list[BaseException]()

    def keep_up() -> None:
        try:
            own = session(case.settings)
            while not ended.wait(1):
                done.append(maintain(own, lake, HOURLY))
        except BaseException as error:
            failures.append(error)

    case.land(("ann", 1, "08:05"), ("bob", 2, "08:10"))
    running = case.stream(HOURLY)
    running.start()
    case.caught_up(running)
    Completions(lake, RIDES).say(instant_of("08:00"))
    beside = threading.Thread(target=keep_up)
    beside.start()
    for ride in [("ann", 4, "08:20"), ("bob", 8, "09:30"), ("ann", 16, "11:30"), ("bob", 32, "08:30")]:
        case.land(ride)
        case.caught_up(running)
    # The last ride came too late for its window: the backfill takes it in.
    (closed,) = backfill(lake, HOURLY, BEGINNING, instant_of("10:00"), reason="a late ride")
    assert (closed.changed, closed.untouched) == (1, 2)
    case.land(("ann", 64, "12:00"))
    case.caught_up(running)
    ended.set()
    beside.join(300)
    assert not failures
    running.stop()
    running.close()
    done.append(maintain(plain, lake, HOURLY))
    tables = [one for maintenance in done for one in maintenance.tables]
    assert {one.table for one in tables if one.expired} >= {"rides", "rides__rejected", "hourly__ledger", "hourly"}
    assert any("data files" in one.rewritten for one in tables if one.table == "rides")
    for table in ("rides", "hourly__ledger", "hourly"):
        loaded = lake.table(table)
        assert len(loaded.metadata.snapshots) <= 3
        assert [*loaded.metadata.refs] == [MAIN]
    # Nothing is lost or doubled, and what was said of every epoch is known, also to a pipeline that is new to the log.
    case.land(("zoe", 5, "16:00"))
    case.drain(HOURLY, LATER)
    assert case.answers() == {key: one for key, one in case.expected().items() if key[0] != "zoe"}
    found = audit(lake, HOURLY)
    assert found.ok, found.checks
    last = lake.head("rides").number("epoch")
    clocks = [
        {epoch: (one.clock.watermark, one.clock.processing_time) for epoch, one in epoch_commits(lake, table).items()}
        for table in ("rides", "hourly__ledger", "later__ledger")
    ]
    assert sorted(clocks[0]) == list(range(last + 1))
    assert clocks[0] == clocks[1] == clocks[2]
    assert all(commits(lake, table).whole for table in ("rides", "rides__rejected", "hourly__ledger"))
    again = replay(lake, HOURLY)
    assert again.ok, (again.counts, again.differences)
    assert (again.first, again.last) == (0, last)


@pytest.mark.slow
def test_X3_a_landing_whose_log_is_compacted_before_it_publishes_writes_again_on_top(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    publish, tables = Landing.publish, ("rides", "rides__rejected")
    moved = []

    def overtaken(self: Landing) -> None:
        own = session(case.settings)
        for table in tables:
            call = f"table => 'main.{table}', options => MAP('rewrite-all', 'true')"
            (row,) = own.sql(f"CALL lake.system.rewrite_data_files({call})").collect()
            moved.append(row["rewritten_data_files_count"])
        publish(self)

    monkeypatch.setattr(Landing, "publish", overtaken)
    case.land(("ann", 1, "08:05"), ("bob", 2, "08:10"))
    case.land(("ann", 4, "08:20"))
    case.land(("zoe", 3, "12:00"))
    case.drain(HOURLY)
    assert moved == [0, 0, 1, 1, 2, 2], "every epoch but the first found both tables moved"
    assert plain.table("rides").count() == len(case.rides)
    assert plain.table("rides__rejected").count() == case.landed
    assert sorted(epoch_commits(case.lake, "rides")) == [0, 1, 2]
    found = audit(case.lake, HOURLY)
    assert found.ok, found.checks
    # What a dead writer left behind long ago, and what one may be about to commit.
    folder = Path(case.lake.table("rides").location().removeprefix("file://")) / "data"
    old, young = folder / "old.parquet", folder / "young.parquet"
    for file in (old, young):
        file.write_bytes(b"")
    os.utime(old, (time.time() - 4 * 86400,) * 2)
    maintain(plain, case.lake, HOURLY)
    assert (old.exists(), young.exists()) == (False, True)
    assert plain.table("rides").count() == len(case.rides)


@pytest.mark.slow
def test_X3_a_table_that_its_writer_trims_before_its_snapshots_expire_is_maintained(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    case.lake = Lake(case.settings.model_copy(update={"most_snapshots": 100}))
    for minute in range(4):
        case.land(("ann", 1, f"08:0{minute}"))
    case.drain(HOURLY)
    trimmed = list[int]()

    def overtaken(lake: Lake, table: str, going: Sequence[Snapshot]) -> None:
        archive(lake, table, going)
        if table == "rides" and not trimmed:
            trimmed.extend(one.snapshot_id for one in going)
            lake.forget(table, trimmed)

    monkeypatch.setattr(maintenance, "archive", overtaken)
    (rides,) = (one for one in maintain(plain, case.lake, HOURLY).tables if one.table == "rides")
    left = case.lake.table("rides").metadata.snapshots
    assert len(trimmed) > len(left), "more went than stayed"
    assert (rides.expired, rides.overtaken) == (0, ())
    assert sorted(epoch_commits(case.lake, "rides")) == [0, 1, 2, 3]
    assert audit(case.lake, HOURLY).ok


def instant_of(at: str) -> int:
    return instant(datetime.fromisoformat(f"2026-01-01T{at}:00+00:00"))
