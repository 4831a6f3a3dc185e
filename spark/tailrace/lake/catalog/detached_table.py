"""A table as a process needs it that only writes files beside it: an executor's Python, which has no catalog."""

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
"""Replaces the parts of a table's metadata that list its commits, so that they list none."""


@dataclass(frozen=True)
class DetachedTable:
    """A table without its history. `metadata` is JSON, `io` are the properties of its files' store."""

    metadata: str
    location: str
    io: Mapping[str, Any]

    @classmethod
    def of(cls, table: Table) -> DetachedTable:
        """Describe a table as it stands now."""
        metadata = table.metadata.model_copy(update=dict(_HISTORY))
        return cls(metadata.model_dump_json(), table.location(), dict(table.io.properties))

    def opened(self) -> Table:
        """Open the table, to write files."""
        io = load_file_io(dict(self.io), self.location)
        return Table(("detached",), TableMetadataUtil.parse_raw(self.metadata), "", io, NoopCatalog("detached"))

    def written(self, batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[DataFile]:
        """Write batches with the table's own columns as files, about so many rows at a time; yield the files."""
        # Imported here, as it brings pandas along, which the driver seldom needs.
        from tailrace.lake.catalog.data_files import written_files

        table = self.opened()
        for some in together((pa.Table.from_batches([one]) for one in batches), rows, lambda one: one.num_rows):
            yield from written_files(table, some)


def together(tables: Iterator[pa.Table], enough: int, size: Callable[[pa.Table], int]) -> Iterator[pa.Table]:
    """Put tables together to such of about a size, by whatever `size` measures."""
    return map(pa.concat_tables, batched_by_size(tables, enough, size))


def batched_by_size(items: Iterable[T], enough: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Put items together until they are enough by their sizes.

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
