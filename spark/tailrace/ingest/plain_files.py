"""Read files in a Python process, as far as they are plain: lines of JSON, and columns of Parquet.

The rest is left for Spark to judge: lines, or the files as a whole, for which None is given.
"""

from __future__ import annotations

import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.plain_columns import fitting, schema_of
from tailrace.ingest.plain_json import LINES, blank, read_lines
from tailrace.ingest.sources import file_system
from tailrace.model.base.errors import TailraceError
from tailrace.model.logs.log import Log


class UnplainError(TailraceError, ValueError):
    """A file is not plain: Spark has to look closer at it."""


def read_json(log: Log, paths: Sequence[str], counting: BlankLines) -> tuple[pa.Table, pa.Table] | None:
    """Read the plain lines of files: their records, and the lines that are left; None where a file is not plain.

    Blank lines are left out, and counted.
    """
    tables = [_lines(path) for path in paths]
    if not paths or any(one is None for one in tables):
        return None
    records, left = read_lines(log, pa.concat_tables([one for one in tables if one is not None]))
    judged = left.filter(pc.invert(blank(left)))
    counting.here += left.num_rows - judged.num_rows
    return records, judged


def read_parquet(log: Log, paths: Sequence[str]) -> pa.Table | None:
    """Read files whose columns have just the declared types; None where Spark has to look closer at one."""
    try:
        tables = [table for path in paths for table in parquet_parts(log, path)]
    except UnplainError:
        return None
    return pa.concat_tables(tables) if tables else None


def parquet_parts(log: Log, path: str, most: int | None = None) -> Iterator[pa.Table]:
    """Read a file of columns of the declared types in parts of about `most` bytes, or whole where none are given.

    Raises `UnplainError` where Spark has to look closer at the file.
    """
    schema, begins = schema_of(log), 0
    try:
        with _opened(path) as (opened, source, arrived), pq.ParquetFile(opened) as file:
            there = {field.name: field.type for field in file.schema_arrow}
            if not _as_declared(log, file.schema_arrow.names, there):
                raise UnplainError(path)
            for read in _tables(file, [name for name in log.columns if name in there], most):
                # Bytes that are no text fail here, for Spark to judge.
                read.validate(full=True)
                rows = read.num_rows
                made = {name: read[name].cast(schema.field(name).type) for name in there if name in log.columns}
                made |= {"_source": pa.repeat(pa.scalar(source, pa.string()), rows)}
                made |= {"_offset": pa.arange(begins, begins + rows)}
                at = pa.scalar(arrived, schema.field("_arrival").type)
                made["_arrival"] = pa.repeat(at, rows) if log.arrival_time is None else made[log.arrival_time]
                columns = [made.get(field.name, pa.nulls(rows, field.type)) for field in schema]
                table = pa.table(columns, schema=schema)
                if not pc.all(fitting(log, table), min_count=0).as_py():
                    raise UnplainError(path)
                yield table
                begins += rows
    except (OSError, pa.ArrowException) as error:
        raise UnplainError(path) from error


def _tables(file: pq.ParquetFile, columns: Sequence[str], most: int | None) -> Iterator[pa.Table]:
    """Read these columns of a file in parts of about `most` bytes."""
    metadata = file.metadata
    size = sum(metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups))
    if most is None or size <= most:
        yield file.read(columns=columns)
        return
    rows = max(1, metadata.num_rows * most // size)
    yield from map(pa.Table.from_batches, ([batch] for batch in file.iter_batches(rows, columns=columns)))


def _as_declared(log: Log, names: Sequence[str], there: Mapping[str, pa.DataType]) -> bool:
    """Tell whether a file's columns have distinct names and the declared types; a missing one is null."""
    if len({name.lower() for name in names}) < len(names):
        return False
    if log.unknown == "reject" and not set(names) <= set(log.columns):
        return False
    if any(name is not None and name not in there for name in (log.event_time, log.arrival_time)):
        return False
    schema = schema_of(log)
    return all(_alike(type) == schema.field(name).type for name, type in there.items() if name in log.columns)


def _alike(type: pa.DataType) -> pa.DataType:
    """Return the type that a column is taken as: text is text, and an instant with a zone is one in UTC."""
    if pa.types.is_timestamp(type) and type.tz and type.unit in ("ms", "us"):
        return pa.timestamp("us", "UTC")
    return pa.string() if type == pa.large_string() else type


def _lines(path: str) -> pa.Table | None:
    """Read the lines of a file with their places; None where Spark may read it otherwise, or it cannot be read."""
    if not _PLAIN_TEXT.search(path):
        return None
    try:
        with _opened(path) as (file, place, arrived):
            data = file.read()
    except (OSError, UnplainError, pa.ArrowException):
        return None
    lines = pc.list_flatten(pc.split_pattern(pa.array([data], pa.large_binary()), b"\n")).cast(pa.binary())
    if data.endswith(b"\n") or data in (b"", BOM_UTF8):
        # What follows the last end of a line is none, and neither is an empty file or a mark by itself.
        lines = lines[:-1]
    source, at = pa.scalar(place, pa.string()), pa.scalar(arrived, LINES.field("_arrival").type)
    places = [pa.repeat(source, len(lines)), pa.arange(0, len(lines)), pa.repeat(at, len(lines))]
    return pa.table([lines, *places], schema=LINES)


@contextmanager
def _opened(path: str) -> Iterator[tuple[Any, str, int]]:
    """Open a file by Spark's name for it; give its name as a source, too, and when it was written.

    Raises `UnplainError` for a name with odd characters, or of a file that is neither on this machine nor in S3.
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
    """Return the local path of a file by Spark's name for it; None elsewhere, and for names with odd characters."""
    parsed = urlparse(path)
    if parsed.scheme not in ("", "file") or parsed.netloc or not re.fullmatch(_PLAIN_NAME, parsed.path, re.ASCII):
        return None
    return parsed.path


def arrival(file: int) -> int:
    """Return when an open file was written, in microseconds, cut to whole milliseconds as Spark has them."""
    return _whole_milliseconds(os.fstat(file).st_mtime_ns)


def _whole_milliseconds(nanoseconds: int) -> int:
    return nanoseconds // 10**6 * 1000


_PLAIN_NAME = r"[\w./=-]+"
_IN_S3 = re.compile(rf"s3[an]?://{_PLAIN_NAME}", re.ASCII)
_PLAIN_TEXT = re.compile(r"\.(?:json|jsonl|ndjson|txt|log)$")
"""The endings of the names of files that Spark does not decompress."""
