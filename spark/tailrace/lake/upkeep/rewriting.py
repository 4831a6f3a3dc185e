"""Merge small data files of a table into larger sorted files, and replace the small files in one commit (rule X3).

Streams rewrite their recent files this way, and maintenance rewrites all other files. A rewrite adds and removes no
rows, so its commit repeats the epoch's properties from the previous commit. Followers skip the commit, because they
read only appended rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortDirection

from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.table_protocol import MAINTAINED, FileChange, repeated_properties
from tailrace.lake.digests.commit_digest import manifest_files, manifests_of
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.layouts import SPANS, span_columns
from tailrace.lake.upkeep.file_rows import batches_as_written

LARGE = 64 * 1024 * 1024
"""The maximum total size, in bytes, of the files that are merged into one file or exchanged in one commit.

A file that has at least three quarters of this size is not merged.
"""

TRIES = 20
"""The maximum number of attempts to commit an exchange of files if other writers commit first."""

_ALL = 10**9
"""A maximum number of partitions that no table exceeds.

With this maximum, maintenance always writes each row into its own partition.
"""


@dataclass(frozen=True)
class FileLot:
    """A lot: some files of one partition that are merged together."""

    files: tuple[DataFile, ...]

    @property
    def size(self) -> int:
        """The total size of the files, in bytes."""
        return sum(file.file_size_in_bytes for file in self.files)


def partition_of(file: DataFile) -> tuple[object, ...]:
    """Return the key of a file's partition: the id of the partitioning, and the values of the partition fields."""
    return (file.spec_id, *(file.partition[place] for place in range(len(file.partition))))


def cut_into_lots(files: Iterable[DataFile], most: int, least: int = 2) -> Iterator[FileLot]:
    """Divide files, in the given order, into lots of at most `most` bytes; leave out lots with fewer than `least`
    files.
    """
    lot, size = list[DataFile](), 0
    for file in files:
        if lot and size + file.file_size_in_bytes > most:
            if len(lot) >= least:
                yield FileLot(tuple(lot))
            lot, size = [], 0
        lot.append(file)
        size += file.file_size_in_bytes
    if len(lot) >= max(1, least):
        yield FileLot(tuple(lot))


def write_together(lake: Lake, table: str, least: int, most: int) -> tuple[int, int]:
    """Merge the small files of a table in each partition that has at least `least` small files.

    Small files under a former partitioning are always rewritten into the current partitions. Returns the number of
    files that were read, and the number of files that were written. The function does nothing if the table has delete
    files, or if the small files have more than `most` bytes in total: Spark handles both cases.
    """
    loaded = lake.table(table)
    lots = [] if has_deletes(loaded) else list(_lots(loaded, least))
    taken = made = 0
    if sum(lot.size for lot in lots) > most:
        return taken, made
    while lots:
        some, size = list[FileLot](), 0
        while lots and (not some or size + lots[0].size <= LARGE):
            size += lots[0].size
            some.append(lots.pop(0))
        change = rewrite_lots(loaded, some, _ALL)
        if change is not None and exchange_files(lake, table, change):
            taken, made = taken + len(change.removed), made + len(change.added)
    return taken, made


def _lots(table: Table, least: int) -> Iterator[FileLot]:
    today, partitions = table.metadata.default_spec_id, defaultdict[tuple[object, ...], list[DataFile]](list)
    for file in files_of(table):
        partitions[partition_of(file)].append(file)
    for files in partitions.values():
        small = sorted((file for file in files if file.file_size_in_bytes < 0.75 * LARGE), key=_first(table))
        if files[0].spec_id != today:
            yield from cut_into_lots(small, LARGE, 1)
        elif len(small) >= least:
            yield from cut_into_lots(small, LARGE)


def files_of(table: Table) -> Iterator[DataFile]:
    """Yield the data files of a loaded table."""
    data = (one for one in manifests_of(table) if one.content is ManifestContent.DATA)
    yield from manifest_files(data, table.io)


def _first(table: Table) -> Callable[[DataFile], tuple[int, int]]:
    """Return a function that computes a file's sort key: the file's minimum in the time column used for
    partitioning.
    """
    names = span_columns(table.spec(), table.schema())
    number = table.schema().find_field(names[0]).field_id if names else -1

    def least(file: DataFile) -> tuple[int, int]:
        low = (file.lower_bounds or {}).get(number)
        return (0, 0) if low is None else (1, int.from_bytes(low, "little", signed=True))

    return least


def has_deletes(table: Table) -> bool:
    """Return True if a table has delete files, which mark rows of data files as deleted."""
    return any(manifest.content is ManifestContent.DELETES for manifest in manifests_of(table))


def rewrite_lots(table: Table, lots: Sequence[FileLot], most: int | None = None) -> FileChange | None:
    """Merge each lot of files into one file for each current partition that has rows of this lot.

    Returns None if no lot can be rewritten. A lot is left to Spark if one of its files has a nested column of a former
    type. `most` has the same meaning as in `data_files.write_files`.
    """
    # This import is local because the module imports pandas, and most commands never write rows.
    from tailrace.lake.catalog.data_files import write_files

    added, removed = list[DataFile](), list[DataFile]()
    schema = table.schema()
    arrow: pa.Schema = schema.as_arrow()
    for lot in lots:
        found = [batches_as_written(table.io, schema, file) for file in lot.files]
        if any(one is None for one in found):
            continue
        rows = pa.Table.from_batches(chain.from_iterable(one or () for one in found), arrow)
        added += write_files(table, sort_rows(table, rows), most)
        removed += lot.files
    return FileChange(tuple(added), tuple(removed)) if removed else None


def sort_rows(table: Table, rows: pa.Table) -> pa.Table:
    """Sort rows by the leading terms of a table's sort order.

    The first term that is neither a column nor a span of time, and all later terms, are ignored.
    """
    schema, keys = table.schema(), list[tuple[str, str]]()
    for field in table.sort_order().fields:
        name = schema.find_column_name(field.source_id)
        if name is None or name not in rows.column_names or str(field.transform) not in ("identity", *SPANS):
            break
        keys.append((name, "descending" if field.direction is SortDirection.DESC else "ascending"))
    # Nulls come last, as in the sort orders of contracts.
    return rows.take(pc.sort_indices(rows, sort_keys=keys)) if keys else rows


def exchange_files(lake: Lake, table: str, change: FileChange) -> bool:
    """Commit an exchange of files on top of the table's latest snapshot; return True if the commit succeeded.

    Returns False if the table has delete files, if another writer has changed one of the replaced files, or if other
    writers committed first in every attempt. Maintenance then deletes the new files.
    """
    for _ in range(TRIES):
        loaded = lake.table(table)
        head = head_of(loaded)
        if not head.properties or has_deletes(loaded):
            return False
        try:
            lake.change(table, change, {**repeated_properties(head.properties), MAINTAINED: "true"}, head.snapshot)
            return True
        except MovedError:
            continue
        except ValidationException:
            return False
    return False
