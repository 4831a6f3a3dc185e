"""Read the files of the next epoch while Structured Streaming prepares the micro-batch that will name them.

A micro-batch takes about a tenth of a second to prepare, and its epoch another to land. In this time a backlog's next
files can be read, because their names can be foreseen: Spark reads the files of a folder in the order of their
modification times. A forecast decides nothing. Its records are used only if the micro-batch names exactly the foreseen
files, in this order, and if none of them has changed since. Otherwise the epoch is read as if there were no forecast.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from heapq import nsmallest
from threading import Event

import pyarrow as pa

from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.folders.folder_changes import can_list, list_files, plain_name
from tailrace.ingest.plain_files import read_plain
from tailrace.ingest.room import Room, TooLargeError
from tailrace.ingest.sources import Files, FileState, Source, file_states
from tailrace.model.logs.log import Log

_NAMES = 10_000
"""The maximum number of names of files that a forecast keeps."""

_SHARE = 20
"""The minimum time between two listings of a folder, as a multiple of the time that the last listing took."""

_MOST_MISSES = 6
"""The number of wrong forecasts in a row after which the pause between two forecasts no longer doubles."""


@dataclass(frozen=True)
class ReadFiles:
    """The records of files that were read ahead, with the state of each file before it was read."""

    states: Sequence[FileState]
    records: pa.Table
    blank: int


class ReadAhead:
    """The reader of the files that the next epoch of a log will probably read.

    At most one epoch is read ahead. Its files and its records may each take `limit` bytes; larger epochs are not read
    ahead. After a wrong forecast, there is no forecast for some epochs; their number doubles with each wrong forecast.
    """

    def __init__(self, source: Files, log: Log, limit: int, pool: Executor | None = None) -> None:
        self._source, self._log, self._limit = source, log, limit
        self._waiting = deque[str]()
        self._foreseen: list[str] = []
        self._reading: Future[ReadFiles | None] | None = None
        self._listing: Future[list[str]] | None = None
        self._stopped = Event()
        self._may_list = 0.0
        self._misses = self._pause = 0
        # One thread lists the folder and reads its files.
        self._pool = pool or ThreadPoolExecutor(1, thread_name_prefix="read ahead")

    @classmethod
    def of(cls, source: Source, log: Log, limit: int) -> ReadAhead | None:
        """Return the reader for a source, or None if the files of its epochs cannot be foreseen.

        They can be foreseen if the source is a folder that this process can list, and if an epoch has a maximum number
        of files.
        """
        if not isinstance(source, Files) or not source.per_epoch or not can_list(source.folder):
            return None
        return cls(source, log, limit)

    def begin(self, files: Sequence[str]) -> None:
        """Start to read the files that will probably follow `files`, the files of the latest epoch."""
        self._stop()
        if not files or not self._source.full(len(files), 0):
            return
        if self._pause:
            self._pause -= 1
            return
        self._foreseen = self._following(files)
        if self._foreseen:
            self._stopped.clear()
            self._reading = self._pool.submit(self._read, self._foreseen)

    def take(self, files: Sequence[str], states: Callable[[], Sequence[FileState]]) -> ReadFiles | None:
        """Return the records of an epoch's files, or None if they were not read ahead, or have changed since.

        If the files are still being read, the call waits. `states` looks up the present states of the files.
        """
        if self._reading is None:
            return None
        if self._foreseen != list(files):
            self._misses = min(self._misses + 1, _MOST_MISSES)
            self._pause = 2**self._misses
            self._waiting.clear()
            self._stop()
            return None
        self._misses = 0
        reading, self._reading = self._reading, None
        read = reading.result()
        return read if read is not None and list(read.states) == list(states()) else None

    def close(self) -> None:
        """Stop reading, and end the thread."""
        self._stop()
        self._pool.shutdown()

    def _stop(self) -> None:
        """Stop the reading that is in progress, and wait for its end, so that its memory is free."""
        reading, self._reading = self._reading, None
        if reading is not None:
            self._stopped.set()
            reading.result()

    def _following(self, files: Sequence[str]) -> list[str]:
        """Return the files that will probably follow `files`; the list is empty if this is unknown.

        If it is unknown, a listing of the folder is started, so that it is known for one of the next epochs.
        """
        if self._listing is not None and self._listing.done():
            self._waiting, self._listing = deque(self._listing.result()), None
        last, most = plain_name(files[-1]), self._source.per_epoch or 0
        while self._waiting and self._waiting[0] != last:
            self._waiting.popleft()
        if len(self._waiting) <= most:
            if self._listing is None and time.monotonic() >= self._may_list:
                self._listing = self._pool.submit(self._listed, last)
            return []
        self._waiting.popleft()
        scheme = files[-1].removesuffix(last)
        return [scheme + self._waiting[number] for number in range(most)]

    def _listed(self, last: str) -> list[str]:
        """List the names of the file `last` and of the files that Spark will read after it, in Spark's order."""
        since = time.monotonic()
        try:
            times = list_files(self._source.folder).times
        except (OSError, pa.ArrowException):
            return []
        finally:
            now = time.monotonic()
            self._may_list = now + _SHARE * (now - since)
        if last not in times:
            return []
        later = (name for name, written in times.items() if written >= times[last] and name != last)
        return [last, *nsmallest(_NAMES, later, key=lambda name: (times[name], name))]

    def _read(self, files: Sequence[str]) -> ReadFiles | None:
        """Read files; return None if their epoch is too large to be read ahead, or if they cannot be read here."""
        try:
            states = file_states(files)
            sizes = {name: state.size for name, state in zip(files, states, strict=True)}
            if sum(sizes.values()) > self._limit:
                return None
            blank = BlankLines()
            room = _StoppableRoom(self._limit, sizes, stopped=self._stopped)
            records = read_plain(self._log, self._source.format, files, blank, room)
            return None if records is None else ReadFiles(states, records, blank.here)
        except Exception:
            # Whatever is wrong with a file, the epoch's own reading meets it again, and reports it.
            return None


@dataclass
class _StoppableRoom(Room):
    """The room for an epoch that is read ahead; there is none left once the reading is stopped."""

    stopped: Event = field(default_factory=Event)

    def take(self, records: int, of_files: int = 0) -> None:
        """Count memory as `Room` does. Raises `TooLargeError` also if the reading was stopped."""
        if self.stopped.is_set():
            raise TooLargeError("the files were not the next ones")
        super().take(records, of_files)
