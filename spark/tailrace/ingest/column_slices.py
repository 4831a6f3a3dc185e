"""Read the columns of a Parquet file in slices whose decoded size is bounded.

The decoded size cannot be computed from the size on disk or from the footer. Parquet stores a repeated value only once,
in a dictionary, and stores a run of equal values as one value and a count.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_ODD = 1_024
"""The minimum number of rows in a slice whose size is computed from the longest texts of the file.

If such a slice would have fewer rows, the size of each row is measured instead.
"""

_BATCH = 8_192
"""The number of rows that are read and measured in one batch."""


def read_slices(
    opened: Any, file: pq.ParquetFile, columns: Sequence[str], row: int, most: int, check: Callable[[int], None]
) -> Iterator[pa.Table]:
    """Read columns of a Parquet file in slices of about `most` bytes; `file` is a reader of the open file `opened`.

    A decoded row takes `row` bytes of memory, not counting its texts. Before any data is read, `check` is called with
    the minimum number of bytes of memory that reading will take; `check` raises an error to prevent the reading.
    """
    metadata = file.metadata
    chunks = list(_chunks(metadata, columns))
    # A column chunk may consist of a single page, which is always decoded as a whole. So add the size of the largest
    # column chunk to the size of the rows.
    check(metadata.num_rows * row + max((chunk.total_uncompressed_size for chunk in chunks), default=0))
    size, width = _measure(opened, file, columns, row, most)
    if size <= most:
        yield file.read(columns=columns)
    elif (rows := max(1, most // width)) >= _ODD:
        yield from map(pa.Table.from_batches, ([batch] for batch in file.iter_batches(rows, columns=columns)))
    else:
        coded = pq.ParquetFile(opened, metadata=metadata, read_dictionary=_texts(file, columns))
        for batch in coded.iter_batches(_BATCH, columns=columns):
            yield from _measured(pa.Table.from_batches([batch]), row, most)


def decoded_bytes(opened: Any, file: pq.ParquetFile, columns: Sequence[str], row: int) -> int:
    """Return the maximum number of bytes of memory that the decoded columns of a file take.

    A decoded row takes `row` bytes of memory, not counting its texts.
    """
    return _measure(opened, file, columns, row, 0)[0]


def _measure(opened: Any, file: pq.ParquetFile, columns: Sequence[str], row: int, most: int) -> tuple[int, int]:
    """Return two numbers of bytes: the maximum for all decoded rows together, and an estimate for a single row.

    If the footer alone shows that the columns take at most `most` bytes, no dictionaries are read.
    """
    metadata, texts = file.metadata, _texts(file, columns)
    chunks = list(_chunks(metadata, texts))
    rows, plain = metadata.num_rows, sum(chunk.total_uncompressed_size for chunk in chunks)
    repeated = sum(
        chunk.total_uncompressed_size * (chunk.num_values if chunk.has_dictionary_page else 1) for chunk in chunks
    )
    if rows * row + repeated <= most:
        return rows * row + repeated, row
    longest = _longest(opened, metadata, texts)
    return rows * (row + longest) + plain, row + longest + plain // max(1, rows)


def _chunks(metadata: pq.FileMetaData, columns: Sequence[str]) -> Iterator[pq.ColumnChunkMetaData]:
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield from (one for one in map(group.column, range(group.num_columns)) if one.path_in_schema in columns)


def _texts(file: pq.ParquetFile, columns: Sequence[str]) -> list[str]:
    there = file.schema_arrow
    return [name for name in columns if there.get_field_index(name) >= 0 and _is_text(there.field(name).type)]


def _longest(opened: Any, metadata: pq.FileMetaData, names: Sequence[str]) -> int:
    """Find the longest text in each column's dictionaries, and return the sum of these lengths, in bytes."""
    coded, found = pq.ParquetFile(opened, metadata=metadata, read_dictionary=list(names)), dict.fromkeys(names, 0)
    for group in range(metadata.num_row_groups if names else 0):
        for batch in itertools.islice(coded.iter_batches(1, row_groups=[group], columns=names, use_threads=False), 1):
            for name in names:
                longest = pc.max(pc.binary_length(batch.column(name).dictionary)).as_py()
                found[name] = max(found[name], longest or 0)
    return sum(found.values())


def _measured(table: pa.Table, row: int, most: int) -> Iterator[pa.Table]:
    """Cut a table with dictionary-encoded texts into slices of at most `most` bytes, and decode each slice."""
    sizes: Any = pa.repeat(pa.scalar(row, pa.int64()), table.num_rows)
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            # All rows of a batch share one dictionary, so there is one chunk.
            [coded] = column.chunks
            lengths = pc.binary_length(coded.dictionary).take(coded.indices)
            sizes = pc.add(sizes, pc.fill_null(lengths, 0).cast(pa.int64()))
    begins, filled = 0, 0
    for place, size in enumerate([*sizes.to_pylist(), most + 1]):
        if filled and filled + size > most:
            yield _decoded(table.slice(begins, place - begins))
            begins, filled = place, 0
        filled += size


def _decoded(table: pa.Table) -> pa.Table:
    columns = {name: table[name] for name in table.column_names}
    return pa.table(
        {n: one.cast(one.type.value_type) if pa.types.is_dictionary(one.type) else one for n, one in columns.items()}
    )


def _is_text(type: pa.DataType) -> bool:
    kept = type.value_type if pa.types.is_dictionary(type) else type
    return bool(pa.types.is_string(kept) or pa.types.is_large_string(kept))
