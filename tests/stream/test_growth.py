"""What an epoch, the answers after it, a backfill of a day and a reader of a key read does not grow with the tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.backfill.backfill import backfill
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.lake.schema.filters import after, equal, every, up_to
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import moment
from tailrace.operate import maintenance
from tailrace.operate.maintenance import maintain
from tailrace.settings import Settings
from tailrace.trace.key_history import history
from tests.support.engines.spark_runs import arrow_bundle
from tests.support.lakes.recorded_ledgers import land, no_spark
from tests.support.lakes.rides import HOURLY, RIDES
from tests.support.tools import need_times_of_access

FIRST = 20_454
"""The first day, in days since 1970."""

FEW, SOME, MANY = 3, 30, 300
"""Days of which there are records."""

AT_ONCE = 100
"""The maximum number of days that come in one epoch, where no one looks at the days' files."""

DAY, HOUR, MINUTE = 86_400_000_000, 3_600_000_000, 60_000_000
TABLES = ("rides", "hourly__ledger", "hourly")
SECOND_DAY = (FIRST + 1) * DAY


Found = dict[str, tuple[int, int]]


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
    def found(self) -> Found:
        """Of each table how many files and bytes."""
        read = {table: [file for file in files if file.stat().st_atime > 0] for table, files in self.files.items()}
        return {table: (len(files), sum(file.stat().st_size for file in files)) for table, files in read.items()}


@dataclass
class Stream:
    """Four rides an hour of two people, as a stream lands and folds them: the second day and later ones in thirds."""

    lake: Lake
    epoch: int = -1
    group: FoldGroup = field(init=False)

    def __post_init__(self) -> None:
        for contract in (log_contract(RIDES), rejected_contract(RIDES)):
            self.lake.ensure(contract, {"epoch": "-1"})
        self.group = FoldGroup(no_spark, self.lake, [HOURLY], follow_every=1)

    def days(self, count: int) -> None:
        self.hours(0, 24)
        self.day(1)
        for first in range(2, count - 1, AT_ONCE):
            self.hours(24 * first, 24 * min(first + AT_ONCE, count - 1))
        self.day(count - 1)

    def day(self, number: int) -> None:
        for third in range(3):
            self.hours(24 * number + 8 * third, 24 * number + 8 * (third + 1))

    def hours(self, first: int, last: int) -> None:
        """An epoch of these hours since the first day began."""
        start = FIRST * DAY
        times = [start + hour * HOUR + minute * MINUTE for hour in range(first, last) for minute in (1, 2)]
        rows = [
            {"who": who, "cents": place, "day": moment(at), "seen": moment(at)}
            for place, at in enumerate(times)
            for who in ("ann", "zoe")
        ]
        self.epoch += 1
        end = start + last * HOUR
        land(self.lake, "rides", arrow_bundle(RIDES, rows, self.epoch), Clock(self.epoch, end - 10 * MINUTE, end))
        list(self.group.missed_epochs(self.epoch))
        self.group.follow()
        self.group.settle()
        assert self.lake.head("hourly").number("epoch") == self.epoch


def reads(stream: Stream, next_day: int) -> Iterator[tuple[str, Found]]:
    """What is read by an epoch of the next day with the answers after it, and of the second day by others."""

    def measured(work: Callable[[], None]) -> Found:
        seen = Reads(stream.lake)
        work()
        return seen.found

    def again() -> None:
        (done,) = backfill(stream.lake, HOURLY, SECOND_DAY, SECOND_DAY + DAY, reason="a day")
        assert (done.changed, done.untouched) == (0, 48)

    def asked() -> None:
        found = history(stream.lake, HOURLY, ("ann",), SECOND_DAY + 5 * HOUR)
        assert [(pane.timing, pane.values["n"]) for pane in found.panes if not pane.retraction] == [
            ("early", 2), ("on_time", 2)
        ]  # fmt: skip

    def queried() -> None:
        where = every(equal("who", "zoe"), after("window_end", SECOND_DAY), up_to("window_end", SECOND_DAY + DAY))
        rows: pa.Table = stream.lake.table("hourly").scan(row_filter=where).to_arrow()
        assert rows.num_rows == 24

    yield "epoch", measured(lambda: stream.hours(24 * next_day, 24 * next_day + 8))
    yield "backfill", measured(again)
    yield "key", measured(asked)
    yield "query", measured(queried)


def of_days(settings: Settings, size: int) -> dict[tuple[str, str], Found]:
    """What is read of tables of so many days, before and after maintenance."""
    lake = Lake(settings.model_copy(update={"namespace": f"of_{size}", "engine": "duckdb", "small_files": 0}))
    stream = Stream(lake)
    stream.days(size)
    found = {("before", doing): read for doing, read in reads(stream, size)}
    done = {one.table: one.rewritten for one in maintain(no_spark, lake, HOURLY).tables}
    assert "data files" in done["rides"]
    assert "data files" in done["hourly__ledger"]
    found |= {("after", doing): read for doing, read in reads(stream, size + 1)}
    stream.group.close()
    return found


def test_what_is_read_does_not_grow_with_the_tables(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_times_of_access(tmp_path)
    # A day has three files here, and maintenance is to take those together.
    monkeypatch.setattr(maintenance, "TOGETHER", 3)
    monkeypatch.setattr("tailrace.lake.upkeep.needs.TOGETHER", 3)
    few, *more = (of_days(settings, size) for size in (FEW, SOME, MANY))
    for many in more:
        for doing, read in many.items():
            for table, (files, size) in read.items():
                assert files <= few[doing][table][0], (doing, table, few, many)
                assert size <= 1.1 * few[doing][table][1], (doing, table, few, many)
    # The answers of the last window are brought up by the epoch after it.
    assert few["after", "epoch"]["hourly"][0] == few["after", "backfill"]["rides"][0] == 1
