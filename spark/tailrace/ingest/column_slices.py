"""Read the columns of a Parquet file in slices whose decoded size is bounded.

The decoded size cannot be computed from the size on disk or from the footer. Parquet stores a repeated value only once,
in a dictionary, and stores a run of equal values as one value and a count.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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

_ELEMENT = 16
"""The number of bytes of memory that an element of a list takes, with its place in the list and without its text."""


def open_parquet(opened: Any, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file. Old instants, which have 96 bits, are read in microseconds."""
    return pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", **options)


@dataclass
class ColumnSlices:
    """The columns to read of a Parquet file; `file` is a reader of the open file `opened`.

    `leaves` are the places of the columns among all columns of the file that have no parts. `groups` are the row groups
    to read. A decoded row takes `row` bytes of memory, not counting its texts and the elements of its lists.
    """

    opened: Any
    file: pq.ParquetFile
    leaves: Sequence[int]
    row: int
    groups: Sequence[int] = field(default_factory=list)

    def read(self, most: int, check: Callable[[int], None]) -> Iterator[pa.Table]:
        """Read the columns in slices of about `most` bytes.

        Before any data is read, `check` is called with the minimum number of bytes of memory that reading will take;
        `check` raises an error to prevent the reading.
        """
        # A column chunk may consist of a single page, which is always decoded as a whole. So add the size of the
        # largest column chunk to the size of the rows.
        largest = max((chunk.total_uncompressed_size for chunk in self._chunks(self.leaves)), default=0)
        check(self._rows * self.row + self._elements + largest)
        nested = any(map(self._is_nested, self.leaves))
        # If rows are so large without the repetition of texts, their texts are measured in any case.
        large = not nested and self._plain > most and most // (self._plain // max(1, self._rows) + 1) < _ODD
        size, width = (self._plain, most + 1) if large else self._measure(most)
        if any(_has_dictionary(field.type) for field in self.file.schema_arrow if _is_nested(field.type)):
            yield from self._apart(max(1, most // width))
        elif size <= most:
            yield self.file.read_row_groups(self.groups, columns=self._names)
        elif (rows := max(1, most // width)) >= _ODD or nested:
            yield from self._batches(self.file, rows)
        else:
            coded = self._coded()
            for batch in self._batches(coded, _BATCH):
                yield from _measured(batch, self.row, most)

    def decoded_bytes(self) -> int:
        """Return the maximum number of bytes of memory that the decoded columns take."""
        return self._measure(0)[0]

    def _batches(self, file: pq.ParquetFile, rows: int) -> Iterator[pa.Table]:
        batches = file.iter_batches(rows, row_groups=self.groups, columns=self._names)
        return (pa.Table.from_batches([batch]) for batch in batches)

    def _apart(self, rows: int) -> Iterator[pa.Table]:
        """Read each row group apart.

        Arrow fails to read dictionaries inside of lists or structs if a batch has parts of two dictionaries.
        """
        for group in self.groups:
            alone = ColumnSlices(self.opened, self.file, self.leaves, self.row, [group])
            read = 0
            try:
                for batch in alone._batches(self.file, rows):
                    yield batch
                    read += batch.num_rows
            except pa.ArrowNotImplementedError:
                rest = itertools.islice(alone._batches(self.file, 1), read, None)
                yield from rest

    def _measure(self, most: int) -> tuple[int, int]:
        """Return two numbers of bytes: the maximum for all decoded rows together, and an estimate for a single row.

        If the footer alone shows that the columns take at most `most` bytes, no dictionaries are read.
        """
        chunks, rows = list(self._chunks(self._texts)), self._rows
        fixed = rows * self.row + self._elements
        repeated = sum(
            chunk.total_uncompressed_size * (chunk.num_values if chunk.has_dictionary_page else 1) for chunk in chunks
        )
        if fixed + repeated <= most:
            return fixed + repeated, self.row
        whole = self._plain + self._longest_texts()
        return whole, whole // max(1, rows) + 1

    def _coded(self) -> pq.ParquetFile:
        """Return a reader of the same file that keeps the dictionaries of texts."""
        return open_parquet(self.opened, metadata=self.file.metadata, read_dictionary=self._text_names)

    @cached_property
    def _rows(self) -> int:
        return sum(int(self.file.metadata.row_group(group).num_rows) for group in self.groups)

    @cached_property
    def _elements(self) -> int:
        """The number of bytes of memory that the elements of lists take, without their texts."""
        repeated = [leaf for leaf in self.leaves if self.file.schema.column(leaf).max_repetition_level]
        return _ELEMENT * sum(int(chunk.num_values) for chunk in self._chunks(repeated))

    @cached_property
    def _plain(self) -> int:
        """The number of bytes of memory that the rows take, if each text that is stored once is there once."""
        texts = sum(int(chunk.total_uncompressed_size) for chunk in self._chunks(self._texts))
        return self._rows * self.row + self._elements + texts

    @cached_property
    def _names(self) -> list[str]:
        return [self.file.schema.column(leaf).path for leaf in self.leaves]

    @cached_property
    def _texts(self) -> list[int]:
        there = [(leaf, self.file.schema.column(leaf)) for leaf in self.leaves]
        return [leaf for leaf, one in there if one.physical_type == "BYTE_ARRAY" and one.logical_type.type != "DECIMAL"]

    @cached_property
    def _text_names(self) -> list[str]:
        return [self.file.schema.column(leaf).path for leaf in self._texts]

    def _is_nested(self, leaf: int) -> bool:
        return "." in self.file.schema.column(leaf).path

    def _chunks(self, leaves: Sequence[int]) -> Iterator[pq.ColumnChunkMetaData]:
        for group in map(self.file.metadata.row_group, self.groups):
            yield from map(group.column, leaves)

    def _longest_texts(self) -> int:
        """Return the size of all texts if each had the length of the longest text in its column's dictionaries."""
        coded = self._coded()
        size = 0
        for leaf, name in zip(self._texts, self._text_names, strict=True):
            longest = 0
            for group in self.groups:
                batches = coded.iter_batches(1, row_groups=[group], columns=[name], use_threads=False)
                for batch in itertools.islice(batches, 1):
                    lengths = [pc.max(pc.binary_length(one)).as_py() or 0 for one in _dictionaries(batch.column(0))]
                    longest = max(longest, *lengths, 0)
            size += longest * sum(chunk.num_values for chunk in self._chunks([leaf]))
        return size


def _is_nested(type: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type))


def _has_dictionary(type: pa.DataType) -> bool:
    if pa.types.is_dictionary(type):
        return True
    return any(_has_dictionary(type.field(place).type) for place in range(type.num_fields))


def _dictionaries(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the dictionaries of texts, also those inside of lists and structs."""
    if pa.types.is_dictionary(values.type):
        yield values.dictionary
    elif pa.types.is_struct(values.type):
        for one in range(values.type.num_fields):
            yield from _dictionaries(values.field(one))
    elif pa.types.is_map(values.type):
        yield from _dictionaries(values.keys)
        yield from _dictionaries(values.items)
    elif pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        yield from _dictionaries(values.values)


def _measured(table: pa.Table, row: int, most: int) -> Iterator[pa.Table]:
    """Cut a table with dictionary-encoded texts into slices of at most `most` bytes, and decode each slice.

    A larger row is not decoded: its texts are there once already, and the row may be rejected for its size.
    """
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
            some = table.slice(begins, place - begins)
            yield some if filled > most else _decoded(some)
            begins, filled = place, 0
        filled += size


def _decoded(table: pa.Table) -> pa.Table:
    columns = [one.cast(one.type.value_type) if pa.types.is_dictionary(one.type) else one for one in table.columns]
    return pa.table(columns, names=table.column_names)
