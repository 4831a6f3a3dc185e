"""A stream of several logs: one cut over all of them, landed in each, folded as one (rules T3, X1 to X3)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tailrace import (
    AfterCount,
    AfterWatermark,
    BoundedDisorder,
    Count,
    Fixed,
    Log,
    Pipeline,
    Sum,
    Union,
    minutes,
    seconds,
)
from tailrace.fold.streamed_definitions import StreamError
from tailrace.ingest import plain_files
from tailrace.ingest.folders import unreadable_files
from tailrace.ingest.sources import Files, Format, Kafka, SourceError
from tailrace.lake.catalog.events import Notice, SourceBack, SourceLost
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.definition.definition import Definition
from tailrace.settings import Settings
from tailrace.stream import lost_sources
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.stream.log_sources import unreachable
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.depth import deep

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
VIEWS = Log(name="views", columns={"at": "timestamp", "ad": "string"}, event_time="at", disorder=seconds(5))
CLICKS = Log(
    name="clicks", columns={"at": "timestamp", "ad": "string", "cents": "bigint"}, event_time="at", disorder=seconds(5)
)
BOTH = Union(name="ads", of=(VIEWS, CLICKS))
COUNTED = Pipeline(
    name="counted",
    log=BOTH,
    key=("ad", "log"),
    what={"records": Count(), "cents": Sum("cents")},
    where=Fixed(minutes(1)),
    when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
    allowed_lateness=minutes(1),
)


@dataclass
class Place:
    """A lake, and a folder for each log where files land, one an epoch."""

    spark: SparkSession
    settings: Settings
    folder: Path
    reports: list[EpochReport] = field(default_factory=list)
    told: list[Notice] = field(default_factory=list)
    formats: dict[str, Format] = field(default_factory=dict)
    _files: int = 0

    def __post_init__(self) -> None:
        for log in ("views", "clicks"):
            (self.folder / log).mkdir(parents=True)

    @property
    def lake(self) -> Lake:
        return Lake(self.settings, self.told.append)

    def land(self, log: str, *records: Mapping[str, Any]) -> None:
        self._files += 1
        path = self.folder / log / f"{self._files:05}.json"
        path.write_text("".join(json.dumps(dict(one)) + "\n" for one in records))
        os.utime(path, (1_700_000_000 + self._files, 1_700_000_000 + self._files))

    def stream(self, definitions: Sequence[Definition], *logs: str) -> Stream:
        named = logs or ("views", "clicks")
        sources = {log: Files(str(self.folder / log), self.formats.get(log, "json"), 1) for log in named}
        return Stream(self.spark, self.lake, definitions, sources, watch=self.reports.append)

    def drain(self, definitions: Sequence[Definition], *logs: str) -> Stream:
        stream = self.stream(definitions, *logs)
        stream.start(once=True)
        stream.wait()
        stream.close()
        return stream

    def counts(self) -> tuple[int, int, int]:
        """The number of records in each log, and of those rejected."""
        names = ("views", "clicks", "views__rejected", "clicks__rejected")
        views, clicks, *rejected = (self.lake.table(name).scan().count() for name in names)
        return views, clicks, sum(rejected)

    def answers(self, table: str = "counted") -> set[tuple[Any, ...]]:
        rows = self.lake.table(table).scan().to_arrow().to_pylist()
        return {(one["ad"], one["log"], one["window_start"], one["records"], one["cents"]) for one in rows}


@pytest.fixture
def place(plain: SparkSession, settings: Settings, tmp_path: Path) -> Place:
    return Place(plain, settings, tmp_path / "landing")


def at(second: int) -> str:
    return (BEGAN + timedelta(seconds=second)).isoformat()


def test_X2_T3_a_definition_over_two_logs_is_folded_at_the_lesser_watermark(place: Place) -> None:
    place.land("views", {"at": at(1), "ad": "a"}, {"at": at(200), "ad": "b"})
    place.land("clicks", {"at": at(2), "ad": "a", "cents": 5}, {"at": at(50), "ad": "a", "cents": 7})
    place.drain([COUNTED])
    ours = place.lake.head("counted__ledger")
    assert [place.lake.head(log).number("epoch") for log in ("views", "clicks")] == [0, 0]
    assert ours.number("watermark") == place.lake.head("clicks").number("watermark")
    place.land("clicks", {"at": at(400), "ad": "a", "cents": 1})
    place.drain([COUNTED])
    assert place.lake.head("counted__ledger").number("watermark") == place.lake.head("views").number("watermark")
    assert place.answers() >= {("a", "views", BEGAN, 1, None), ("a", "clicks", BEGAN, 2, 12)}
    assert audit(place.lake, COUNTED).ok


def everything(place: Place) -> tuple[int, int, int]:
    """The number of records in each log, and of those rejected."""
    counts = [
        place.lake.table(name).scan().count() for name in ("views", "clicks", "views__rejected", "clicks__rejected")
    ]
    return counts[0], counts[1], counts[2] + counts[3]


@pytest.mark.parametrize("died_before", ["views__rejected", "views"])
def test_X2_a_stream_that_dies_between_the_commits_of_two_logs_loses_and_doubles_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, died_before: str
) -> None:
    place.land("views", {"at": at(1), "ad": "a"})
    place.land("clicks", {"at": at(2), "ad": "a", "cents": 5})
    place.drain([COUNTED])
    place.land("views", {"at": at(3), "ad": "a"}, {"at": "never", "ad": "b"})
    place.land("clicks", {"at": at(4), "ad": "a", "cents": 7})
    change = Lake.change

    def dies(lake: Lake, table: str, *given: Any, **more: Any) -> int:
        if table == died_before:
            raise OSError("no power")
        return change(lake, table, *given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "change", dies)
        with pytest.raises((OSError, StreamError)):
            place.drain([COUNTED])
    assert [place.lake.head(log).number("epoch") for log in ("clicks", "views")] == [1, 0]
    place.land("views", {"at": at(200), "ad": "a"})
    place.land("clicks", {"at": at(200), "ad": "a", "cents": 1})
    stream = place.drain([COUNTED])
    assert stream.mended == "says otherwise than the log what was read"
    assert place.counts() == (3, 3, 1)
    assert place.answers() >= {("a", "views", BEGAN, 2, None), ("a", "clicks", BEGAN, 2, 12)}
    found = audit(place.lake, COUNTED)
    assert found.ok, [check for check in found.checks if not check.ok]
    assert replay(place.lake, COUNTED).ok


def test_X2_logs_that_were_landed_apart_go_on_together_and_apart_again(place: Place) -> None:
    clicks = replace(COUNTED, name="of_clicks", log=CLICKS, key="ad", what={"n": Count(), "cents": Sum("cents")})
    for second in (1, 20, 90):
        place.land("clicks", {"at": at(second), "ad": "a", "cents": 1})
    place.drain([clicks], "clicks")
    assert place.lake.head("clicks").number("epoch") == 2
    place.land("views", {"at": at(5), "ad": "a"})
    place.land("clicks", {"at": at(30), "ad": "a", "cents": 1})
    assert place.drain([COUNTED, clicks]).mended == "is that of a stream of 1 log, and this one reads 2"
    tables = ("views", "clicks", "counted__ledger", "of_clicks__ledger")
    ends = [place.lake.head(name).number("epoch") for name in tables]
    assert ends == [3, 3, 3, 3]
    place.land("clicks", {"at": at(31), "ad": "a", "cents": 1})
    assert place.drain([clicks], "clicks").mended == "is that of a stream of 2 logs, and this one reads 1"
    place.land("views", {"at": at(300), "ad": "a"})
    place.land("clicks", {"at": at(300), "ad": "a", "cents": 1})
    place.drain([COUNTED, clicks])
    assert place.counts() == (2, 6, 0)
    assert ("a", "clicks", BEGAN, 4, 4) in place.answers()
    for definition in (COUNTED, clicks):
        found = audit(place.lake, definition)
        assert found.ok, [check for check in found.checks if not check.ok]
        assert replay(place.lake, definition).ok


@deep
def test_X2_on_spark_an_epoch_may_have_nothing_of_one_of_the_logs(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    place = Place(plain, settings.model_copy(update={"engine": "spark"}), tmp_path / "landing")
    counted = replace(COUNTED, log=replace(BOTH, of=(VIEWS, replace(CLICKS, record_id=("at", "ad")))))
    for log, second in (("views", 1), ("clicks", 2), ("clicks", 3)):
        place.land(log, {"at": at(second), "ad": "a"} | ({"cents": 5} if log == "clicks" else {}))
    place.drain([counted])
    for second in (20, 200):
        place.land("views", {"at": at(second), "ad": "a"})
    place.land("clicks", {"at": at(3), "ad": "a", "cents": 5}, {"at": at(200), "ad": "a", "cents": 7})
    place.drain([counted])
    assert [place.lake.head(log).number("epoch") for log in ("views", "clicks")] == [3, 3]
    assert everything(place) == (3, 3, 0)
    assert place.answers() >= {("a", "views", BEGAN, 2, None), ("a", "clicks", BEGAN, 2, 10)}
    assert audit(place.lake, counted).ok


def test_T3_a_folder_without_a_file_is_waited_for_until_it_is_idle(place: Place) -> None:
    idle = replace(VIEWS, disorder=seconds(0), watermark=BoundedDisorder(seconds(5), idle=seconds(1)))
    counted = replace(COUNTED, log=Union(name="ads", of=(idle, CLICKS)))
    place.land("clicks", {"at": at(2), "ad": "a", "cents": 5}, {"at": at(90), "ad": "a", "cents": 7})
    stream = place.stream([counted])
    stream.start()
    passed = instant(BEGAN + timedelta(seconds=85))
    while not any(one.folded["counted"].clock.watermark == passed for one in place.reports):
        stream.wait(0.3)
    stream.stop()
    stream.close()
    first = place.reports[0]
    assert first.folded["counted"].clock.watermark == BEGINNING
    assert (first.progress is not None and first.progress.behind) == ("views",)
    assert ("a", "clicks", BEGAN, 1, 5) in place.answers()


def test_each_log_has_one_source_and_each_source_a_log(place: Place) -> None:
    one, other = (Files(str(place.folder / log), "json", 1) for log in ("views", "clicks"))
    for given, said in (
        (one, "the definitions read 2 logs, clicks, views: name the log of each source"),
        ({"views": one}, "log clicks, which counted reads, has no source"),
        ({"views": one, "clicks": other, "more": other}, "no definition reads a log more"),
        ({"views": one, "clicks": one}, "is given for two logs"),
    ):
        with pytest.raises(StreamError, match=said):
            Stream(place.spark, place.lake, [COUNTED], given)
    changed = replace(COUNTED, name="other", log=replace(VIEWS, disorder=seconds(9)), key="ad", what={"n": Count()})
    with pytest.raises(StreamError, match="declare the log views in two ways"):
        place.stream([COUNTED, changed])


def test_X2_a_stream_goes_on_without_a_source_that_fails_and_reads_it_on_once_it_is_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.settings, place.formats["views"] = goes_on(place.settings), "parquet"
    monkeypatch.setattr(lost_sources, "RETRY", 1.0)
    viewed(place, 1)
    place.land("clicks", {"at": at(2), "ad": "a", "cents": 5})
    stream = place.stream([COUNTED])
    stream.start()
    until(stream, lambda: place.counts() == (1, 1, 0))
    with damaged(place.folder / "views" / "00099.parquet"):
        until(stream, lambda: stream.cutter.active == ("clicks",))
        place.land("clicks", {"at": at(3), "ad": "a", "cents": 7})
        until(stream, lambda: place.counts() == (1, 2, 0))
        # The log whose source is not read has the epoch, too.
        until(stream, lambda: len({place.lake.head(log).number("epoch") for log in ("clicks", "views")}) == 1)
    viewed(place, 4)
    until(stream, lambda: place.counts()[0] >= 2)
    place.land("clicks", {"at": at(200), "ad": "a", "cents": 1})
    until(stream, lambda: place.counts()[1] == 3)
    stream.stop()
    stream.close()
    told = [type(one).__name__ for one in place.told if isinstance(one, SourceLost | SourceBack)]
    assert (told[:2], told[-1]) == (["SourceLost", "SourceBack"], "SourceBack")
    place.drain([COUNTED])
    # The file that could not be read is gone: in the log it is one rejected record, once it was in an epoch.
    assert place.counts() in ((2, 3, 0), (2, 3, 1))
    found = audit(place.lake, COUNTED)
    assert found.ok, [check for check in found.checks if not check.ok]


@pytest.mark.parametrize("source_failure", ["stop", "go_on"])
def test_a_stream_that_drains_its_sources_says_which_one_it_could_not_read(place: Place, source_failure: str) -> None:
    place.settings = place.settings.model_copy(update={"source_failure": source_failure})
    place.formats["views"] = "parquet"
    place.land("clicks", {"at": at(2), "ad": "a", "cents": 5})
    with damaged(place.folder / "views" / "00099.parquet"):
        with pytest.raises((StreamError, SourceError), match=r"log views cannot be read from parquet files"):
            place.drain([COUNTED])
        there = place.lake.table("clicks").scan().count()
        assert there == (1 if source_failure == "go_on" else 0)
    viewed(place, 1)
    place.drain([COUNTED])
    assert place.counts()[:2] == (1, 1)


def goes_on(settings: Settings) -> Settings:
    return settings.model_copy(update={"source_failure": "go_on"})


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """A file whose end says what it is, on a disk that does not give its inside."""
    table = pa.table({"at": [BEGAN] * 5000, "ad": [f"ad {number}" for number in range(5000)]}, schema=VIEWED)
    pq.write_table(table, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 2000 + whole[2004:])

    def fails(file: str) -> str:
        raise SourceError(f"{file} cannot be read: [Errno 5] Input/output error")

    with pytest.MonkeyPatch.context() as patch:
        # A disk cannot be broken here; the file is, and that it is the disk's fault is what reading its bytes says.
        for module in (unreadable_files, plain_files):
            patch.setattr(module, "raw_fault", fails)
        yield
    path.unlink()


VIEWED = pa.schema([("at", pa.timestamp("us", "UTC")), ("ad", pa.string())])


def viewed(place: Place, second: int) -> None:
    table = pa.table({"at": [BEGAN + timedelta(seconds=second)], "ad": ["a"]}, schema=VIEWED)
    pq.write_table(table, place.folder / "views" / f"{second:05}.parquet")


def test_a_broker_that_does_not_answer_is_found_in_seconds(plain: SparkSession) -> None:
    found = unreachable(plain, Kafka("topic", "127.0.0.1:9"))
    assert found is not None
    assert found.startswith("Kafka topic topic cannot be reached: ")


def until(stream: Stream, there: Callable[[], bool]) -> None:
    """Let a stream run until something is there."""
    ends = time.monotonic() + 60
    while not there():
        assert time.monotonic() < ends, "it did not come in a minute"
        stream.wait(0.2)
