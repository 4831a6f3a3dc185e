"""Merge small data files of a table, in the table's sort order, and exchange them in one commit (rule X3).

Streams rewrite their recent files this way, and maintenance rewrites all other files. No row is added or removed. So
the commit repeats the epoch's properties from the last commit. Followers skip the commit, because they read only
appended rows.
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
from tailrace.lake.digests.commit_digest import manifest_files
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.layouts import SPANS, span_columns
from tailrace.lake.upkeep.file_rows import batches_as_written

LARGE = 64 * 1024 * 1024
"""The minimum size of a large file, and the maximum total size of the files that are rewritten at once, in bytes."""

TRIES = 20
"""The maximum number of attempts at an exchange when other commits are made first."""

_ALL = 10**9
"""A number larger than any number of partitions: maintenance writes all rows into their own partitions."""


@dataclass(frozen=True)
class FileLot:
    """A lot: files of one partition that are merged together."""

    files: tuple[DataFile, ...]

    @property
    def size(self) -> int:
        """The total size of the files, in bytes."""
        return sum(file.file_size_in_bytes for file in self.files)


def partition_of(file: DataFile) -> tuple[object, ...]:
    """Return the key of a file's partition: the id of the partitioning, and the values of the partition fields."""
    return (file.spec_id, *(file.partition[place] for place in range(len(file.partition))))


def cut_into_lots(files: Iterable[DataFile], most: int, least: int = 2) -> Iterator[FileLot]:
    """Divide files, in their order, into lots of at most `most` bytes; drop lots with fewer than `least` files."""
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
    """Merge small files in each partition of a table that has at least `least` small files.

    Files under a former partitioning are rewritten into the current partitions, even if there is only one file. Returns
    the numbers of files that were read and written. Nothing is done if the table has delete files, or if the files have
    more than `most` bytes in total: Spark handles both cases.
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
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    yield from manifest_files((one for one in manifests if one.content is ManifestContent.DATA), table.io)


def _first(table: Table) -> Callable[[DataFile], tuple[int, int]]:
    """Return a function for sorting files by their minimum in the time column by which the table is partitioned."""
    names = span_columns(table.spec(), table.schema())
    number = table.schema().find_field(names[0]).field_id if names else -1

    def least(file: DataFile) -> tuple[int, int]:
        low = (file.lower_bounds or {}).get(number)
        return (0, 0) if low is None else (1, int.from_bytes(low, "little", signed=True))

    return least


def has_deletes(table: Table) -> bool:
    """Return True if a table has delete files, which refer to data files."""
    snapshot = table.current_snapshot()
    return snapshot is not None and any(
        manifest.content is ManifestContent.DELETES for manifest in snapshot.manifests(table.io)
    )


def rewrite_lots(table: Table, lots: Sequence[FileLot], most: int | None = None) -> FileChange | None:
    """Rewrite each lot of files as one file for each current partition; return None if no lot can be rewritten.

    A lot with a nested column of a former type is left to Spark. `most` has the same meaning as in
    `data_files.write_files`.
    """
    # Imported here because the module imports pandas, and most commands never write rows.
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
    """Sort rows by a table's sort order, up to the first term that is not a column or a span of time."""
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

    The result is False if another writer changed these files or deleted rows in them, or if other commits make every
    attempt fail. Maintenance then deletes the new files.
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
