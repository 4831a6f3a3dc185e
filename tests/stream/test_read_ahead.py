"""The files of the next epoch are read ahead only where nobody can tell from the records."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import Count, Fixed, Log, Pipeline, minutes
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.plain_files import read_plain
from tailrace.ingest.room import Room, TooLargeError
from tailrace.ingest.sources import Files, FileState, file_states
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tailrace.stream import read_ahead
from tailrace.stream.landing_stream import Stream
from tailrace.stream.read_ahead import ReadAhead, ReadFiles
from tests.support.engines.sessions import session

LOG = Log(name="beats", columns={"id": "bigint", "at": "timestamp"}, event_time="at")
BEATS = Pipeline(name="beats_a_minute", log=LOG, key=(), what={"beats": Count()}, where=Fixed(minutes(1)))
ROOM = 2**20
RECORD = '{{"id": {0}, "at": "2026-01-01T12:{1:02}:00Z"}}\n'.format


def write(folder: Path, number: int, records: int, name: str = "") -> str:
    """Write a file of records, the `number`th in the order of time; every third one has a blank line and is packed."""
    file = folder / (name or f"{number:03}.json{'.gz' if number % 3 == 2 else ''}")
    text = "".join(RECORD(number, one % 60) for one in range(records)) + "\n" * (number % 3 == 2)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    os.utime(file, ns=((1_700_000_000 + number) * 10**9,) * 2)
    return f"file:{file}"


class Inline(Executor):
    """Calls a function where a thread would."""

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        found = Future[Any]()
        found.set_result(call(*given, **named))
        return found


def reader(folder: Path, per_epoch: int, limit: int = ROOM) -> ReadAhead:
    return ReadAhead(Files(str(folder), "json", per_epoch), LOG, limit, Inline())


def take(ahead: ReadAhead, before: Sequence[str], files: Sequence[str]) -> ReadFiles | None:
    """Read ahead after the epoch of the files `before`, and take the epoch of `files`."""
    ahead.begin(before)
    return ahead.take(files, lambda: file_states(files))


@given(st.lists(st.integers(0, 5), min_size=3, max_size=14), st.integers(1, 3))
def test_records_that_were_read_ahead_are_the_records_that_the_epoch_would_read(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], per_epoch: int
) -> None:
    folder = tmp_path_factory.mktemp("landing")
    files = [write(folder, number, size) for number, size in enumerate(sizes)]
    epochs = [files[first : first + per_epoch] for first in range(0, len(files), per_epoch)]
    ahead, found = reader(folder, per_epoch), 0
    for before, epoch in pairwise(epochs):
        read = take(ahead, before, epoch)
        if read is not None:
            blank, found = BlankLines(), found + 1
            assert read.records.equals(read_plain(LOG, "json", epoch, blank))
            assert read.blank == blank.here
    # In the first epoch the folder is listed, and the last epoch may have fewer files than the others.
    assert found >= len(epochs) - 3


def test_files_that_are_not_the_foreseen_ones_are_not_taken_and_forecasts_pause(tmp_path: Path) -> None:
    files = [write(tmp_path, number, 2) for number in range(12)]
    ahead = reader(tmp_path, 1)
    assert take(ahead, files[:1], files[1:2]) is None, "the folder was listed"
    assert take(ahead, files[1:2], files[2:3]) is not None
    late = write(tmp_path, 2, 5, "late.json")
    assert take(ahead, files[2:3], [late]) is None, "a file that came after the listing is read first"
    taken = [take(ahead, files[number : number + 1], files[number + 1 : number + 2]) for number in range(3, 9)]
    assert [one is not None for one in taken] == [False, False, False, True, True, True]


def _append(file: Path) -> None:
    with file.open("a") as more:
        more.write(RECORD(9, 9))


def _rewrite(file: Path) -> None:
    file.write_text(file.read_text().replace("12:00", "13:00"))


@pytest.mark.parametrize("change", [_append, _rewrite, Path.unlink, lambda file: os.utime(file)])
def test_a_file_that_changes_after_it_was_read_ahead_is_read_again(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    files = [write(tmp_path, number, 2) for number in range(6)]
    ahead = reader(tmp_path, 1)
    ahead.begin(files[1:2])
    ahead.begin(files[2:3])
    change(Path(files[3].removeprefix("file:")))
    assert ahead.take(files[3:4], lambda: file_states(files[3:4])) is None
    assert take(ahead, files[3:4], files[4:5]) is not None, "the forecast itself was right"


def test_an_epoch_that_is_too_large_or_needs_spark_is_not_read_ahead(tmp_path: Path) -> None:
    files = [write(tmp_path, number, 2) for number in range(5)]
    damaged = Path(write(tmp_path, 2, 3).removeprefix("file:"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    os.utime(damaged, ns=((1_700_000_002) * 10**9,) * 2)
    ahead, narrow = reader(tmp_path, 1), reader(tmp_path, 1, 100)
    for one in (ahead, narrow):
        assert take(one, files[:1], files[1:2]) is None, "the folder was listed"
    assert take(ahead, files[1:2], files[2:3]) is None, "a file that is cut off"
    assert take(ahead, files[2:3], files[3:4]) is not None
    assert take(narrow, files[2:3], files[3:4]) is None, "130 bytes of 100"


def test_a_reading_of_the_wrong_files_stops_before_the_epoch_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called when a forecast is wrong while its files are still being read: their memory is free at once."""
    files = [write(tmp_path, number, 2) for number in range(5)]
    reading, seen = Event(), list[bool]()

    def slow(log: Log, format: str, paths: Sequence[str], blank: BlankLines, room: Room) -> pa.Table:
        reading.set()
        while True:
            try:
                room.take(1)
            except TooLargeError:
                seen.append(True)
                raise
            time.sleep(0.001)

    ahead = ReadAhead(Files(str(tmp_path), "json", 1), LOG, ROOM)
    while not reading.is_set():
        monkeypatch.setattr(read_ahead, "read_plain", slow)
        ahead.begin(files[:1])
        time.sleep(0.01)
    assert ahead.take(files[3:4], lambda: file_states(files[3:4])) is None
    assert seen == [True]
    ahead.close()


def test_a_backlog_is_read_ahead_and_landed_as_it_is_without(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L1: the log, the ledger and the answers have the same rows, whether files were read ahead or not."""
    folder, ahead = tmp_path / "landing", list[bool]()
    folder.mkdir()
    for number in range(14):
        write(folder, number, 1 + number)
    usual = ReadAhead.take

    def counted(reader: ReadAhead, files: Sequence[str], states: Callable[[], Sequence[FileState]]) -> ReadFiles | None:
        found = usual(reader, files, states)
        ahead.append(found is not None)
        return found

    monkeypatch.setattr(ReadAhead, "take", counted)
    lakes = []
    for read in (True, False):
        if not read:
            monkeypatch.setattr(ReadAhead, "of", lambda *_: None)
        own = settings.model_copy(update={"warehouse": tmp_path / f"lake_{read}"})
        stream = Stream(session(own), Lake(own), [BEATS], Files(str(folder), "json", 2))
        stream.start(once=True)
        stream.wait()
        stream.close()
        lakes.append(Lake(own))
    assert sum(ahead) >= 3, "of seven epochs, some wait for the listing, and the rest is read ahead"
    for table, columns in COMPARED.items():
        one, other = (
            sorted(map(repr, lake.table(table).scan(selected_fields=columns).to_arrow().to_pylist())) for lake in lakes
        )
        assert one == other
        assert one


COMPARED = {
    LOG.name: ("id", "at", "_source", "_offset", "_arrival", "_epoch"),
    "beats_a_minute__ledger": ("window_start", "source_epoch", "beats"),
    BEATS.name: ("window_start", "window_end", "beats"),
}
