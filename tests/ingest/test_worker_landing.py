"""Files that the executors' Python lands: the log is as Spark would have landed it, and nothing is lost (X2, X6)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Pipeline, Sessions, Sum, minutes
from tailrace.engines.choose import WORTH
from tailrace.engines.duckdb.executions import sql_execution
from tailrace.engines.spark import driver_side, side
from tailrace.engines.spark.executions import open_windows
from tailrace.engines.spark.workers import worker_queries
from tailrace.ingest import landing_task, worker_landing
from tailrace.ingest.sources import Files, Format
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tests.support.engines.executors import watched, without_package
from tests.support.lakes.rides import HOURLY, RIDES

SECOND = 1_000_000
FIRST = 1_767_225_600 * SECOND
"""The first of January 2026."""


STAYS = Pipeline(
    name="stays", log=RIDES, key="who", what={"n": Count(), "cents": Sum("cents")}, where=Sessions(minutes(5)),
    when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)), how=RETRACTING, allowed_lateness=minutes(120),
)  # fmt: skip


def ride(who: str | None, minute: int) -> dict[str, Any]:
    at = FIRST + minute * 60 * SECOND
    return {"who": who, "cents": minute, "day": at, "seen": at + SECOND}


def parquet(file: Path, rides: list[dict[str, Any]], cents: pa.DataType | None = None) -> None:
    at = pa.timestamp("us", "UTC")
    schema = pa.schema({"who": pa.string(), "cents": cents or pa.int64(), "day": at, "seen": at})
    pq.write_table(pa.Table.from_pylist(rides, schema), file, row_group_size=7)


def lines(file: Path, rides: list[dict[str, Any]], *others: str) -> None:
    text = [json.dumps({**one, **{name: moment(one[name]) for name in ("day", "seen")}}) for one in rides]
    file.write_text("\n".join([*text, *others, ""]))


def moment(at: int) -> str:
    return str(pa.scalar(at, pa.timestamp("us", "UTC")).as_py().isoformat())


def rides(folder: Path, format: Format) -> Path:
    """Five files, in epochs of three; the last has records of windows that are over by then."""
    folder.mkdir()
    for number in range(5):
        some = [ride(f"w{one % 3}" if one else None, 20 * number + one) for one in range(25)]
        some += [ride(f"w{one}", -400 - one) for one in range(3 * (number == 4))]
        file = folder / f"{number}.{format}"
        if format == "parquet":
            parquet(file, some)
        else:
            odd = ('{"who": "zoe", "cents": "seven"}', "", "no object", '{"who": "z\\u00f6", "cents": 1e2}')
            lines(file, some, *odd[: number + 1])
        os.utime(file, (1_700_000_000 + number,) * 2)
    return folder


def drained(spark: SparkSession, lake: Lake, folder: Path, format: Format) -> list[EpochReport]:
    found: list[EpochReport] = []
    stream = Stream(spark, lake, [HOURLY, STAYS], Files(str(folder), format, per_epoch=3), watch=found.append)
    stream.start(once=True)
    stream.wait()
    stream.close()
    return found


def told(lake: Lake, reports: list[EpochReport]) -> list[Any]:
    """What a lake holds of the rides, and what was told of each epoch; who wrote the files is not in it."""
    tables = []
    for table in ("rides", "rides__rejected", "hourly__ledger", "hourly", "stays__ledger", "stays"):
        rows = lake.table(table).scan().to_arrow()
        # Each way numbers the lines of a file in one of its own.
        left_out = ("_offset", "source_offset", "processing_time", "fired", "pending", "trigger")
        names = [name for name in rows.column_names if name not in left_out]
        tables.append(sorted(map(repr, rows.select(names).to_pylist())))
    panes = [(one.folded["hourly"].panes, one.folded["stays"].panes, one.folded["stays"].late) for one in reports]
    epochs = [(one.epoch, one.landed, one.progress) for one in reports]
    progress = [commit.properties.get("progress") for commit in lake.commits("rides")]
    return [*tables, epochs, panes, progress]


def orphans(lake: Lake) -> int:
    """How many data files of the log no commit lists."""
    table = lake.table("rides")
    place = Path(table.location().removeprefix("file://"))
    return len([*place.rglob("*.parquet")]) - len([*table.scan().plan_files()])


@pytest.fixture
def engine(settings: Settings) -> Settings:
    return settings.model_copy(update={"engine": "spark"})


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_L1_X6_what_executors_land_and_add_up_is_what_spark_does(
    plain: SparkSession, engine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    folder = rides(tmp_path / "landing", format)
    monkeypatch.setattr(landing_task, "PART", 600)
    found = []
    for name, worth, in_driver in (("driver", 0, None), ("workers", 0, 0), ("spark", WORTH, 0)):
        lake = Lake(engine.model_copy(update={"namespace": name, "windows_in_driver": in_driver}))
        with monkeypatch.context() as patch:
            for module in (worker_landing, worker_queries):
                patch.setattr(module, "WORTH", worth)
            if not worth:
                # As an epoch of many windows is kept and written.
                patch.setattr(open_windows, "MANY", 1)
                patch.setattr(side, "MANY", 1)
                patch.setattr(sql_execution, "MANY", 1)
            together = watched(patch, side.SparkSide, "_lie_together")
            landed = watched(patch, worker_landing.WorkerLanding, "land")
            folded = watched(patch, worker_queries.LogFiles, "answer")
            here = watched(patch, driver_side.DriverSide, "takes")
            late = watched(patch, driver_side.DriverSide, "_late_rows")
            reports = drained(plain, lake, folder, format)
        assert landed == [not worth] * 2
        assert folded == [True] * 2 * (name == "workers")
        assert any(together) is (name == "workers")
        assert here == [True] * 4 * (name == "driver")
        assert any(late) is (name == "driver")
        found.append(told(lake, reports))
        assert orphans(lake) == 0
    by_driver, by_workers, by_spark = found
    for one, another, third in zip(by_driver, by_workers, by_spark, strict=True):
        assert one == another == third
    assert sum(late for _, _, late in by_driver[-2]) == 3


def test_X2_an_epoch_with_an_odd_file_is_sparks_and_leaves_no_file_behind(
    plain: SparkSession, engine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_landing, "WORTH", 0)
    lake, folder = Lake(engine), tmp_path / "landing"
    folder.mkdir()
    for number in range(3):
        parquet(folder / f"{number}.parquet", [ride("ann", number)], pa.int32() if number == 2 else None)
    drained(plain, lake, folder, "parquet")
    assert sorted(lake.table("rides").scan().to_arrow()["cents"].to_pylist()) == [0, 1, 2]
    assert orphans(lake) == 0


def test_executors_without_the_package_leave_the_files_to_spark(
    plain: SparkSession, engine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_landing, "WORTH", 0)
    without_package(monkeypatch, landing_task.LandingTask)
    lake, folder = Lake(engine), tmp_path / "landing"
    folder.mkdir()
    parquet(folder / "0.parquet", [ride("ann", 7)])
    drained(plain, lake, folder, "parquet")
    assert lake.table("rides").scan().to_arrow()["cents"].to_pylist() == [7]
