"""Read some of an epoch's files on an executor, and write their records to data files that no table lists yet.

A task holds a part of its records at a time, and says how far they go: one pass over the source. It needs the package
in the executor's Python, and nothing of Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyiceberg.manifest import DataFile

from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.partitions import joined, latest_in
from tailrace.ingest.plain_files import UnplainError, json_parts, parquet_parts
from tailrace.ingest.plain_json import LINES
from tailrace.ingest.room import COLUMNS, SLICE
from tailrace.lake.catalog.detached_table import DetachedTable, together
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import has_just
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import Seen

PART = 64 * 2**20
"""The bytes of records that a task holds at once, and writes as one file."""

LEFT = 100_000
"""The lines of a task that are not plain which are handed back, of 64 MB at most; with more, Spark reads the epoch."""


@dataclass(frozen=True)
class Part:
    """What a task made of its files: data files, their records, how far they go, and lines that are not plain."""

    files: tuple[DataFile, ...] = ()
    records: int = 0
    seen: Mapping[str, Seen] = field(default_factory=dict)
    left: pa.Table = field(default_factory=LINES.empty_table)
    blank: int = 0


@dataclass(frozen=True)
class LandingTask:
    """The task of an executor: read files of a log, and write their records beside its table.

    A task holds about `part` bytes of records.
    """

    log: Log
    format: str
    epoch: int
    table: DetachedTable
    part: int

    @classmethod
    def of(cls, lake: Lake, log: Log, format: str, epoch: int) -> LandingTask | None:
        """Describe the landing of an epoch; None where the table's columns are not just as the log declares them."""
        table = lake.table(log.name)
        return cls(log, format, epoch, DetachedTable.of(table), PART) if has_just(table, log) else None

    def land(self, paths: Sequence[str]) -> Part | None:
        """Land these files; None where one is not plain."""
        # Imported here, as it brings pandas along, which the driver seldom needs.
        from tailrace.lake.catalog.data_files import written_files

        pa.set_cpu_count(1)
        table = self.table.opened()
        schema = table.schema().as_arrow()
        found, left, counting = Part(), [LINES.empty_table()], BlankLines()
        try:
            there = (read for read in self._read(paths, left, counting) if read.num_rows)
            for read in together(there, self.part, lambda read: read.nbytes):
                own = read.append_column("_epoch", pa.repeat(pa.scalar(self.epoch, pa.int64()), read.num_rows))
                files = tuple(written_files(table, own.select(schema.names).cast(schema)))
                seen = joined([found.seen, latest_in(self.log, read)])
                found = Part((*found.files, *files), found.records + read.num_rows, seen)
        except UnplainError:
            for file in found.files:
                table.io.delete(file.file_path)
            return None
        return replace(found, left=pa.concat_tables(left), blank=counting.here)

    def _read(self, paths: Sequence[str], left: list[pa.Table], counting: BlankLines) -> Iterator[pa.Table]:
        if self.format == "parquet":
            for path in paths:
                yield from parquet_parts(self.log, path, min(self.part, COLUMNS * SLICE))
            return
        for records, lines, _ in json_parts(self.log, paths, counting, SLICE):
            left.append(lines)
            if sum(one.num_rows for one in left) > LEFT or sum(one.nbytes for one in left) > PART:
                raise UnplainError(paths[0])
            yield records
