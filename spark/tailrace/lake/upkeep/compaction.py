"""A stream writes its own recent files together between two epochs, without Spark and beside the epochs (rule X3).

An epoch adds a small file to each partition that it touches. Once a partition has so many of about one size, they are
read, sorted by the table's order and written as one. Sizes count in levels: files of one level make a file of the next,
so a row is written again once a level, and not each time that a file is added: 20 files of 20 rows make one of 400,
and 20 of those one of 8,000. Files of more rows than that are left to maintenance.

Another thread reads and writes; the exchange is committed on the stream's own, between two epochs of the table, where
no commit of an epoch is on its way. So an epoch finds its table as it left it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table

from tailrace.lake.catalog.events import Compacted, NotCompacted
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.lease import Lease
from tailrace.lake.schema.lake_errors import FencedError, LentError
from tailrace.lake.upkeep.rewriting import LARGE, Together, cut, deletes, exchanged, partition_of, rewritten

MOST_ROWS = 2_500
"""The rows from which on a file is large enough for a stream to leave it as it is.

To read, sort and write a row again takes 1 to 3 µs, about as long as to land and fold it, and an epoch of a few rows
takes 100 ms or more. So where an epoch brings few rows, writing them together is next to nothing; where it brings many,
it would be a good part of the epoch, and their files are large already.
"""

MOST_BYTES = 1024 * 1024
"""The bytes from which on a file is large enough for a stream to leave it as it is, however few rows they are."""

MOST_ENTRIES = 5_000
"""Maximum number of files that a starting stream looks at, the latest first; maintenance sees to older files."""


@dataclass
class SmallFiles:
    """The small files of a table, found by reading only manifests that were not there at the last look.

    `least` is how many files of one level make a file of the next.
    """

    least: int
    _known: dict[str, tuple[DataFile, ...]] = field(default_factory=dict)

    def look(self, table: Table) -> tuple[list[Together], int]:
        """Find files to write together, and how many more files the fullest level of a partition lacks, at least 1."""
        groups: defaultdict[tuple[object, ...], list[DataFile]] = defaultdict(list)
        for file in self._files(table):
            groups[*partition_of(file), self.level(file.record_count)].append(file)
        full = [files for files in groups.values() if len(files) >= self.least]
        lacks = self.least - max((len(files) for files in groups.values() if len(files) < self.least), default=0)
        lots, size = list[Together](), 0
        for lot in (lot for files in full for lot in cut(files, LARGE)):
            if size + lot.size > LARGE:
                return lots, 1
            lots.append(lot)
            size += lot.size
        return lots, max(1, lacks)

    def level(self, rows: int) -> int:
        """Return the level of a file by its rows.

        Law: files of one level, as many as make one of the next, have enough rows for it.

        >>> [SmallFiles(10).level(rows) for rows in (0, 1, 9, 10, 99, 100)]
        [0, 0, 0, 1, 1, 2]
        """
        level, most = 0, self.least
        while rows >= most:
            level, most = level + 1, most * self.least
        return level

    def _files(self, table: Table) -> Iterator[DataFile]:
        snapshot = table.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(table.io)
        before, self._known, read = self._known, {}, 0
        for manifest in sorted(manifests, key=lambda one: one.sequence_number, reverse=True):
            path = manifest.manifest_path
            if path in before:
                self._known[path] = before[path]
            elif read < MOST_ENTRIES:
                entries = manifest.fetch_manifest_entry(table.io)
                read += len(entries)
                self._known[path] = tuple(entry.data_file for entry in entries if _small(entry.data_file))
            else:
                self._known[path] = ()
            yield from self._known[path]


def _small(file: DataFile) -> bool:
    small = file.file_size_in_bytes < MOST_BYTES and file.record_count < MOST_ROWS
    return small and file.content is DataFileContent.DATA


@dataclass
class TableCompaction:
    """The compaction of one table by the process that writes to it."""

    lake: Lake
    table: str
    small: SmallFiles
    room: int = 0
    """The number of commits until the next look."""
    pending: Future[FileChange | None] | None = None

    def prepared(self) -> FileChange | None:
        """Write small files together, if there are enough; return the exchange that is to be committed."""
        # Until the files are looked at again, as where this fails.
        self.room = self.small.least
        try:
            loaded = self.lake.table(self.table)
            lots, self.room = self.small.look(loaded)
            return rewritten(loaded, lots) if lots and not deletes(loaded) else None
        except Exception as error:
            self._failed(error)
            return None

    def committed(self, change: FileChange) -> bool:
        """Commit an exchange, and tell of it; return whether the table was moved by it."""
        try:
            done = exchanged(self.lake, self.table, change)
        except Exception as error:
            self._failed(error)
            return True
        if done:
            self.lake.tell(Compacted(self.table, len(change.removed), len(change.added)))
        return done

    def _failed(self, error: Exception) -> None:
        """Tell of a failure, which is no reason for a stream to stop: its tables are as whole as before."""
        self.lake.tell(NotCompacted(self.table, f"{type(error).__name__}: {str(error).strip()}"))

    def due(self) -> bool:
        """Count a commit of the table's writer; return whether it is time to look at the files."""
        self.room -= 1
        return self.room < 0


class Compaction:
    """The compaction of the tables that a stream holds the leases of."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.least = lake, lake.settings.small_files
        self._tables: dict[str, TableCompaction] = {}
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="compacting")

    def after_commit(self, lease: Lease) -> None:
        """Go on with the compaction of a lease's table. Called after each epoch's commit, when the next is not begun.

        Where an exchange is committed, the lease goes on from there.
        """
        if self.least < 2:
            return
        one = self._tables.get(lease.table)
        if one is None:
            one = self._tables[lease.table] = TableCompaction(
                self.lake, lease.table, SmallFiles(self.least), room=self.least
            )
        if one.pending is None:
            if one.due():
                one.pending = self._beside.submit(one.prepared)
        elif one.pending.done():
            change, one.pending = one.pending.result(), None
            if change is not None and one.committed(change):
                # If the lease is lost or lent by now, its next commit finds out.
                with suppress(FencedError, LentError):
                    lease.head = lease.branch.start(lease.check())

    def close(self) -> None:
        """End the thread once its present task is done; what it has written is left to maintenance."""
        self._beside.shutdown(cancel_futures=True)
