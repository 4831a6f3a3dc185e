"""Read plain lines of JSON without Spark; leave all other lines to Spark.

A line is plain if a strict pattern matches all of its text. The pattern matches one object that has only declared
columns, and no column twice. Values must have no escapes, no exponents, and no numbers near the bounds of their type;
instants must be in ISO 8601 with at most six decimal places. So for a plain line, this module returns the same record
as Spark (`ingest.parsing`). For a line that is not plain, Spark decides whether it is valid.
"""

from __future__ import annotations

import json
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tailrace.ingest.column_types import ZONE, column_type
from tailrace.ingest.plain_columns import fit_mask, schema_of
from tailrace.model.logs.log import Log

SHAPES = 16
"""The maximum number of different shapes of lines that are recognized in an epoch.

The shape of a line is the sequence of its columns.
"""

LINES = pa.schema(
    {
        "_bytes": pa.binary(),
        "_source": pa.string(),
        "_offset": pa.int64(),
        "_arrival": pa.timestamp("us", "UTC"),
    }
)
"""The columns of unparsed lines: the bytes, the position, and the arrival time."""


def read_lines(log: Log, lines: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Parse the plain lines or messages; return their records, and the remaining lines."""
    lines = lines.combine_chunks()
    text = _text(lines["_bytes"])
    plain = _plain(log, text)
    if all_plain := pc.all(plain, min_count=0).as_py():
        given, said = lines, text
    else:
        given, said = lines.filter(plain), text.filter(plain)
    try:
        records = _typed(log, given, said)
    except pa.ArrowInvalid:
        # Some text in the lines has the form of a date but is not a valid date. So all lines are left to Spark, which
        # finds the line with the invalid date.
        return schema_of(log).empty_table(), lines
    fits = fit_mask(log, records)
    left = lines.schema.empty_table() if all_plain else lines.filter(pc.invert(plain))
    if not pc.all(fits, min_count=0).as_py():
        left = pa.concat_tables([left, given.filter(pc.invert(fits))])
        records = records.filter(fits)
    return records, left


def _text(raw: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode lines to texts. A text is null if its line is null or is not UTF-8."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.chunked_array([pa.array([_decoded(one) for one in raw.to_pylist()], pa.string())])


def _decoded(one: bytes | None) -> str | None:
    try:
        return None if one is None else one.decode()
    except UnicodeDecodeError:
        return None


def blank_mask(lines: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the lines that consist only of white space that is allowed around a record."""
    return _matches(_text(lines["_bytes"]), _BLANK)


def _matches(text: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.match_substring_regex(text, pattern), False)


def _plain(log: Log, text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a mask of the plain lines.

    All lines are compared with the shape of the first line. The lines that do not match are compared with the shape of
    the first of these lines, and so on.
    """
    # Leave to Spark the lines that are larger than one of Arrow's blocks, because Arrow cannot read such a line.
    fits = pc.fill_null(pc.less(pc.binary_length(text), min(log.record_bytes + 1, _BLOCK)), False)
    plain, first = pc.and_(pc.is_null(text), False), -1
    for _ in range(SHAPES):
        first = pc.index(plain, pa.scalar(False), start=first + 1).as_py()
        if first < 0:
            break
        names = _names(text[first].as_py())
        pattern = None if names is None else _pattern(log, names)
        if pattern is not None:
            plain = pc.or_(plain, _matches(text, pattern))
    return pc.and_(plain, fits)


def _names(line: str | None) -> tuple[str, ...] | None:
    """Return the names of the columns in a line, in their order, or None if the line is not a JSON object."""
    try:
        pairs = json.loads(line or "", object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    # Distinguish an object from a JSON list: the parser returns an object as a list of tuples, and a JSON list as a
    # list without tuples.
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        return None
    return tuple(name for name, _ in pairs)


@lru_cache(maxsize=256)
def _of_shape(columns: tuple[tuple[str, str], ...], names: tuple[str, ...]) -> str:
    types = dict(columns)
    values = (f"{_QUOTE}{_exactly(name)}{_QUOTE} *: *(?:null|{column_type(types[name]).plain})" for name in names)
    return rf"^[ \t]*\{{ *{' *, *'.join(values)} *\}}[ \t]*\r?$"


def _exactly(name: str) -> str:
    """Return a pattern for RE2 that matches exactly this name; RE2 does not support all escapes of `re.escape`."""
    return "".join(one if one.isalnum() else f"\\x{{{ord(one):X}}}" for one in name)


def _pattern(log: Log, names: tuple[str, ...]) -> str | None:
    """Return a pattern for the plain lines that have exactly these columns in this order.

    Returns None if a column is undeclared or repeated, or if its name must be escaped in JSON.
    """
    if len(set(names)) < len(names) or not names or not set(names) <= set(log.columns):
        return None
    if any(json.dumps(name, ensure_ascii=False) != f'"{name}"' for name in names):
        return None
    return _of_shape(tuple(log.columns.items()), names)


def _typed(log: Log, lines: pa.Table, text: pa.ChunkedArray) -> pa.Table:
    """Parse plain lines to records. Raises `ArrowInvalid` if a date does not exist in the calendar."""
    schema = schema_of(log)
    if not len(text):
        return schema.empty_table()
    types = {name: column_type(type) for name, type in log.columns.items()}
    declared = pa.schema({name: one.arrow if one.plain_as is None else one.plain_as for name, one in types.items()})
    read = pj.read_json(
        pa.BufferReader(_joined(text)),
        read_options=pj.ReadOptions(block_size=_BLOCK),
        parse_options=pj.ParseOptions(explicit_schema=declared, unexpected_field_behavior="error"),
    )
    assert read.num_rows == len(text), "a line is a record"
    columns = {name: _converted(read[name], one.arrow) for name, one in types.items()}
    columns |= {name: lines[name] for name in ("_source", "_offset", "_arrival")}
    if log.arrival_time is not None:
        columns["_arrival"] = columns[log.arrival_time]
    nothing = {name: pa.nulls(len(text), schema.field(name).type) for name in ("_error", "_raw")}
    return pa.table([{**columns, **nothing}[name] for name in schema.names], schema=schema)


def _joined(text: pa.ChunkedArray) -> bytes:
    """Join lines into one text, separated by line ends, and return its bytes."""
    whole = (pa.LargeListArray.from_arrays(pa.array([0, len(one)], pa.int64()), one) for one in text.chunks if len(one))
    return b"\n".join(pc.binary_join(one, "\n")[0].as_buffer() for one in whole)


def _converted(column: pa.ChunkedArray, type: pa.DataType) -> pa.ChunkedArray:
    if column.type == type:
        return column
    return _instants(column) if pa.types.is_timestamp(type) else column.cast(type)


def _instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Parse texts as instants; an instant without a time zone is taken as UTC."""
    zoned = _matches(column, ZONE + "$")
    alike = set(pc.unique(pc.if_else(pc.is_null(column), None, zoned)).to_pylist()) - {None}
    if alike == {False}:
        return column.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    if len(alike) > 1:
        column = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
    return column.cast(pa.timestamp("us", "UTC"))


_BLOCK = 1 << 24
_QUOTE = '"'
_BLANK = r"^[ \t\r\x{FEFF}]*$"
