"""Read files without Spark: plain lines of JSON and CSV files, and Parquet files.

Other files of text are left to Spark: for them, the functions in this module return None or raise `UnplainError`.
Parquet files are read by this module only, in this process and on Spark's executors.
"""

from __future__ import annotations

import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any, TypeAlias
from urllib.parse import quote, urlparse

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.avro_files import AvroFile, AvroRows, DamagedAvroError
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.column_slices import ColumnSlices, open_parquet
from tailrace.ingest.compressed_text import open_text
from tailrace.ingest.csv_reader import csv_reader, header_line
from tailrace.ingest.json_reader import json_reader
from tailrace.ingest.json_values import ValueSplitter, has_values
from tailrace.ingest.line_reader import LINES, LineReader, one_ahead, read_all
from tailrace.ingest.parquet_reader import ParquetColumns
from tailrace.ingest.plain_columns import row_bytes, schema_of
from tailrace.ingest.room import COLUMNS, SLICE, Room
from tailrace.ingest.sources import TYPED, Format, file_system, longest_line, raw_fault
from tailrace.lake.catalog.detached_table import batched_by_size
from tailrace.model.base.errors import TailraceError
from tailrace.model.logs.csv_records import CsvHeaderError
from tailrace.model.logs.log import Log

Opened: TypeAlias = tuple[Any, str, int]
"""An open file, the name that the log stores, and the modification time in microseconds."""

Opener: TypeAlias = Callable[[str], AbstractContextManager[Opened]]


class UnplainError(TailraceError, ValueError):
    """The error for a file that is not plain, so that Spark must read it."""


class UnreadableFileError(TailraceError, OSError):
    """The error for a file that is gone or damaged, with the reason; the message has the name of the file, encoded."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{quote(path, safe='/:')} is not read: {reason}")
        self.path, self.reason = path, reason


def read_plain(
    log: Log, format: Format, paths: Sequence[str], counting: BlankLines, room: Room | None = None
) -> pa.Table | None:
    """Read the records of files of any format, as `read_typed` or `read_text` does."""
    if format in TYPED:
        return read_typed(log, format, paths, room)
    return read_text(log, format, paths, counting, room)


def read_text(
    log: Log, format: Format, paths: Sequence[str], counting: BlankLines, room: Room | None = None
) -> pa.Table | None:
    """Read the records of JSON or CSV files, valid and rejected ones; return None if Spark must read one of the files.

    Blank lines are dropped and counted. Raises `TooLargeError` if the records do not fit in the available memory
    (`room`).
    """
    parts, blanks, space = [schema_of(log).empty_table()], BlankLines(), room or Room()
    try:
        for records, read in text_parts(log, format, paths, blanks, space.slice):
            space.take(records.nbytes, read)
            parts.append(records)
    except UnplainError:
        return None
    counting.here += blanks.here
    return pa.concat_tables(parts) if paths else None


def text_parts(
    log: Log, format: Format, paths: Sequence[str], counting: BlankLines, most: int, opened: Opener | None = None
) -> Iterator[tuple[pa.Table, int]]:
    """Read the records of JSON or CSV files in parts of about `most` bytes of text; small files share a part.

    Yields the records of a part, valid and rejected ones, and the number of bytes that were read from the files. Raises
    `UnplainError` if Spark might read a file differently.
    """
    lines = (part for path in paths for part in _unparsed(log, format, path, most, opened or _opened_text))
    for some in one_ahead(batched_by_size(lines, most, lambda part: part.lines.nbytes)):
        for reader, parts in groupby(some, key=lambda part: part.reader):
            alike = list(parts)
            texts = pa.concat_tables([part.lines for part in alike])
            records = read_all(reader, texts, counting)
            yield records, sum(part.read for part in alike)


def read_whole(log: Log, format: Format, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read JSON or CSV files on an executor, whatever their names; the schema is `whole_schema`.

    The last row has the number of blank lines, and is no record. Raises `UnreadableFileError` if a file cannot be read.
    """
    pa.set_cpu_count(1)
    schema, blank = whole_schema(log), BlankLines()
    for path in paths:
        try:
            for records, _ in text_parts(log, format, [path], blank, SLICE, opened):
                none = pa.nulls(records.num_rows, pa.int64())
                yield from records.append_column(schema.field(_BLANK), none).combine_chunks().to_batches()
        except UnplainError as error:
            raise UnreadableFileError(path, str(error.__cause__ or error)) from error
    last = [pa.array([blank.here]) if one.name == _BLANK else pa.nulls(1, one.type) for one in schema]
    yield pa.RecordBatch.from_arrays(last, schema=schema)


def whole_schema(log: Log) -> pa.Schema:
    """Return the schema of `read_whole`: the columns of records, and the number of blank lines."""
    return schema_of(log).append(pa.field(_BLANK, pa.int64()))


_BLANK = "_blank"


@dataclass(frozen=True)
class _Part:
    """Unparsed records of a file, their reader, and the number of the file's bytes that were read for them."""

    reader: LineReader
    lines: pa.Table
    read: int


def read_typed(log: Log, format: Format, paths: Sequence[str], room: Room | None = None) -> pa.Table:
    """Read the records of Parquet or Avro files, valid and rejected ones; an unreadable file is one rejected record.

    Raises `TooLargeError` if the records do not fit in the available memory (`room`).
    """
    tables, space = [schema_of(log).empty_table()], room or Room()
    for path in paths:
        before, read = space.taken, list[pa.Table]()
        try:
            for table in typed_parts(log, format, path, COLUMNS * space.slice, space.check):
                space.take(table.nbytes)
                read.append(table)
        except UnreadableFileError as error:
            space.taken, read = before, [unreadable_rows(log, {path: error.reason})]
        tables += read
    return pa.concat_tables(tables)


def typed_parts(
    log: Log, format: Format, path: str, most: int, check: Callable[[int], None] | None = None
) -> Iterator[pa.Table]:
    """Read the records of a Parquet file (`parquet_parts`), or the records of an Avro file in small parts."""
    if format == "parquet":
        yield from parquet_parts(log, path, most, check)
        return
    try:
        with opened(path) as (file, source, arrived):
            yield from AvroRows(log, AvroFile(file)).read(source, arrived)
    except (OSError, DamagedAvroError, pa.ArrowException) as error:
        raise UnreadableFileError(path, raw_fault(path) or f"the file cannot be read as avro: {error}") from error


def parquet_parts(
    log: Log, path: str, most: int, check: Callable[[int], None] | None = None, groups: range | None = None
) -> Iterator[pa.Table]:
    """Read the records of a Parquet file, valid and rejected ones, in parts of about `most` bytes.

    Before any data is read, `check` is called with the minimum number of bytes of memory that the file's records will
    take. If `groups` is given, only these row groups are read. Raises `UnreadableFileError` if the file is damaged or
    gone, and `SourceError` if its bytes cannot be read.
    """
    try:
        with opened(path) as (file, source, arrived), open_parquet(file) as found:
            columns = ParquetColumns.of(log, found)
            if columns.twice:
                raise UnreadableFileError(path, columns.unlike)
            rows, begins = columns.reader(), 0
            those = range(found.num_row_groups) if groups is None else groups
            for group in range(those.start if those else 0):
                begins += found.metadata.row_group(group).num_rows
            slices = ColumnSlices(file, found, columns.leaves, row_bytes(log, source), list(those))
            for read in slices.read(most, check or _unchecked):
                for records in rows.read(read, source, begins, arrived):
                    yield records
                    begins += records.num_rows
    except UnreadableFileError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UnreadableFileError(path, raw_fault(path) or f"the file cannot be read as parquet: {error}") from error


def typed_fault(log: Log, format: Format, path: str) -> str | None:
    """Read a whole Parquet or Avro file, and return the reason why it is unreadable, or None if it is readable."""
    try:
        for _ in typed_parts(log, format, path, COLUMNS * SLICE):
            pass
    except UnreadableFileError as error:
        return error.reason
    return None


def unreadable_rows(log: Log, reasons: Mapping[str, str]) -> pa.Table:
    """Return a rejected record for each file that cannot be read; `reasons` maps the names of the files to reasons."""
    rows = [{"_source": path, "_offset": 0, "_error": reason} for path, reason in reasons.items()]
    return pa.Table.from_pylist(rows, schema_of(log))


def _unchecked(bytes: int) -> None:
    """Accept any number of bytes."""


@contextmanager
def opened(path: str) -> Iterator[Opened]:
    """Open a file by Spark's name; yield the open file, the name that the log stores, and the modification time.

    Raises `OSError` or `ArrowException` if the file cannot be opened.
    """
    files, name = file_system(path)
    with files.open_input_file(name) as file:
        yield file, stored_name(path), _whole_milliseconds(files.get_file_info(name).mtime_ns or 0)


def stored_name(path: str) -> str:
    """Return the name of a file as the log stores it: Spark's name, with unusual characters encoded as in a URI.

    >>> stored_name("/data/a b#1.parquet"), stored_name("s3a://bucket/é=1/50%.parquet")
    ('file:/data/a%20b%231.parquet', 's3a://bucket/é=1/50%25.parquet')
    """
    place = path if re.match(r"\w+:", path) else f"file:{path}"
    return re.sub(r"[^\w.!~'()*;/:@&=+$,-]|[\x7f-\xa0]", lambda found: quote(found[0]), place)


def _unparsed(log: Log, format: Format, path: str, most: int, opened: Opener) -> Iterator[_Part]:
    """Read the unparsed records of a file with their positions, in parts of about `most` bytes.

    Raises `UnplainError` if Spark might read the file differently, if the file cannot be read, or if a line is longer
    than `longest_line` allows.
    """
    try:
        with opened(path) as (file, place, arrived):
            text = open_text(path, file)
            if text is None:
                raise UnplainError(path)
            head = values = None
            if format == "json":
                values, head = has_values(partial(text.read, 1 << 16), log.record_bytes)
            data = chain([head] if head else [], iter(partial(text.read, most), b""))
            found = _values(log, data, most) if values else _lines(log, path, data, most)
            reader: LineReader | None = json_reader(log) if format == "json" else None
            begins, before = 0, 0
            for lines in found:
                if reader is None:
                    reader = csv_reader(log, header_line(lines) if log.csv.header else None)
                yield _Part(reader, _placed(lines, place, arrived, begins), file.tell() - before)
                begins, before = begins + len(lines), file.tell()
    except (OSError, EOFError, CsvHeaderError, pa.ArrowException) as error:
        raise UnplainError(path) from error


def _values(log: Log, data: Iterator[bytes], most: int) -> Iterator[pa.Array]:
    """Divide the text of a JSON file without lines into its records."""
    splitter = ValueSplitter(log.record_bytes)
    for part in chain(data, [None]):
        yield from _in_rows(splitter.split(part or b"", last=part is None), most)


def _lines(log: Log, path: str, data: Iterator[bytes], most: int) -> Iterator[pa.Array]:
    """Divide the text of a file into its lines.

    Raises `UnplainError` if a line is longer than `longest_line` allows.
    """
    # The parts of a long line are joined only once its end is found: joining them needs as much memory once more.
    rest, held, begun = list[bytes](), 0, False
    for part in data:
        end = part.rfind(b"\n") + 1
        if not end:
            rest.append(part)
            held += len(part)
            if held > longest_line(log):
                raise UnplainError(path) from ValueError("a line is too long")
            continue
        whole, end, begun = b"".join([*rest, part]) if held else part, held + end, True
        rest = [whole[end:]]
        held = len(rest[0])
        lines = _split(whole, end, most)
        del part, whole
        yield from lines
    if held and (begun or b"".join(rest) != BOM_UTF8):
        # Yield the last line, unless the file contains only a byte order mark and therefore no line.
        yield pa.array([b"".join(rest)], pa.binary())


def _split(data: bytes, end: int, most: int) -> Iterator[pa.Array]:
    """Split text that ends with a line end into arrays of lines.

    The lines of an array take about `most` bytes of memory, including their positions.
    """
    ends = pa.array([0, end], pa.int64()).buffers()[1]
    text = pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(data)])
    lines = pc.list_flatten(pc.split_pattern(text, b"\n")).cast(pa.binary())[:-1]
    del text, data
    yield from _in_rows(lines, most)


def _in_rows(lines: pa.Array, most: int) -> Iterator[pa.Array]:
    rows = max(1, most // _PLACED)
    for begins in range(0, len(lines), rows):
        yield lines[begins : begins + rows]


def _placed(lines: pa.Array, place: str, arrived: int, begins: int) -> pa.Table:
    source, at = pa.scalar(place, pa.string()), pa.scalar(arrived, LINES.field("_arrival").type)
    rows = len(lines)
    places = [pa.repeat(source, rows), pa.arange(begins, begins + rows), pa.repeat(at, rows)]
    return pa.table([lines, *places], schema=LINES)


@contextmanager
def _opened_text(path: str) -> Iterator[Opened]:
    """Open a text file as `_opened` does; raises `UnplainError` if Spark might not take the file for text."""
    if not _PLAIN_TEXT.search(path):
        raise UnplainError(path)
    with _opened(path) as opened:
        yield opened


@contextmanager
def _opened(path: str) -> Iterator[Opened]:
    """Open a file by Spark's name; yield the open file, the name that the log stores, and the modification time.

    Raises `UnplainError` if the name has unusual characters, or if the file is neither on this machine nor in S3.
    """
    place = local(path)
    if place is not None:
        with open(place, "rb") as file:
            yield file, "file:" + place, arrival(file.fileno())
        return
    if not _IN_S3.fullmatch(path):
        raise UnplainError(path)
    files, name = file_system(path)
    written = files.get_file_info(name).mtime_ns
    if written is None:
        raise UnplainError(path)
    with files.open_input_file(name) as file:
        yield file, path, _whole_milliseconds(written)


def local(path: str) -> str | None:
    """Return the local path of a file, given Spark's name for the file.

    Returns None if the file is not local, or if its name has unusual characters.
    """
    parsed = urlparse(path)
    if parsed.scheme not in ("", "file") or parsed.netloc or not re.fullmatch(_PLAIN_NAME, parsed.path, re.ASCII):
        return None
    return parsed.path


def arrival(file: int) -> int:
    """Return the modification time of an open file in microseconds. Like Spark, round the time down to milliseconds."""
    return _whole_milliseconds(os.fstat(file).st_mtime_ns)


def _whole_milliseconds(nanoseconds: int) -> int:
    return nanoseconds // 10**6 * 1000


_PLAIN_NAME = r"[\w./=-]+"
_IN_S3 = re.compile(rf"s3[an]?://{_PLAIN_NAME}", re.ASCII)
_PLAIN_TEXT = re.compile(r"\.(?:json|jsonl|ndjson|csv|tsv|txt|log)(?:\.(?:gz|bz2|zst|deflate|snappy))?$")
"""A pattern for the names of the text files that this module reads.

Spark reads files with these names as text, or decompresses them in the same way as this module.
"""

_PLACED = 100
"""The minimum number of bytes of memory that a line and its position take."""
