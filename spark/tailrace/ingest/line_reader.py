"""The common part of the readers of lines: conversions of columns of texts, and the reading of doubtful lines.

A reader parses many lines at a time. A line that it cannot read, or that has a value that it might read differently, is
read by the model's own reader, which also knows the reason for rejecting a line. So the result for a line does not
depend on the lines beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_types import column_type
from tailrace.ingest.folder_values import FolderValues
from tailrace.ingest.plain_columns import Mask, schema_of
from tailrace.ingest.plain_values import PlainValues
from tailrace.model.base.json_scalars import rounded_in
from tailrace.model.logs.json_records import JsonRecords, Values
from tailrace.model.logs.log import ROUNDED, Log
from tailrace.model.logs.shapes import Plain

Bytes: TypeAlias = npt.NDArray[np.uint8]
Rows: TypeAlias = npt.NDArray[np.int64]
P = TypeVar("P")
T = TypeVar("T")

LINES = pa.schema(
    {
        "_bytes": pa.binary(),
        "_source": pa.string(),
        "_offset": pa.int64(),
        "_arrival": pa.timestamp("us", "UTC"),
    }
)
"""The columns of unparsed lines: the bytes, the position, and the arrival time."""


class BlankCount(Protocol):
    """The number of blank lines so far."""

    here: int


class Records(Protocol):
    """The model's reader of single records."""

    def read(self, raw: bytes, arrival: int | None = None, source: str = "") -> Values | str: ...


@dataclass
class Doubt:
    """Masks of values: values that do not fit, and doubles from which digits may have been lost.

    `rounded` is the number of decimals in each value that were rounded.
    """

    misfits: Mask
    doubles: Mask
    rounded: Rows

    @classmethod
    def none(cls, size: int) -> Doubt:
        """Return the masks of values of which none is doubtful."""
        return cls(np.zeros(size, np.bool_), np.zeros(size, np.bool_), np.zeros(size, np.int64))

    def marked(self, made: tuple[pa.Array, Mask]) -> pa.Array:
        """Return converted values, and mark the values that do not fit."""
        self.misfits |= made[1]
        return made[0]


class LineReader(ABC):
    """The base class of the readers of a log's lines. `records` is the model's reader of a line."""

    def __init__(self, log: Log, records: Records, values: JsonRecords) -> None:
        self.log, self.schema, self.records, self.values = log, schema_of(log), records, values
        self.plain = PlainValues(values)

    @abstractmethod
    def read(self, batch: pa.RecordBatch, blank: BlankCount | None = None) -> pa.Table:
        """Read a batch of lines to a table of records, valid and rejected ones, in the order of the lines.

        If `blank` is given, lines of white space are not records, and are counted.
        """

    def judged(self, batch: pa.RecordBatch, rows: Rows) -> pa.Table:
        """Read lines one by one with the model's reader; the result has the reasons of the rejected records."""
        lines = some_rows(batch, rows)
        known = self.log.arrival_time is not None
        arrivals = [None] * len(rows) if known else lines.column("_arrival").cast(pa.int64()).to_pylist()
        sources = lines.column("_source").to_pylist() if self.log.folders else [""] * len(rows)
        given = zip(lines.column(0), arrivals, sources, strict=True)
        read = [self.records.read(raw.as_py(), at, source) for raw, at, source in given]
        errors = [one if isinstance(one, str) else None for one in read]
        values = [{} if isinstance(one, str) else one for one in read]
        columns: dict[str, pa.Array] = {
            name: pa.array([one.get(name) for one in values], self.schema.field(name).type) for name in self.log.columns
        }
        if self.log.rounds:
            columns[ROUNDED] = pa.array(map(rounded_in, values), pa.int32())
        columns["_error"] = pa.array(errors, pa.string())
        bad = columns["_error"].is_valid()
        columns["_raw"] = pc.if_else(bad, lines.column(0), pa.scalar(None, pa.binary()))
        return self.table(columns, lines)

    def add_folders(self, columns: dict[str, pa.Array], sources: pa.Array, doubt: Mask) -> None:
        """Add the values in the names of the files' folders to columns, and mark doubtful records."""
        found = FolderValues.of(self.values, columns, sources)
        columns |= found.columns
        doubt |= found.misfits

    def finite(self, shape: Plain, values: pa.Array, doubt: Doubt) -> pa.Array:
        """Convert doubles to a double or float column, and mark doubles from which digits may have been lost."""
        numbers = pc.fill_null(values, 1.0).to_numpy(zero_copy_only=False)
        doubt.misfits |= ~np.isfinite(numbers)
        doubt.doubles |= ~((np.abs(numbers) < 2**53) & (numbers != 0))
        made = values.cast(column_type(shape.type).arrow, safe=False)
        if shape.type == "float":
            doubt.misfits |= np.isinf(pc.fill_null(made, 1.0).to_numpy(zero_copy_only=False))
        return made

    def table(self, columns: dict[str, pa.Array], lines: pa.RecordBatch) -> pa.Table:
        """Build the table of records from their columns and from the positions of their lines."""
        own = {name: lines.column(name) for name in ("_source", "_offset", "_arrival")} | columns
        if self.log.arrival_time is not None:
            own["_arrival"] = columns[self.log.arrival_time]
        made = [own.get(one.name, pa.nulls(len(lines), one.type)) for one in self.schema]
        return pa.table(made, schema=self.schema)


def without_blank(raw: pa.BinaryArray, rows: Rows, blank: BlankCount | None) -> Rows:
    """Leave out the lines of white space and count them, if `blank` is given."""
    if blank is None or not len(rows):
        return rows
    left = rows[~blank_mask(some_rows(raw, rows))]
    blank.here += len(rows) - len(left)
    return left


def read_all(reader: LineReader, lines: pa.Table, blank: BlankCount | None = None) -> pa.Table:
    """Read a table of lines; the result has a row for each valid or rejected record, in the order of the lines.

    If `blank` is given, lines of white space are not records, and are counted.
    """
    batches = lines.select(LINES.names).cast(LINES).combine_chunks().to_batches()
    return pa.concat_tables([reader.schema.empty_table(), *(reader.read(batch, blank) for batch in batches)])


def over_lines(reader: Callable[[], LineReader]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function with which Spark's executors read lines, for `mapInArrow`."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from read_all(reader(), pa.Table.from_batches([batch])).combine_chunks().to_batches()

    return read


def some_rows(lines: Any, rows: Rows) -> Any:
    """Select rows of an array or a batch, without a copy if the rows are adjacent."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return lines.slice(int(rows[0]), len(rows))
    return lines.take(pa.array(rows, pa.int64()))


def matches(raw: pa.Array, pattern: str) -> Mask:
    found: Mask = pc.fill_null(pc.match_substring_regex(raw, pattern), False).to_numpy(zero_copy_only=False)
    return found


def part_starts(rows: int, most: int) -> range:
    """Cut rows into parts of at most `most` rows; return the start of each part. The range's step is a part's size.

    The parts have about equal sizes, and each core gets as many.
    """
    parts = -(-rows // most)
    if parts > 1:
        parts = -(-parts // pa.cpu_count()) * pa.cpu_count()
    return range(0, rows, max(1, -(-rows // max(1, parts))))


def one_ahead(parts: Iterable[T]) -> Iterator[T]:
    """Yield parts; while the caller works on a part, a thread makes the next part."""
    left = iter(parts)
    with ThreadPoolExecutor(1) as pool:
        part = pool.submit(next, left, _NO_PART)
        while (made := part.result()) is not _NO_PART:
            part = pool.submit(next, left, _NO_PART)
            yield made  # type: ignore[misc]


_NO_PART = object()


def on_threads(call: Callable[[P], T], parts: Sequence[P]) -> Iterator[T]:
    """Call a function on each part, with a thread for each core; a single part needs no thread."""
    if len(parts) < 2:
        yield from map(call, parts)
        return
    with ThreadPoolExecutor(min(len(parts), pa.cpu_count())) as pool:
        yield from pool.map(call, parts)


def bytes_of(raw: pa.BinaryArray) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """Return the bytes of an array's values, and the positions at which the values end."""
    _, ends, data = raw.buffers()
    offsets = np.frombuffer(ends, np.int32)[raw.offset : raw.offset + len(raw) + 1]
    return (np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)), offsets


def byte_places(text: Bytes, choose: Callable[[Bytes], Mask]) -> Rows:
    """Return the positions of the bytes that `choose` selects.

    The text is searched in pieces that stay in the processor's cache.
    """
    found = [start + np.flatnonzero(choose(text[start : start + _PIECE])) for start in range(0, len(text), _PIECE)]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def pair_places(text: Bytes, pairs: Sequence[bytes]) -> Rows:
    """Return the positions of pairs of bytes, in no particular order."""
    numbers = np.frombuffer(b"".join(pairs), np.uint16)
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(text), _PIECE):
        # A pair begins at an even or at an odd position.
        for first in (start, start + 1):
            piece = text[first : first + _PIECE]
            halves = piece[: len(piece) // 2 * 2].view(np.uint16)
            found += [first + 2 * np.flatnonzero(same) for one in numbers if (same := halves == one).any()]
    return np.concatenate(found)


_PIECE = 2**18
"""The number of bytes that are searched at a time. It is even, so that each pair is found once."""


def blank_mask(raw: pa.BinaryArray) -> Mask:
    """Return a mask of the lines that consist only of characters that are allowed around a record."""
    try:
        return matches(raw.cast(pa.string()), _BLANK)
    except pa.ArrowInvalid:
        texts = pa.array([one.as_py().decode() if one.is_valid and is_utf8(one) else None for one in raw], pa.string())
        return matches(texts, _BLANK)


def is_utf8(value: pa.Scalar) -> bool:
    try:
        value.as_py().decode() if value.is_valid else None
    except UnicodeDecodeError:
        return False
    return True


_BLANK = r"^[ \t\r\x{FEFF}]*$"
