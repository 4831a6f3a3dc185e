"""Read lines of CSV to a log's columns, many records at a time.

Arrow divides the lines and converts the texts of their cells. A line whose division or conversion is doubtful is read
by the model's own reader (`model.logs.csv_records`), which also knows the reason for rejecting a line. The reader runs
in this process and on Spark's executors alike.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from tailrace.ingest.column_types import column_type
from tailrace.ingest.line_reader import (
    BlankCount,
    Doubt,
    LineReader,
    Rows,
    blank_mask,
    bytes_of,
    is_utf8,
    matches,
    on_threads,
    part_starts,
    some_rows,
    without_blank,
)
from tailrace.ingest.plain_columns import Mask, fit_mask
from tailrace.ingest.plain_values import has_short_decimals
from tailrace.model.base.json_scalars import rounded_in
from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.csv_records import CsvRecords, as_json
from tailrace.model.logs.json_records import SPACE, cell_value
from tailrace.model.logs.log import ROUNDED, UNITS, Log
from tailrace.model.logs.shapes import Plain, Shape

TOGETHER = 16_000
"""The number of lines that Arrow divides in one call."""


class CsvReader(LineReader):
    """The reader of a log's CSV lines below one header; `CsvRecords` has the same arguments."""

    def __init__(self, log: Log, header: bytes | None = None) -> None:
        records = CsvRecords(log, header)
        super().__init__(log, records, records.values)
        self.lines, self.csv = records, log.csv
        special = [self.csv.delimiter, self.csv.quote or "", self.csv.escape or ""]
        self._by_arrow = not records.unlike and all(one.isascii() for one in special)
        self._quoted_well = _quoted_well(self.csv.quote, self.csv.delimiter)
        # In these cases, a blank line or the header may look like a record.
        alone = len(records.names) == 1 or self.csv.delimiter in " \t" or log.event_time in log.folders
        self._looks_at_all = alone and self._by_arrow

    def read(self, batch: pa.RecordBatch, blank: BlankCount | None = None) -> pa.Table:
        raw, rows = batch.column(0), np.arange(batch.num_rows)
        if not self._by_arrow or not len(rows):
            return self.judged(batch, self._records(raw, rows, blank))
        if self._looks_at_all:
            rows = self._records(raw, rows, blank)
        text, likely = self._texts(some_rows(raw, rows))
        sure = rows[likely]
        text = text if likely.all() else text.filter(pa.array(likely))
        starts = part_starts(len(sure), TOGETHER)
        cut = [np.arange(start, min(start + starts.step, len(sure))) for start in starts]
        tables, read = list[pa.Table](), list[Rows]()
        for made, some in on_threads(partial(self._read, batch, text, sure), cut):
            tables.append(made)
            read.append(some)
        known = np.concatenate([*read, np.zeros(0, np.int64)])
        judged = self._records(raw, np.setdiff1d(rows, known, assume_unique=True), blank)
        if not len(judged) and len(tables):
            return pa.concat_tables(tables)
        order = np.argsort(np.concatenate([known, judged]), kind="stable")
        return pa.concat_tables([*tables, self.judged(batch, judged)]).take(pa.array(order))

    def _records(self, raw: pa.BinaryArray, rows: Rows, blank: BlankCount | None) -> Rows:
        """Leave out the lines that are no records: repetitions of the header and, on request, blank lines."""
        rows = without_blank(raw, rows, blank)
        if self.lines.header is None or self.lines.unlike or not len(rows):
            return rows
        some = some_rows(raw, rows)
        # Only these lines can be the header, which may have white space around it.
        like = pc.fill_null(pc.match_substring(some, self.lines.header_bytes), False).to_numpy(zero_copy_only=False)
        same = [place for place in np.flatnonzero(like) if self.lines.is_header(some[int(place)].as_py())]
        return np.delete(rows, same) if same else rows

    def _texts(self, raw: pa.BinaryArray) -> tuple[pa.StringArray, Mask]:
        """Return the texts of lines, and a mask of the lines that Arrow may divide as the model does."""
        likely: Mask = pc.less_equal(pc.binary_length(raw), self.log.record_bytes).to_numpy(zero_copy_only=False)
        text = self._decoded(raw)
        if text.null_count:
            likely &= text.is_valid().to_numpy(zero_copy_only=False)
            text = pc.fill_null(text, "")
        data, ends = bytes_of(text.cast(pa.binary()))
        whole = data[ends[0] : ends[-1]].tobytes()
        if b"\r" in whole:
            text = pc.utf8_rtrim(text, "\r")
            likely &= ~matches(text, "\r")
        if b"\xef\xbb\xbf" in whole or b"\n" in whole:
            likely &= ~matches(text, "^\\x{FEFF}|\n")
        csv = self.csv
        if not csv.doubles_quotes and csv.escape is not None and csv.escape.encode() in whole:
            likely &= pc.invert(pc.match_substring(text, csv.escape)).to_numpy(zero_copy_only=False)
        if csv.quote is not None and csv.quote.encode() in whole:
            # A line without quotes is divided at each delimiter.
            quoted = np.flatnonzero(pc.match_substring(text, csv.quote).to_numpy(zero_copy_only=False))
            likely[quoted] &= matches(some_rows(text, quoted), self._quoted_well)
        return text, likely

    def _decoded(self, raw: pa.BinaryArray) -> pa.StringArray:
        """Decode lines; a line that is not in the encoding of the files becomes null."""
        if self.csv.encoding.lower() in ("utf-8", "utf8"):
            try:
                return raw.cast(pa.string())
            except pa.ArrowInvalid:
                valid = pa.array([is_utf8(one) for one in raw], pa.bool_())
                return pc.if_else(valid, raw, pa.scalar(None, pa.binary())).cast(pa.string())
        lines = raw.to_pylist()
        try:
            texts = b"\n".join(lines).decode(self.csv.encoding).split("\n")
            if len(texts) == len(lines):
                return pa.array(texts, pa.string())
        except ValueError:
            pass
        return pa.array([_decoded(one, self.csv.encoding) for one in lines], pa.string())

    def _read(self, batch: pa.RecordBatch, text: pa.StringArray, sure: Rows, cut: Rows) -> tuple[pa.Table, Rows]:
        """Read lines with Arrow; return the records, and their lines."""
        rows, some = sure[cut], text.slice(int(cut[0]), len(cut))
        read, bad = self._divided(some)
        if bad.any():
            rows = rows[~bad]
        if not len(rows):
            return self.schema.empty_table(), rows
        lines = some_rows(batch, rows)
        doubt, columns = Doubt.none(len(rows)), dict[str, pa.Array]()
        for place, field in enumerate(self.lines.fields):
            if field is not None:
                columns[field.name] = self._cells(field.shape, _one(read[str(place)]), field.name, doubt)
        for name in self.log.columns:
            columns.setdefault(name, pa.nulls(len(rows), self.schema.field(name).type))
        if self.log.rest is not None:
            columns[self.log.rest] = self._rest(read)
        if self.log.rounds:
            columns[ROUNDED] = pa.array(doubt.rounded, pa.int32())
        self.add_folders(columns, lines.column("_source"), doubt.misfits)
        table = self.table(columns, lines)
        unsure = doubt.misfits | ~fit_mask(self.log, table).to_numpy(zero_copy_only=False).astype(np.bool_)
        return (table.filter(pa.array(~unsure)), rows[~unsure]) if unsure.any() else (table, rows)

    def _divided(self, text: pa.StringArray) -> tuple[pa.Table, Mask]:
        """Divide lines into texts of cells; return the cells, and a mask of the lines that could not be divided."""
        names, csv = [str(place) for place in range(len(self.lines.names))], self.csv
        wanted = [n for n, field in zip(names, self.lines.fields, strict=True) if field or self.log.rest is not None]
        bad = np.zeros(len(text), np.bool_)

        def skip(row: Any) -> str:
            bad[row.number - 1] = True
            return "skip"

        # The empty text at the end makes each line end with a line end, so that an empty last line counts as a line.
        ended = pa.concat_arrays([text, pa.array([""])])
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(ended)], pa.int32()), ended), "\n")
        whole = joined[0].as_buffer()
        read = pcsv.read_csv(
            pa.BufferReader(whole),
            pcsv.ReadOptions(use_threads=False, block_size=len(whole) + 1, column_names=names),
            pcsv.ParseOptions(
                delimiter=csv.delimiter,
                quote_char=csv.quote or False,
                double_quote=csv.quote is not None,
                newlines_in_values=False,
                ignore_empty_lines=False,
                invalid_row_handler=skip,
            ),
            pcsv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                null_values=csv.nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                check_utf8=False,
            ),
        )
        return (read, bad) if read.num_rows == len(text) - bad.sum() else (read, np.ones(len(text), np.bool_))

    def _cells(self, shape: Shape, values: pa.Array, name: str, doubt: Doubt) -> pa.Array:
        """Convert the texts of cells to values of a column, and mark doubtful values."""
        if not isinstance(shape, Plain):
            return self._by_model(shape, values, name, doubt)
        type, form = column_type(shape.type).arrow, shape.form
        if form in UNITS:
            return doubt.marked(self.plain.of_numbers(shape, _cast(values, pa.int64(), WHOLE, doubt)))
        if shape.type == "string":
            return values
        if shape.type == "boolean":
            lower = pc.utf8_lower(values)
            made = pc.equal(lower, "true")
            doubt.misfits |= ~_holds(pc.or_(made, pc.equal(lower, "false")))
            return made
        if shape.type in ("int", "bigint"):
            return _cast(values, type, SHORT if shape.type == "int" else WHOLE, doubt)
        if shape.type in ("double", "float"):
            return self._doubles(shape, values, doubt)
        if (parts := decimal_parts(shape.type)) is not None:
            usual = rf"^-?[0-9]{{1,{max(1, parts[0] - parts[1])}}}(\.[0-9]{{0,{parts[1]}}})?$"
            return _cast(values, type, usual, doubt, sure=has_short_decimals(values, type))
        if shape.type in ("timestamp", "date") and form is None:
            return doubt.marked(self.plain.of_texts(shape, values, partial(_read_cell, self, shape, name)))
        return self._by_model(shape, values, name, doubt)

    def _doubles(self, shape: Plain, values: pa.Array, doubt: Doubt) -> pa.Array:
        own = Doubt.none(len(values))
        made = self.finite(shape, _cast(values, pa.float64(), NUMBER, own), own)
        if own.doubles.any():
            sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
            own.misfits |= own.doubles & ((sizes > 300) | matches(values, "[0-9]{16}|[eE]-"))
        doubt.misfits |= own.misfits
        return made

    def _by_model(self, shape: Shape, values: pa.Array, name: str, doubt: Doubt) -> pa.Array:
        type, counts = self.schema.field(name).type, dict[str, int]()

        def read(text: str) -> Any:
            made = _read_cell(self, shape, name, text)
            if self.log.rounds and (count := rounded_in(made)):
                counts[text] = count
            return made

        converted = doubt.marked(self.plain.one_by_one(values, type, read))
        if counts:
            given = (counts.get(text, 0) for text in values.to_pylist())
            doubt.rounded += np.fromiter(given, np.int64, len(values))
        return converted

    def _rest(self, read: pa.Table) -> pa.Array:
        """Build the column of undeclared cells, as one JSON object for each line."""
        parts = list[Any]()
        for place, (name, field) in enumerate(zip(self.lines.names, self.lines.fields, strict=True)):
            if field is None:
                coded = _one(read[str(place)]).dictionary_encode()
                written = pa.array([as_json(text) for text in coded.dictionary.to_pylist()], pa.string())
                parts += [f"{',' if parts else '{'}{as_json(name)}:", pc.fill_null(written.take(coded.indices), "null")]
        if not parts:
            return pa.nulls(read.num_rows, pa.string())
        return pc.binary_join_element_wise(*parts, "}", "")


def csv_reader(log: Log, header: bytes | None) -> CsvReader:
    """Return the reader of a log's lines below a header. A few readers are kept with the log."""
    kept: dict[bytes | None, CsvReader] = log.__dict__.setdefault(_READERS, {})
    if header not in kept:
        if len(kept) >= _KEPT:
            kept.clear()
        kept[header] = CsvReader(log, header)
    return kept[header]


def header_line(lines: pa.Array) -> bytes:
    """Return the first line that is not blank; it is empty if there is no such line."""
    raw = lines.combine_chunks() if isinstance(lines, pa.ChunkedArray) else lines
    for start in range(0, len(raw), _FIRST):
        some = raw.slice(start, _FIRST)
        if len(found := np.flatnonzero(~blank_mask(some))):
            return bytes(some[int(found[0])].as_py())
    return b""


_FIRST = 100
_READERS, _KEPT = "_csv_readers", 32


def _read_cell(reader: CsvReader, shape: Shape, name: str, text: str) -> Any:
    return cell_value(reader.values, shape, text, name)


def _cast(values: pa.Array, type: pa.DataType, usual: str, doubt: Doubt, *, sure: bool = True) -> pa.Array:
    """Convert texts to numbers; if this fails or is not `sure`, mark the texts that do not have the `usual` form."""
    try:
        if sure and not (pa.types.is_integer(type) and _has_hexadecimals(values)):
            return values.cast(type)
    except pa.ArrowInvalid:
        pass
    bare = pc.utf8_trim(values, SPACE)
    fits = pc.fill_null(pc.match_substring_regex(bare, usual), True)
    doubt.misfits |= ~fits.to_numpy(zero_copy_only=False)
    try:
        return pc.if_else(fits, bare, pa.scalar(None, pa.string())).cast(type)
    except pa.ArrowInvalid:
        doubt.misfits |= True
        return pa.nulls(len(values), type)


def _has_hexadecimals(values: pa.Array) -> bool:
    """Return True if some text has an `x`: Arrow also reads hexadecimal numbers, such as `0x1f`."""
    data, ends = bytes_of(values.cast(pa.binary()))
    return bool(np.isin(data[ends[0] : ends[-1]], (ord("x"), ord("X"))).any())


def _holds(mask: pa.BooleanArray) -> Mask:
    held: Mask = pc.fill_null(mask, True).to_numpy(zero_copy_only=False)
    return held


def _decoded(line: bytes, encoding: str) -> str | None:
    try:
        return line.decode(encoding)
    except ValueError:
        return None


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _quoted_well(quote: str | None, delimiter: str) -> str:
    """Return the pattern of lines in which each value is enclosed in quotes, or has no quote."""
    one, end = (f"\\x{{{ord(sign):X}}}" for sign in (quote or "\0", delimiter))
    cell = f"(?:{one}(?:[^{one}]|{one}{one})*{one}|[^{one}{end}]*)"
    return f"^{cell}(?:{end}{cell})*$"


NUMBER = r"^-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"
WHOLE, SHORT = "^-?[0-9]{1,18}$", "^-?[0-9]{1,9}$"
"""The patterns of numbers that Arrow reads as the model does; whole numbers of 64 and of 32 bits."""
