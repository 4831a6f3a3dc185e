"""Merge a stream's recent small files between two epochs, without Spark (rule X3).

An epoch adds a small file to each partition in which the epoch has rows. The level of a file depends on its number of
rows. As soon as a partition has enough files of one level, these files are read, sorted by the table's order, and
written as one file of the next level. So a row is rewritten once for each level and not for each new file: 20 files of
20 rows make one file of 400 rows, and 20 of these files make one file of 8,000 rows. Larger files are merged by
maintenance, not by the stream.

A second thread reads and writes the files. The stream's own thread commits the exchange of files between two epochs of
the table. So no epoch's commit is in progress at this time, and the exchange never makes an epoch's commit fail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table

from tailrace.lake.catalog.events import CompactionFailed, FilesCompacted
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.lease import Lease
from tailrace.lake.digests.commit_digest import manifests_of
from tailrace.lake.schema.lake_errors import FencedError, LentError
from tailrace.lake.upkeep.rewriting import (
    LARGE,
    FileLot,
    cut_into_lots,
    exchange_files,
    has_deletes,
    partition_of,
    rewrite_lots,
)

MOST_ROWS = 2_500
"""A stream does not rewrite a file that has at least this number of rows.

Reading, sorting and writing a row takes 1 to 3 µs, about as long as landing and folding the row. A small epoch takes
100 ms or more, so if epochs are small, merging files costs almost nothing. If epochs are large, merging would take a
considerable part of an epoch's time, but then the epochs' files are already large.
"""

MOST_BYTES = 1024 * 1024
"""A stream does not rewrite a file that has at least this number of bytes, however few rows the file has."""

MOST_ENTRIES = 5_000
"""The approximate maximum number of new files that one search inspects. The latest files are inspected first.

Maintenance merges the files that no search has inspected.
"""


@dataclass
class SmallFiles:
    """A search for the small files of a table. The search reads only the manifests that were added since the previous
    search.

    `least` is the number of files of one level that are merged into one file of the next level.
    """

    least: int
    _known: dict[str, tuple[DataFile, ...]] = field(default_factory=dict)

    def look(self, table: Table) -> tuple[list[FileLot], int]:
        """Return the lots of files to merge now, and the number of commits until the next search.

        If some lots are left for the next search, the number of commits is 1. Otherwise, the number of commits is the
        number of files that the fullest incomplete level still lacks, but at least 1.
        """
        groups: defaultdict[tuple[object, ...], list[DataFile]] = defaultdict(list)
        for file in self._files(table):
            groups[*partition_of(file), self.level(file.record_count)].append(file)
        full = [files for files in groups.values() if len(files) >= self.least]
        lacks = self.least - max((len(files) for files in groups.values() if len(files) < self.least), default=0)
        lots, size = list[FileLot](), 0
        for lot in (lot for files in full for lot in cut_into_lots(files, LARGE)):
            if size + lot.size > LARGE:
                return lots, 1
            lots.append(lot)
            size += lot.size
        return lots, max(1, lacks)

    def level(self, rows: int) -> int:
        """Return the level of a file with this number of rows.

        Law: `least` files of one level together have enough rows for the next level.

        >>> [SmallFiles(10).level(rows) for rows in (0, 1, 9, 10, 99, 100)]
        [0, 0, 0, 1, 1, 2]
        """
        level, most = 0, self.least
        while rows >= most:
            level, most = level + 1, most * self.least
        return level

    def _files(self, table: Table) -> Iterator[DataFile]:
        before, self._known, read = self._known, {}, 0
        for manifest in sorted(manifests_of(table), key=lambda one: one.sequence_number, reverse=True):
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
    """The compaction of one table, in the process that writes to the table."""

    lake: Lake
    table: str
    small: SmallFiles
    room: int = 0
    """The number of commits to the table until the next search for small files."""
    pending: Future[FileChange | None] | None = None

    def prepare(self) -> FileChange | None:
        """Merge the table's small files if there are enough small files of one level.

        Returns the exchange of files that the stream has to commit, or None if no files were merged.
        """
        # Set the default now: if this search fails, the next search follows after the default number of commits.
        self.room = self.small.least
        try:
            loaded = self.lake.table(self.table)
            lots, self.room = self.small.look(loaded)
            return rewrite_lots(loaded, lots) if lots and not has_deletes(loaded) else None
        except Exception as error:
            self._failed(error)
            return None

    def commit(self, change: FileChange) -> bool:
        """Commit an exchange of files, and send a notice about it.

        Returns True if the table has, or may have, a new snapshot.
        """
        try:
            done = exchange_files(self.lake, self.table, change)
        except Exception as error:
            self._failed(error)
            return True
        if done:
            self.lake.tell(FilesCompacted(self.table, len(change.removed), len(change.added)))
        return done

    def _failed(self, error: Exception) -> None:
        """Send a notice that a compaction failed. The stream continues, because its tables are intact."""
        self.lake.tell(CompactionFailed(self.table, f"{type(error).__name__}: {str(error).strip()}"))

    def is_due(self) -> bool:
        """Count one more commit of the table's writer; return True if a search for small files is now due."""
        self.room -= 1
        return self.room < 0


class Compaction:
    """The compaction of all tables whose leases a stream holds."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.least = lake, lake.settings.small_files
        self._tables: dict[str, TableCompaction] = {}
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="compacting")

    def after_commit(self, lease: Lease) -> None:
        """Continue the compaction of the table to which the lease belongs. Call this after each epoch's commit.

        If an exchange of files is committed, the lease continues from the new snapshot.
        """
        if self.least < 2:
            return
        one = self._tables.get(lease.table)
        if one is None:
            one = self._tables[lease.table] = TableCompaction(
                self.lake, lease.table, SmallFiles(self.least), room=self.least
            )
        if one.pending is None:
            if one.is_due():
                one.pending = self._beside.submit(one.prepare)
        elif one.pending.done():
            change, one.pending = one.pending.result(), None
            if change is not None and one.commit(change):
                # If the lease has been lost or lent in the meantime, the stream's next commit under the lease raises
                # the error.
                with suppress(FencedError, LentError):
                    lease.head = lease.branch.start(lease.check())

    def close(self) -> None:
        """End the thread after its present task; maintenance deletes the files that were written but not committed."""
        self._beside.shutdown(cancel_futures=True)
