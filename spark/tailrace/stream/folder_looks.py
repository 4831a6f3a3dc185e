"""Check a stream's landing folders regularly, and report files that the stream does not read (X6).

A check lists a folder and reads all of Spark's log of files, so checks are rare. The first check is made when the
stream starts. After that, checks take at most a hundredth of the stream's running time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError

from tailrace.ingest.checkpoint import Checkpoint, CheckpointError
from tailrace.ingest.folders.folder_changes import can_list, find_changes, list_files, plain_name
from tailrace.ingest.sources import Files, Source
from tailrace.lake.catalog.events import UNREAD, FolderChecked
from tailrace.lake.commit.epoch_properties import FOLDER
from tailrace.model.logs.log import Log

_APART = 30.0
"""The minimum number of seconds between two checks of local folders."""

_APART_IN_S3 = 600.0
_SHARE = 100
"""The minimum time between two checks, as a multiple of the time that the last check took."""


class FolderLooks:
    """The checks of a stream's folders, which run in a separate thread. `tell` is called once for each new finding.

    The commits of the logs record how many changed, moved and hidden files the latest check found.
    """

    def __init__(
        self, logs: Mapping[str, Log], sources: Mapping[str, Source], tell: Callable[[FolderChecked], None]
    ) -> None:
        self._logs, self._tell = logs, tell
        self._folders = {
            name: source.folder
            for name, source in sources.items()
            if isinstance(source, Files) and can_list(source.folder)
        }
        self._found: dict[str, FolderChecked] = {}
        self._named: dict[str, set[str]] = {name: set() for name in self._folders}
        self._ended, self._looked = Event(), Event()
        self._checkpoint: Checkpoint | None = None
        self._places: dict[str, int] = {}
        self._thread: Thread | None = None

    def begin(self, checkpoint: Checkpoint, active: Sequence[str]) -> None:
        """Start to check the folders of the active logs; `active` must have the same order as the query's sources.

        The checks are repeated until the stream ends.
        """
        self._checkpoint = checkpoint
        self._places = {name: place for place, name in enumerate(active) if name in self._folders}
        if self._folders and self._thread is None:
            self._thread = Thread(target=self._run, name="folder looks", daemon=True)
            self._thread.start()

    def settle(self) -> None:
        """Wait until each folder has been checked at least once."""
        if self._thread is not None:
            self._looked.wait()

    def close(self) -> None:
        """Stop the checks; a check that has started is finished first."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def properties(self, log: str) -> dict[str, str]:
        """Return the commit property with the numbers of unread files for a log.

        If all numbers are zero, the dict is empty.
        """
        found = self._found.get(log)
        return {} if found is None or not found.counts else {FOLDER: json.dumps(found.counts)}

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                since, apart = time.monotonic(), _APART
                for name, place in self._places.items():
                    # Errors are ignored here: if a folder cannot be listed or read, the query itself fails and reports
                    # the reason.
                    with suppress(OSError, pa.ArrowException, CheckpointError, Py4JError, Py4JJavaError):
                        self._look(name, place)
                    apart = max(apart, _APART_IN_S3 if "://" in self._folders[name].removeprefix("file://") else 0.0)
                self._looked.set()
                self._ended.wait(max(apart, _SHARE * (time.monotonic() - since)))
        finally:
            # A stream that ends after reading all of its source waits for this event, so the event is set even if the
            # checks failed.
            self._looked.set()

    def _look(self, name: str, place: int) -> None:
        assert self._checkpoint is not None
        there = list_files(self._folders[name])
        read = {plain_name(path): written for path, written in self._checkpoint.times(place).items()}
        found, named = find_changes(read, there.times), self._named[name]
        # If records have ids, ignore moved files: a moved file is read again, but its records are dropped as
        # duplicates.
        moved = () if self._logs[name].id_columns else found.moved
        counts = dict(zip(UNREAD, (len(found.changed), len(moved), there.hidden), strict=True))
        news = FolderChecked(
            name,
            tuple(file for file in found.changed if file not in named),
            tuple(pair for pair in moved if pair[1] not in named),
            {what: number for what, number in counts.items() if number},
        )
        before = self._found.get(name)
        named.update(news.changed, (now for _, now in news.moved))
        self._found[name] = news
        if news.changed or news.moved or (before.counts if before is not None else {}) != news.counts:
            self._tell(news)
