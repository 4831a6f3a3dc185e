"""What an epoch, the answers that follow it and a backfill of a day read does not grow with the tables."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.backfill.pipeline_backfill import backfill
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import moment
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tests.support.rides import HOURLY, within

FIRST = 20_454
"""The first day, in days since 1970."""

FEW, MANY = 3, 30
"""Days of which there are records, a file and an epoch a day."""

DAY = 86_400_000_000
TABLES = ("rides", "hourly__ledger", "hourly")


def keeps_times_of_access(folder: Path) -> bool:
    """Whether a file that is read says when, at least for the first time since it was written."""
    file = folder / "file"
    file.write_text("x")
    os.utime(file, (0, time.time()))
    file.read_text()
    return file.stat().st_atime > 0


def land(folder: Path, day: int) -> None:
    """Two rides an hour of two people."""
    rows = []
    for hour in range(24):
        for who in ("ann", "zoe"):
            at = moment((FIRST + day) * DAY + hour * DAY // 24 + 60_000_000).isoformat()
            rows.append({"who": who, "cents": hour, "day": at, "seen": at})
    file = folder / f".{day:03}.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(file, (1_700_000_000 + day, 1_700_000_000 + day))
    file.rename(folder / f"{day:03}.json")


@dataclass
class Reads:
    """Which data files of each table are read from here on: those that are there already."""

    lake: Lake

    def __post_init__(self) -> None:
        self.files = {table: self._files(table) for table in TABLES}
        for files in self.files.values():
            for file in files:
                os.utime(file, (0, file.stat().st_mtime))

    def _files(self, table: str) -> list[Path]:
        place = Path(self.lake.table(table).location().removeprefix("file://"))
        return sorted((place / "data").rglob("*.parquet"))

    @property
    def found(self) -> dict[str, tuple[int, int]]:
        """Of each table how many files and bytes."""
        read = {table: [file for file in files if file.stat().st_atime > 0] for table, files in self.files.items()}
        return {table: (len(files), sum(file.stat().st_size for file in files)) for table, files in read.items()}


def measured(spark: SparkSession, settings: Settings, folder: Path, size: int) -> dict[str, dict[str, tuple[int, int]]]:
    """What is read of tables of so many days by an epoch of the next day, and by a backfill of the second day."""
    lake, landing = Lake(settings), folder / "landing"
    landing.mkdir(parents=True)
    for day in range(size):
        land(landing, day)
    stream = Stream(spark, lake, [HOURLY], Files(str(landing), per_epoch=1), follow_every=1)
    stream.start()
    within(stream, lambda: stream.folds[0].epoch == size - 1 and lake.head("hourly").number("epoch") == size - 1)
    reads, found = Reads(lake), {}
    land(landing, size)
    within(stream, lambda: stream.folds[0].epoch == size and lake.head("hourly").number("epoch") == size)
    found["epoch"] = reads.found
    stream.stop()
    stream.close()
    reads = Reads(lake)
    first = (FIRST + 1) * DAY
    (done,) = backfill(lake, HOURLY, first, first + DAY, reason="a day")
    assert done.changed == 0
    found["backfill"] = reads.found
    return found


@pytest.mark.slow
def test_what_an_epoch_and_a_backfill_read_does_not_grow_with_the_tables(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    if not keeps_times_of_access(tmp_path):
        pytest.skip("this file system does not say which files were read")
    few, many = (
        measured(plain, settings.model_copy(update={"namespace": f"of_{size}"}), tmp_path / f"{size}", size)
        for size in (FEW, MANY)
    )
    for doing, read in many.items():
        for table, (files, size) in read.items():
            assert files <= few[doing][table][0], (doing, table, few, many)
            assert size <= 1.1 * few[doing][table][1], (doing, table, few, many)
