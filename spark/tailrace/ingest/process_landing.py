"""Land the files of a large epoch in this process: several threads read the files and write their records to data
files.

Only parts of the records are in memory at a time. The definitions read the data files, so the epoch's size is not
limited by this process's memory. If all records of an epoch were read before the first one is written, most of the time
would be spent on new memory, and reading, writing and aggregating would use one core each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial

import pyarrow as pa

from tailrace.engines.duckdb.database.scans import is_local, path_of
from tailrace.engines.protocol import BundleRecords, Frame, RecordFiles
from tailrace.ingest.landing_task import LandedPart, LandingTask
from tailrace.ingest.partitions import merge_seen
from tailrace.ingest.plain_columns import schema_of
from tailrace.ingest.row_landing import LandedFiles
from tailrace.ingest.sources import Files, SizeLookup
from tailrace.lake.catalog.lake import Lake
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import Seen

WORTH = 24 * 2**20
"""The minimum total size of an epoch's files, in bytes, for which its records are not read into memory as a whole."""

MEMORY_A_THREAD = 512 * 2**20
"""The memory in bytes that `TAILRACE_MEMORY` must provide for each thread that reads and writes files.

A thread has a slice that it parses and a part that it writes, each with copies. With less memory than for one thread,
no epoch is landed by threads.
"""

PARTS_A_THREAD = 3
"""The number of parts into which the files are divided for each thread, so that all threads end at about one time."""

PART = 128 * 2**20
"""The number of bytes of records that a thread has in memory at a time and writes to one data file."""

RESTS = 16
"""The number of epochs after a failed attempt for which no further attempt is made; their files are not plain."""


@dataclass(frozen=True)
class LandedRecords:
    """An epoch's records in data files that no commit contains yet, the latest times of the records, and the numbers of
    blank lines and of rounded decimals.
    """

    landed: LandedFiles
    seen: Mapping[str, Seen]
    blank: int
    rounded: int


class ProcessLanding:
    """The threads of this process that land the large epochs of a log.

    `on_spark` returns a frame of the records in data files; it is called if a definition has to be folded on Spark.
    """

    def __init__(
        self, lake: Lake, source: Files, log: Log, memory: int, on_spark: Callable[[LandedFiles], Frame]
    ) -> None:
        self.lake, self.source, self.log, self._on_spark = lake, source, log, on_spark
        self._threads = max(1, min(lake.settings.threads, memory // MEMORY_A_THREAD))
        self._rests = 0

    def land(self, files: Sequence[str], sized: SizeLookup, epoch: int) -> LandedRecords | None:
        """Read an epoch's files and write their records to data files; return None if the epoch must be read otherwise.

        `sized` returns the sizes of the files. If an attempt fails, the data files that it has written are deleted.
        """
        if self._rests:
            self._rests -= 1
            return None
        if not files or sum(found := sized()) < WORTH:
            return None
        task = LandingTask.of(self.lake, self.log, self.source.format, epoch)
        if task is None or not is_local(task.table.location):
            self._rests = RESTS
            return None
        task = replace(task, part=PART)
        parts = parts_of(files, found, PARTS_A_THREAD * self._threads)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="landing") as pool:
            made = list(pool.map(task.land, parts))
        whole = [part for part in made if part is not None]
        if len(whole) < len(made):
            store = self.lake.table(self.log.name).io
            for file in (file for part in whole for file in part.files):
                store.delete(file.file_path)
            self._rests = RESTS
            return None
        return merge_parts(self.log, whole, epoch)

    def records(self, landed: LandedFiles) -> BundleRecords:
        """Return the records in data files in the form in which definitions read them."""
        table = self.lake.table(self.log.name)
        if not landed.files:
            return table.schema().as_arrow().empty_table()
        names = tuple(table.schema().column_names)
        paths = tuple(path_of(file.file_path) for file in landed.files)
        on_spark = cache(partial(self._on_spark, landed))
        return RecordFiles(paths, landed.records, table.schema().as_arrow(), names, on_spark)


def merge_parts(log: Log, parts: Sequence[LandedPart], epoch: int) -> LandedRecords:
    """Merge the results of tasks that have landed parts of an epoch."""
    files = tuple(file for part in parts for file in part.files)
    rejected = [part.rejected for part in parts if part.rejected is not None]
    bad = pa.concat_tables([schema_of(log).empty_table(), *rejected])
    bad = bad.append_column("_epoch", pa.repeat(pa.scalar(epoch, pa.int64()), bad.num_rows))
    landed = LandedFiles(files, sum(part.records for part in parts), bad)
    blank, rounded = sum(part.blank for part in parts), sum(part.rounded for part in parts)
    return LandedRecords(landed, merge_seen([part.seen for part in parts]), blank, rounded)


def parts_of(files: Sequence[str], sizes: Sequence[int], parts: int) -> list[list[str]]:
    """Divide a list of files into at most `parts` parts of about the same size; the order of the files stays.

    >>> parts_of(["a", "b", "c", "d"], [4, 1, 1, 6], 2)
    [['a', 'b', 'c'], ['d']]
    >>> parts_of(["a"], [0], 2)
    [['a']]
    """
    found, whole, done = list[list[str]](), max(1, sum(sizes)), 0
    for file, size in zip(files, sizes, strict=True):
        if not found or done * parts >= whole * len(found):
            found.append([])
        found[-1].append(file)
        done += size
    return found
