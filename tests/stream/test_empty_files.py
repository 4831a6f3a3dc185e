"""Files that have no records are epochs like any other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tailrace import Count, Fixed, Log, Pipeline, minutes
from tailrace.ingest.row_landing import LandedCounts
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tests.support.engines.sessions import session

LOG = Log(name="beats", columns={"id": "bigint", "at": "timestamp"}, event_time="at", record_id=("id",))
BEATS = Pipeline(name="beats_a_minute", log=LOG, key=(), what={"beats": Count()}, where=Fixed(minutes(1)))


@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_an_empty_file_one_of_blank_lines_and_one_of_duplicates_are_epochs(
    settings: Settings, tmp_path: Path, engine: str
) -> None:
    record = '{{"id": {0}, "at": "2026-01-01T12:00:0{0}Z"}}\n'.format
    folder = tmp_path / "landing"
    folder.mkdir()
    for number, text in enumerate([record(1) + "\n" + record(2), "", "\n \n", record(2), record(3)]):
        file = folder / f"{number}.json"
        file.write_text(text)
        os.utime(file, (1_700_000_000 + number,) * 2)
    settings, reports = settings.model_copy(update={"engine": engine}), list[EpochReport]()
    stream = Stream(session(settings), Lake(settings), [BEATS], Files(str(folder), "json", 1), watch=reports.append)
    stream.start(once=True)
    stream.wait()
    stream.close()
    assert [one.landed for one in reports] == [
        LandedCounts(2, 0, blank=1), LandedCounts(0, 0), LandedCounts(0, 0, blank=2),
        LandedCounts(0, 0, duplicates=1), LandedCounts(1, 0),
    ]  # fmt: skip
