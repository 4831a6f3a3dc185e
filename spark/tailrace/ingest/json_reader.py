"""Read JSON lines and messages to a log's columns, many records at a time.

Arrow parses the records. Its parser is strict: a value must have the declared type, and no name may be there twice. A
record that Arrow cannot read, or that has a value that Arrow might read differently, is read by the model's own reader
(`model.logs.json_records`), which also knows the reason for rejecting a record. So the result for a record does not
depend on the records beside it. The reader runs in this process and on Spark's executors alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tailrace.ingest.column_types import column_type
from tailrace.ingest.json_texts import list_sums
from tailrace.ingest.line_reader import (
    BlankCount,
    Bytes,
    Doubt,
    LineReader,
    Rows,
    byte_places,
    bytes_of,
    is_utf8,
    matches,
    on_threads,
    pair_places,
    part_starts,
    read_all,
    some_rows,
    without_blank,
)
from tailrace.ingest.plain_columns import Mask, fit_mask
from tailrace.ingest.plain_values import unrounded_type
from tailrace.model.base.json_scalars import rounded_in
from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.json_records import Branch, JsonRecords, branch_of
from tailrace.model.logs.log import ROUNDED, UNITS, Log
from tailrace.model.logs.shapes import AS_TEXT, Field, Listed, Mapped, Plain, Shape, Struct

TOGETHER = 4_000
"""The number of records that Arrow parses in one call. If one of them is invalid, only these are parsed again."""

FEW = 4
"""The number of records among which the model's reader searches for an invalid record, without Arrow."""


def read_lines(log: Log, lines: pa.Table, blank: BlankCount | None = None) -> pa.Table:
    """Read lines or messages; the result has a row for each valid or rejected record (`plain_columns.schema_of`).

    The rows are in the order of the lines. If `blank` is given, lines of white space are not records, and are counted.
    """
    return read_all(json_reader(log), lines, blank)


def json_reader(log: Log) -> JsonReader:
    """Return the reader of a log. It is built once for each log."""
    found: JsonReader | None = log.__dict__.get(_READER)
    if found is None:
        found = JsonReader(log)
        log.__dict__[_READER] = found
    return found


_READER = "_json_reader"


class JsonReader(LineReader):
    """The reader of a log's JSON lines. If `times` is False, the times of the records are not checked."""

    def __init__(self, log: Log, *, times: bool = True) -> None:
        records = JsonRecords(log, times=times)
        super().__init__(log, records, records)
        self._times = times
        slow = [one for one in log.shape if not _arrow_parses(one.shape)]
        # The model's reader can read single columns of a record only if it need not reject undeclared fields.
        loose = log.unknown == "ignore" or log.rest is not None
        apart = (not slow and log.rest is None) or (loose and all(len(one.place) == 1 for one in slow))
        self._root = branch_of(one for one in log.shape if one not in slow)
        self._declared = _schema(self._root) if apart else None
        self._some = JsonRecords(log, [one.name for one in slow]) if apart and (slow or log.rest is not None) else None
        self._strict = not loose
        self._decimals = _spelled_decimals(log)

    def read(self, batch: pa.RecordBatch, blank: BlankCount | None = None) -> pa.Table:
        raw = batch.column(0)
        if self._declared is None or not len(raw):
            return self.judged(batch, without_blank(raw, np.arange(len(raw)), blank))
        tables, read, left = list[pa.Table](), list[Rows](), list[Rows]()
        starts = part_starts(len(raw), TOGETHER)
        for made, sure, unsure in on_threads(partial(self._read, batch, starts.step), starts):
            tables += made
            read += sure
            left += unsure
        judged = np.sort(np.concatenate(left))
        if not len(judged):
            return pa.concat_tables(tables)
        judged = without_blank(raw, judged, blank)
        order = np.argsort(np.concatenate([*read, judged]))
        return pa.concat_tables([*tables, self.judged(batch, judged)]).take(pa.array(order))

    def _read(self, batch: pa.RecordBatch, most: int, start: int) -> tuple[list[pa.Table], list[Rows], list[Rows]]:
        """Read the lines from the index `start` on with Arrow, `most` lines at most.

        Returns the records, their lines, and the lines that the model's reader must read.
        """
        likely = self._likely(batch.column(0).slice(start, most))
        tables, sure, left = list[pa.Table](), list[Rows](), [start + np.flatnonzero(~likely)]
        for some, parsed in self._parsed(batch.column(0), start + np.flatnonzero(likely)):
            if parsed is None:
                left.append(some)
            else:
                table, unsure = self._converted(batch, some, parsed)
                tables.append(table)
                sure.append(some[~unsure])
                left.append(some[unsure])
        return tables, sure, left

    def _likely(self, raw: pa.BinaryArray) -> Mask:
        """Return a mask of the lines that Arrow may parse: each begins with `{`, ends with `}`, and is UTF-8.

        White space around a line does not matter. If each line of a text begins and ends so, no object goes on in the
        next line: after a `}` inside of an object or a list, JSON has no `{`. So a text with as many objects as lines
        has one object in each line.
        """
        size = pc.fill_null(pc.binary_length(raw), 0).to_numpy(zero_copy_only=False)
        data, ends = bytes_of(raw)
        likely: Mask = (size > 1) & (size <= self.log.record_bytes)
        first, last = np.minimum(ends[:-1], len(data) - 1), np.maximum(ends[1:] - 1, 0)
        for _ in range(_SPACES):
            first, last = first + (_WHITE[data[first]] & (first < last)), last - (_WHITE[data[last]] & (first < last))
        likely &= (data[first] == _OPEN) & (data[last] == _CLOSE)
        try:
            raw.cast(pa.string())
        except pa.ArrowInvalid:
            likely &= np.array([is_utf8(one) for one in raw], np.bool_)
        # Only a line with so many bytes can be nested too deeply.
        if (likely & (size > 2 * self.log.depth)).any():
            text = data[ends[0] : ends[-1]]
            opening = ends[0] + byte_places(text, _opens)
            likely &= np.diff(np.searchsorted(opening, ends)) <= self.log.depth
        return likely

    def _parsed(self, raw: pa.BinaryArray, rows: Rows) -> Iterator[tuple[Rows, pa.Table | None]]:
        """Parse lines with Arrow; yield the lines with their values, or with None if Arrow could not parse them."""
        if not len(rows):
            return
        found = self._parse(some_rows(raw, rows))
        if isinstance(found, pa.Table):
            yield rows, found
        elif len(rows) <= FEW:
            yield rows, None
        elif found is None:
            yield from self._parsed(raw, rows[: len(rows) // 2])
            yield from self._parsed(raw, rows[len(rows) // 2 :])
        else:
            yield rows[found : found + 1], None
            for some in (rows[:found], rows[found + 1 :]):
                if len(some):
                    yield from self._parsed(raw, some)

    def _parse(self, lines: pa.BinaryArray) -> pa.Table | int | None:
        """Parse lines in one call of Arrow; if this fails, return the index of the first faulty line, if known."""
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        text = pc.binary_join(whole, b"\n")[0].as_buffer()
        options = pj.ParseOptions(
            explicit_schema=self._declared,
            unexpected_field_behavior="error" if self._strict else "ignore",
        )
        # The block has all lines, so that the row in an error is the index of a line.
        block = pj.ReadOptions(block_size=len(text) + 1, use_threads=False)
        try:
            read = pj.read_json(pa.BufferReader(text), read_options=block, parse_options=options)
        except pa.ArrowInvalid as error:
            place = _IN_ROW.search(str(error))
            return int(place[1]) if place and int(place[1]) < len(lines) else None
        return read if read.num_rows == len(lines) else None

    def _converted(self, batch: pa.RecordBatch, rows: Rows, read: pa.Table) -> tuple[pa.Table, Mask]:
        """Convert parsed values to the declared types; return the records, and a mask of the lines that are left.

        A line is left if Arrow may have read a value differently from the model, or if the record does not fit.
        """
        lines, size = some_rows(batch, rows), len(rows)
        doubt, columns = Doubt.none(size), dict[str, pa.Array]()
        self._columns(self._root, {name: _one(read[name]) for name in read.column_names}, columns, doubt)
        unsure = doubt.misfits
        if self._decimals is not None:
            unsure |= matches(lines.column(0), self._decimals)
        if doubt.doubles.any():
            sizes = pc.binary_length(lines.column(0)).to_numpy(zero_copy_only=False)
            unsure |= doubt.doubles & ((sizes > 300) | matches(lines.column(0), "[0-9]{16}|[eE]-"))
        if not self._strict:
            unsure |= _no_numbers(lines.column(0))
        if self._some is not None:
            columns |= self._read_some(self._some, lines.column(0), unsure, doubt)
        if self.log.rounds:
            columns[ROUNDED] = pa.array(doubt.rounded, pa.int32())
        self.add_folders(columns, lines.column("_source"), unsure)
        table = self.table(columns, lines)
        if self._times:
            unsure |= ~fit_mask(self.log, table).to_numpy(zero_copy_only=False).astype(np.bool_)
        return (table.filter(pa.array(~unsure)) if unsure.any() else table), unsure

    def _read_some(self, records: JsonRecords, raw: pa.BinaryArray, unsure: Mask, doubt: Doubt) -> dict[str, pa.Array]:
        """Read the columns that Arrow cannot parse, record by record."""
        read = [records.read_some(one) for one in raw.to_pylist()]
        unsure |= np.array([one is None for one in read], np.bool_)
        names = [one.name for one in self.log.shape if not _arrow_parses(one.shape)]
        names += [] if self.log.rest is None else [self.log.rest]
        values = [one or {} for one in read]
        if self.log.rounds:
            doubt.rounded += np.fromiter(map(rounded_in, values), np.int64, len(values))
        return {name: pa.array([one.get(name) for one in values], self.schema.field(name).type) for name in names}

    def _columns(self, branch: Branch, given: Any, made: dict[str, pa.Array], doubt: Doubt) -> None:
        """Convert the values of the fields in an object, and mark the objects with doubtful values."""
        for name, child in branch.children.items():
            values = given[name] if isinstance(given, dict) else given.field(name)
            if isinstance(child, Branch):
                self._columns(child, values, made, doubt)
            else:
                made[child.name] = self._values(child.shape, values, doubt)

    def _values(self, shape: Shape, values: pa.Array, doubt: Doubt) -> pa.Array:
        """Convert values of a shape, and mark doubtful values."""
        if isinstance(shape, Plain):
            return self._plain(shape, values, doubt)
        if isinstance(shape, Struct):
            made = dict[str, pa.Array]()
            self._columns(self.values.inside(shape), values, made, doubt)
            fields = [pa.field(one.name, made[one.name].type) for one in shape.fields]
            arrays = [made[one.name] for one in shape.fields]
            return pa.StructArray.from_arrays(arrays, fields=fields, mask=values.is_null())
        assert isinstance(shape, Listed), "Arrow parses no maps"
        ends, inside = values.offsets.to_numpy(), Doubt.none(len(values.values))
        inner = self._values(shape.element, values.values, inside)
        doubt.misfits |= np.diff(ends) > self.log.elements
        for outer, deep in ((doubt.misfits, inside.misfits), (doubt.doubles, inside.doubles)):
            if deep.any():
                outer |= list_sums(deep, ends) > 0
        if inside.rounded.any():
            doubt.rounded += list_sums(inside.rounded, ends)
        return pa.ListArray.from_arrays(values.offsets, inner, mask=values.is_null())

    def _plain(self, shape: Plain, values: pa.Array, doubt: Doubt) -> pa.Array:
        if shape.type in ("double", "float"):
            return self.finite(shape, values, doubt)
        if shape.form in UNITS:
            return doubt.marked(self.plain.of_numbers(shape, values))
        if shape.type in ("timestamp", "date", "time", "binary"):
            return doubt.marked(self.plain.of_texts(shape, values))
        if shape.rounding is not None:
            made, misfits, rounded = self.plain.rounded(shape, values)
            doubt.rounded += rounded
            return doubt.marked((made, misfits))
        return doubt.marked(self.plain.within_precision(shape, values)) if decimal_parts(shape.type) else values


def _parsed_by_arrow(fields: Sequence[Field]) -> bool:
    return all(_arrow_parses(one.shape) for one in fields)


def _arrow_parses(shape: Shape) -> bool:
    """Return True if Arrow can parse values of a shape. Arrow has no texts as written, and no maps."""
    if isinstance(shape, Plain):
        return shape.type != "json"
    if isinstance(shape, Mapped):
        return False
    if isinstance(shape, Listed):
        return _arrow_parses(shape.element)
    return shape.rest is None and _parsed_by_arrow(shape.fields)


def _schema(branch: Branch) -> pa.Schema:
    return pa.schema([_field(name, child) for name, child in branch.children.items()])


def _field(name: str, child: Branch | Field) -> pa.Field:
    if isinstance(child, Branch):
        return pa.field(name, pa.struct([_field(*one) for one in child.children.items()]))
    return pa.field(name, _as_read(child.shape))


def _as_read(shape: Shape) -> pa.DataType:
    """Return the type with which Arrow reads values of a shape."""
    if isinstance(shape, Listed):
        return pa.list_(_as_read(shape.element))
    if isinstance(shape, Struct):
        return pa.struct([_field(*one) for one in branch_of(shape.fields).children.items()])
    assert isinstance(shape, Plain)
    if shape.form in UNITS:
        return pa.int64()
    if shape.type in ("timestamp", "date", "time", "binary"):
        return pa.string()
    if shape.rounding is not None:
        return unrounded_type(shape.type)
    return pa.float64() if shape.type == "float" else column_type(shape.type).arrow


def _spelled_decimals(log: Log) -> str | None:
    """Return a pattern of lines in which Arrow might read a decimal wrongly.

    Arrow accepts a text for a number. Arrow 26 gives a wrong number if the digits, with zeros up to the scale of the
    type, exceed 128 bits. A name may also be written with escapes. The pattern is None if the log has no decimals.
    """
    given = list(_decimals(branch_of(log.shape)))
    if not given:
        return None
    names = sorted({name for name, _ in given})
    patterns = [
        _valued(names, r'(?:"|\[[^"{}]*"[^"]*"[ \t\r\n]*[,\]])'),
        _valued(names, rf"{_NUMBER}[0-9]+(?:\.[0-9]+)?[eE]\+?[0-9]"),
    ]
    long = dict[int, list[str]]()
    for name, shape in given:
        precision, scale = decimal_parts(shape.type) or (0, 0)
        if shape.rounding is not None or precision + scale > 38:
            long.setdefault(precision - scale + 1, []).append(name)
    patterns += [_valued(some, f"{_NUMBER}[0-9]{{{digits}}}") for digits, some in long.items()]
    escaped = r"\\u00[2-7]" if all(name.isascii() for name in names) else r"\\u"
    return "|".join([*patterns, escaped])


_NUMBER = r'(?:\[(?:[^"{}]*[\[, \t\r\n])?)?-?'
"""The pattern of what may be before the digits of a number, which may be in a list."""


def _valued(names: Iterable[str], value: str) -> str:
    """Return a pattern of members with one of these names, and a value that begins with a pattern."""
    return f'(?:{"|".join(map(_exactly, names))})"[ \t\r\n]*:[ \t\r\n]*{value}'


def _decimals(branch: Branch) -> Iterator[tuple[str, Plain]]:
    """Yield the decimals in an object, at any depth: the names of their members, and their shapes."""
    for name, child in branch.children.items():
        if isinstance(child, Branch):
            yield from _decimals(child)
        else:
            shape: Shape = child.shape
            while isinstance(shape, Listed):
                shape = shape.element
            if isinstance(shape, Plain) and decimal_parts(shape.type) and shape.form != AS_TEXT:
                yield name, shape
            elif isinstance(shape, Struct):
                yield from _decimals(branch_of(shape.fields))


def _exactly(name: str) -> str:
    """Return a pattern for RE2 that matches exactly this name; RE2 does not support all escapes of `re.escape`."""
    return "".join(one if one.isalnum() else f"\\x{{{ord(one):X}}}" for one in name)


def _no_numbers(raw: pa.BinaryArray) -> Mask:
    """Return a mask of the lines that may have NaN or an infinity outside of texts, which Arrow takes for numbers."""
    data, ends = bytes_of(raw)
    text, mask = data[ends[0] : ends[-1]], np.zeros(len(raw), np.bool_)
    found = pair_places(text, (b"Na", b"In"))
    found = found[(found > 0) & (found < len(text) - 2)]
    found = found[_BEFORE_NUMBER[text[found - 1]] & _IN_NUMBER[text[found + 2]]]
    if len(found):
        rows = np.unique(np.searchsorted(ends, ends[0] + found, "right") - 1)
        mask[rows] = matches(raw.take(pa.array(rows)), r"[:,\[][ \t\r\n]*-?(?:NaN|Inf)")
    return mask


def _opens(text: Bytes) -> Mask:
    """Return a mask of the braces and brackets that open an object or a list; their bytes differ in one bit."""
    opens: Mask = (text & _SHARED_BITS) == _LIST
    return opens


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


_IN_ROW = re.compile(r" in row ([0-9]+)$")
_OPEN, _CLOSE, _LIST = b"{}["
_SHARED_BITS = 0xFF ^ _OPEN ^ _LIST
_BEFORE_NUMBER = np.isin(np.arange(256), np.frombuffer(b":,[- \t\r\n", np.uint8))
_IN_NUMBER = np.isin(np.arange(256), np.frombuffer(b"Nf", np.uint8))
_WHITE = np.isin(np.arange(256), np.frombuffer(b" \t\r", np.uint8))
_SPACES = 3
"""The maximum number of white spaces before and after a line that Arrow parses."""
