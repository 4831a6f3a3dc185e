"""Read some of an epoch's files on an executor, and write their records to data files that no table contains yet.

A task makes one pass over its files, and has only part of the records in memory at a time. The result of a task
includes the latest event time and arrival time of the records. A task needs this package in the Python environment of
the executor, but it does not need Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.partitions import latest_in, merge_seen
from tailrace.ingest.plain_columns import schema_of
from tailrace.ingest.plain_files import UnplainError, UnreadableFileError, text_parts, typed_parts
from tailrace.ingest.room import COLUMNS, SLICE
from tailrace.ingest.sources import TYPED, Format
from tailrace.lake.catalog.detached_table import DetachedTable, merge_tables
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import has_only_declared
from tailrace.model.logs.log import ROUNDED, Log
from tailrace.model.step.progress import Seen

PART = 64 * 2**20
"""The number of bytes of records that a task has in memory at a time and writes to one data file."""

REJECTED = 100_000
"""The maximum number of rejected records that a task returns. In total, they may have at most `PART` bytes.

If there are more, Spark reads the whole epoch.
"""


@dataclass(frozen=True)
class LandedPart:
    """The result of a task: data files, the number of their records and of the decimals in them that were rounded, the
    latest times, and the rejected records.

    The latest times are the latest event time and the latest arrival time of the records in the data files.
    """

    files: tuple[DataFile, ...] = ()
    records: int = 0
    seen: Mapping[str, Seen] = field(default_factory=dict)
    rejected: pa.Table | None = None
    blank: int = 0
    rounded: int = 0


@dataclass(frozen=True)
class LandingTask:
    """A task for an executor: it reads files, and writes their records to data files that the log does not list yet.

    A task has about `part` bytes of records in memory at a time.
    """

    log: Log
    format: Format
    epoch: int
    table: DetachedTable
    part: int

    @classmethod
    def of(cls, lake: Lake, log: Log, format: Format, epoch: int) -> LandingTask | None:
        """Return the task for an epoch, or None if the table's columns differ from the columns that the log
        declares.
        """
        table = lake.table(log.name)
        return cls(log, format, epoch, DetachedTable.of(table), PART) if has_only_declared(table, log) else None

    def land(self, paths: Sequence[str]) -> LandedPart | None:
        """Write the records of these files to data files; return None if Spark must read one of the files."""
        # The module is imported here because it imports pandas, which the driver seldom needs.
        from tailrace.lake.catalog.data_files import write_files

        table = self.table.open()
        schema = table.schema().as_arrow()
        found, rejected, counting = LandedPart(), [schema_of(self.log).empty_table()], BlankLines()
        try:
            there = (read for read in self._read(paths, rejected, counting) if read.num_rows)
            for read in merge_tables(there, self.part, lambda read: read.nbytes):
                own = read.append_column("_epoch", pa.repeat(pa.scalar(self.epoch, pa.int64()), read.num_rows))
                files = tuple(write_files(table, own.select(schema.names).cast(schema)))
                seen = merge_seen([found.seen, latest_in(self.log, read)])
                rounded = (pc.sum(read[ROUNDED]).as_py() or 0) if self.log.rounds else 0
                found = LandedPart(
                    (*found.files, *files), found.records + read.num_rows, seen, rounded=found.rounded + rounded
                )
        except (UnplainError, UnreadableFileError):
            for file in found.files:
                table.io.delete(file.file_path)
            return None
        return replace(found, rejected=pa.concat_tables(rejected), blank=counting.here)

    def _read(self, paths: Sequence[str], rejected: list[pa.Table], counting: BlankLines) -> Iterator[pa.Table]:
        for records in self._parts(paths, counting):
            if records["_error"].null_count < records.num_rows:
                bad = pc.is_valid(records["_error"])
                rejected.append(records.filter(bad))
                records = records.filter(pc.invert(bad))
                if sum(one.num_rows for one in rejected) > REJECTED or sum(one.nbytes for one in rejected) > PART:
                    raise UnplainError(paths[0])
            yield records

    def _parts(self, paths: Sequence[str], counting: BlankLines) -> Iterator[pa.Table]:
        if self.format in TYPED:
            for path in paths:
                yield from typed_parts(self.log, self.format, path, min(self.part, COLUMNS * SLICE))
        else:
            for records, _ in text_parts(self.log, self.format, paths, counting, SLICE):
                yield records
