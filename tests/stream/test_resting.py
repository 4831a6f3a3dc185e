"""Windows that rest in files: an epoch reads those that it touches; the files go with the fold that made them."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.protocol import lost_state
from tailrace.engines.spark.executions.execution import SparkExecution
from tailrace.engines.spark.executions.open_windows import OpenWindows
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.engines.spark.side import SparkSide, execution_of
from tailrace.lake.catalog.events import EngineSwitched, Notice
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.metadata.commit_times import now_milliseconds
from tailrace.lake.schema.table_names import RESTING
from tailrace.lake.upkeep.leftovers import leftover_tables
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import moment
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.engines.spark_runs import bundle_frame
from tests.support.lakes.rides import HOURLY, Case, within
from tests.support.tools import need_times_of_access

DAY = 86_400_000_000
FIRST = 20_454 * DAY
PEOPLE = [f"person {number}" for number in range(16)]


def ride(who: str, day: int) -> dict[str, object]:
    at = moment(FIRST + day * DAY + 60_000_000)
    return {"who": who, "cents": 1, "day": at, "seen": at}


def resting_tables(lake: Lake) -> list[str]:
    return [name for name in lake.tables if f"{RESTING}_" in name]


class Folding:
    """A fold of HOURLY whose windows all rest between two epochs."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.spark, self.lake = spark, lake
        self.execution: SparkExecution = execution_of(spark, HOURLY, RestingWindows(spark, lake, HOURLY, 0))
        self.state: OpenWindows = self.execution.nothing()
        self.epoch = 0

    def fold(self, watermark: int, *records: dict[str, object]) -> list[tuple[str, bool]]:
        """Fold an epoch; return whose panes fired, and whether each is a retraction."""
        clock = Clock(self.epoch, watermark, self.epoch)
        consumed = self.execution.consume(bundle_frame(self.spark, HOURLY, records, self.epoch), self.state)
        stepped = self.execution.step(self.state, consumed, clock)
        rows = stepped.rows.where("kind = 'pane'").select("who", "retraction").collect()
        self.state.forget()
        self.state, self.epoch = stepped.state, self.epoch + 1
        return sorted((row["who"], row["retraction"]) for row in rows)

    def unread(self) -> list[Path]:
        """The data files that there are, none of which counts as read."""
        (table,) = resting_tables(self.lake)
        place = Path(self.lake.table(table).location().removeprefix("file://"))
        files = [one for one in sorted((place / "data").rglob("*.parquet")) if "deletes" not in one.name]
        for file in files:
            os.utime(file, (0, file.stat().st_mtime))
        return files


def read(files: list[Path]) -> int:
    return sum(file.stat().st_atime > 0 for file in files if file.exists())


def test_an_epoch_reads_the_files_of_the_windows_that_it_touches_and_no_others(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    need_times_of_access(tmp_path)
    days = 4
    folding = Folding(plain, Lake(settings))
    for day in range(days):
        folding.fold(FIRST - 1, *(ride(who, day) for who in PEOPLE))
    # An epoch without records puts the windows of the last day into files, and reads none.
    folding.fold(FIRST - 1)
    files = folding.unread()
    assert folding.state.open() == days * len(PEOPLE)
    assert len(files) > 2 * days
    assert folding.fold(FIRST - 1) == []
    assert read(files) == 0
    assert folding.fold(FIRST - 1, ride(PEOPLE[0], 2)) == [(PEOPLE[0], False)]
    assert read(files) == 1
    assert folding.state.open() == days * len(PEOPLE)
    # The clock alone touches the windows of the first day: they fire, and stay open for late records.
    folding.fold(FIRST - 1)
    files = folding.unread()
    assert folding.fold(FIRST + DAY // 2) == [(who, False) for who in sorted(PEOPLE)]
    assert 0 < read(files) <= len(files) // days
    fired = [*((who, False) for who in PEOPLE for _ in range(days - 1)), (PEOPLE[0], True)]
    assert folding.fold(FIRST + days * DAY) == sorted(fired)
    assert folding.state.open() == 0
    folding.execution.rest.close()
    assert resting_tables(folding.lake) == []


def test_X2_a_fold_that_loses_its_resting_windows_or_starts_again_has_them_from_the_ledger(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    few = settings.model_copy(update={"engine": "spark", "windows_in_driver": 5, "windows_in_memory": 2})
    case, reports, told = Case(plain, few, tmp_path / "landing"), list[EpochReport](), list[Notice]()
    case.lake = Lake(few, told.append)
    other = Case(plain, settings.model_copy(update={"engine": "duckdb", "namespace": "other"}), tmp_path / "other")

    def land(*rides: tuple[str, int, str]) -> None:
        case.land(*rides)
        other.land(*rides)

    stream = Stream(plain, case.lake, [HOURLY], case.source, watch=reports.append)
    stream.start()
    for hour in ("08", "09"):
        land(*((who, 100, f"{hour}:00") for who in "abcdef"))
    within(stream, lambda: len(reports) == 2)
    (over,) = [one for one in told if isinstance(one, EngineSwitched)]
    assert (over.engine, "TAILRACE_WINDOWS_IN_DRIVER" in over.why) == ("spark", True), "six windows were open by then"
    land(("a", 1, "09:10"), ("g", 1, "09:10"))
    within(stream, lambda: len(reports) == 3)
    (lost,) = resting_tables(case.lake)
    case.lake.drop(lost)
    land(("a", 1, "08:20"), ("b", 1, "09:20"))
    within(stream, lambda: len(reports) == 4)
    assert reports[-1].recovered
    (left,) = resting_tables(case.lake)
    assert left != lost
    assert reports[-1].folded["hourly"].open == 13
    stream.stop()
    # Nobody closes it, as where its process dies.
    SparkSide(plain, case.lake, HOURLY, EngineChoice(Engine.SPARK, "reads the ledger alone")).close()
    assert resting_tables(case.lake) == [left]
    assert leftover_tables(case.lake, HOURLY, [left], now_milliseconds() + 1, timedelta(0)) == [left]
    land(("c", 1, "08:30"), ("c", 1, "10:30"), ("h", 7, "10:40"))
    case.drain(HOURLY)
    assert resting_tables(case.lake) == []
    assert audit(case.lake, HOURLY).ok
    assert replay(case.lake, HOURLY).ok
    assert resting_tables(case.lake) == []
    other.drain(HOURLY)
    theirs = other.lake.table("hourly").scan().to_arrow().select(["who", "window_start", "n", "cents"])
    ours = case.lake.table("hourly").scan().to_arrow().select(["who", "window_start", "n", "cents"])
    order = [("who", "ascending"), ("window_start", "ascending")]
    assert ours.sort_by(order) == theirs.sort_by(order)


def test_other_errors_are_not_taken_for_windows_that_are_gone() -> None:
    assert lost_state(RuntimeError("[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] rdd_1_0"))
    assert lost_state(RuntimeError("NotFoundException: /lake/hourly__resting_0123abcd/data/a.parquet"))
    assert not lost_state(RuntimeError("[TABLE_OR_VIEW_NOT_FOUND] hourly"))
    assert not lost_state(RuntimeError("hourly__resting_0123abcd: no space left on the device"))
