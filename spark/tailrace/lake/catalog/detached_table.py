"""Describe a table for a process that has no catalog and only writes files, such as a Python worker of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil

T = TypeVar("T")

_HISTORY: Mapping[str, Any] = {
    "snapshots": [],
    "snapshot_log": [],
    "metadata_log": [],
    "refs": {},
    "current_snapshot_id": None,
    "statistics": [],
    "partition_statistics": [],
}
"""Empty values for the metadata fields that list a table's commits."""


@dataclass(frozen=True)
class DetachedTable:
    """A description of a table without its history: `metadata` is JSON; `io` has the properties for accessing its
    files.
    """

    metadata: str
    location: str
    io: Mapping[str, Any]

    @classmethod
    def of(cls, table: Table) -> DetachedTable:
        """Create a description of a table's current state."""
        metadata = table.metadata.model_copy(update=dict(_HISTORY))
        return cls(metadata.model_dump_json(), table.location(), dict(table.io.properties))

    def open(self) -> Table:
        """Open the table for writing files."""
        io = load_file_io(dict(self.io), self.location)
        return Table(("detached",), TableMetadataUtil.parse_raw(self.metadata), "", io, NoopCatalog("detached"))

    def write(self, batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[DataFile]:
        """Write batches of rows to files of about `rows` rows each, and yield the files.

        The batches have the table's columns.
        """
        # The import is here, not at the top, because the module imports pandas, which the driver seldom needs.
        from tailrace.lake.catalog.data_files import write_files

        table = self.open()
        for some in merge_tables((pa.Table.from_batches([one]) for one in batches), rows, lambda one: one.num_rows):
            yield from write_files(table, some)


def merge_tables(tables: Iterator[pa.Table], enough: int, size: Callable[[pa.Table], int]) -> Iterator[pa.Table]:
    """Merge Arrow tables into larger tables, each with a total `size` of at least `enough` (except the last table)."""
    return map(pa.concat_tables, batched_by_size(tables, enough, size))


def batched_by_size(items: Iterable[T], enough: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Group items into lists, each with a total `size` of at least `enough` (except the last list).

    >>> list(batched_by_size(["a", "bb", "c", "d"], 3, len))
    [['a', 'bb'], ['c', 'd']]
    """
    waiting, filled = list[T](), 0
    for item in items:
        waiting.append(item)
        filled += size(item)
        if filled >= enough:
            yield waiting
            waiting, filled = [], 0
    if waiting:
        yield waiting
