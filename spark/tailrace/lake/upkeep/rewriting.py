"""Write small data files of a table together, in the table's order, and exchange them in one commit (rule X3).

Whoever rewrites files does it so: a stream its own recent ones, maintenance the rest. Rows stay the same, none is added
or taken out, so the commit is no news to anybody: it repeats what the last commit said of its epoch, and followers,
which read what commits have appended, pass over it.
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
from tailrace.lake.catalog.table_protocol import MAINTAINED, FileChange, repeated
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.layouts import SPANS, span_columns
from tailrace.lake.upkeep.file_rows import batches_as_written

LARGE = 64 * 1024 * 1024
"""The bytes from which on a file is large enough to be left as it is, and the most that are rewritten at once."""

TRIES = 20
"""The maximum number of times that an exchange is tried when other commits overtake it."""

_ALL = 10**9
"""More partitions than rows have: maintenance puts them all where they belong."""


@dataclass(frozen=True)
class Together:
    """Files of one partition that are to be written together."""

    files: tuple[DataFile, ...]

    @property
    def size(self) -> int:
        """The files' size, in bytes."""
        return sum(file.file_size_in_bytes for file in self.files)


def partition_of(file: DataFile) -> tuple[object, ...]:
    """Return what tells a file's partition from others: the partitioning, and the values of its fields."""
    return (file.spec_id, *(file.partition[place] for place in range(len(file.partition))))


def by_partition(files: Iterable[DataFile]) -> dict[tuple[object, ...], list[DataFile]]:
    """Group files by partition."""
    found: defaultdict[tuple[object, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        found[partition_of(file)].append(file)
    return dict(found)


def cut(files: Iterable[DataFile], most: int, least: int = 2) -> Iterator[Together]:
    """Cut files, in their order, into lots of at most so many bytes; a lot of fewer files than `least` is left out."""
    lot, size = list[DataFile](), 0
    for file in files:
        if lot and size + file.file_size_in_bytes > most:
            if len(lot) >= least:
                yield Together(tuple(lot))
            lot, size = [], 0
        lot.append(file)
        size += file.file_size_in_bytes
    if len(lot) >= max(1, least):
        yield Together(tuple(lot))


def write_together(lake: Lake, table: str, least: int, most: int) -> tuple[int, int]:
    """Write the small files of a table together, partition by partition, where a partition has `least` or more.

    Files under a former partitioning are written into the partitions of today's, even if they are alone. Returns how
    many files were taken, and made; nothing is done where rows were deleted by delete files, or where the files have
    more than `most` bytes together: both are for Spark.
    """
    loaded = lake.table(table)
    lots = [] if deletes(loaded) else list(_lots(loaded, least))
    taken = made = 0
    if sum(lot.size for lot in lots) > most:
        return taken, made
    while lots:
        some, size = list[Together](), 0
        while lots and (not some or size + lots[0].size <= LARGE):
            size += lots[0].size
            some.append(lots.pop(0))
        change = rewritten(loaded, some, _ALL)
        if change is not None and exchanged(lake, table, change):
            taken, made = taken + len(change.removed), made + len(change.added)
    return taken, made


def _lots(table: Table, least: int) -> Iterator[Together]:
    today = table.metadata.default_spec_id
    for files in by_partition(files_of(table)).values():
        small = sorted((file for file in files if file.file_size_in_bytes < 0.75 * LARGE), key=_first(table))
        if files[0].spec_id != today:
            yield from cut(small, LARGE, 1)
        elif len(small) >= least:
            yield from cut(small, LARGE)


def files_of(table: Table) -> Iterator[DataFile]:
    """Yield the data files of a loaded table."""
    snapshot = table.current_snapshot()
    for manifest in () if snapshot is None else snapshot.manifests(table.io):
        if manifest.content is ManifestContent.DATA:
            yield from (entry.data_file for entry in manifest.fetch_manifest_entry(table.io))


def _first(table: Table) -> Callable[[DataFile], tuple[int, int]]:
    """Return the order of files by their least value of the column that the table is partitioned by the time of."""
    names = span_columns(table.spec(), table.schema())
    number = table.schema().find_field(names[0]).field_id if names else -1

    def least(file: DataFile) -> tuple[int, int]:
        low = (file.lower_bounds or {}).get(number)
        return (0, 0) if low is None else (1, int.from_bytes(low, "little", signed=True))

    return least


def deletes(table: Table) -> bool:
    """Tell whether rows of a table are deleted by delete files, which name the files that the rows are in."""
    snapshot = table.current_snapshot()
    return snapshot is not None and any(
        manifest.content is ManifestContent.DELETES for manifest in snapshot.manifests(table.io)
    )


def rewritten(table: Table, lots: Sequence[Together], most: int | None = None) -> FileChange | None:
    """Write the rows of each lot of files as one file for each partition of today's; None where no lot can be.

    A lot with a nested column of a former type is left to Spark. `most` is as in `data_files.written_files`.
    """
    # Imported here because it imports pandas, and most commands never write.
    from tailrace.lake.catalog.data_files import written_files

    added, removed = list[DataFile](), list[DataFile]()
    schema = table.schema()
    arrow: pa.Schema = schema.as_arrow()
    for lot in lots:
        found = [batches_as_written(table.io, schema, file) for file in lot.files]
        if any(one is None for one in found):
            continue
        rows = pa.Table.from_batches(chain.from_iterable(one or () for one in found), arrow)
        added += written_files(table, in_order(table, rows), most)
        removed += lot.files
    return FileChange(tuple(added), tuple(removed)) if removed else None


def in_order(table: Table, rows: pa.Table) -> pa.Table:
    """Sort rows by a table's order, as far as that is of columns or spans of time, as they are where it has none."""
    schema, keys = table.schema(), list[tuple[str, str]]()
    for field in table.sort_order().fields:
        name = schema.find_column_name(field.source_id)
        if name is None or name not in rows.column_names or str(field.transform) not in ("identity", *SPANS):
            break
        keys.append((name, "descending" if field.direction is SortDirection.DESC else "ascending"))
    # Nulls come last, as contracts have it.
    return rows.take(pc.sort_indices(rows, sort_keys=keys)) if keys else rows


def exchanged(lake: Lake, table: str, change: FileChange) -> bool:
    """Commit files in the place of others, on top of whatever the table holds; return whether that was possible.

    It is not where another has rewritten one of the files, or deleted rows of them, or where others commit all the
    time. The written files are then left behind, and maintenance deletes them.
    """
    for _ in range(TRIES):
        loaded = lake.table(table)
        head = head_of(loaded)
        if not head.properties or deletes(loaded):
            return False
        try:
            lake.change(table, change, {**repeated(head.properties), MAINTAINED: "true"}, head.snapshot)
            return True
        except MovedError:
            continue
        except ValidationException:
            return False
    return False
