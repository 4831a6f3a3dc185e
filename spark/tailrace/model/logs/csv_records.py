"""The meaning of a record in CSV: the values of a log's columns, or the reason for which the line is rejected (X6).

A record is one line. A value of a plain type is read from the text of its cell as a value in JSON is read
(`json_records`): numbers and the texts of dates, instants and truth values may have white space around them. A cell of
a nested column, or of a column of type `json`, is a JSON text. A faster reader must have the same result for each line
as this module.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

from tailrace.model.logs.csv_options import Csv
from tailrace.model.logs.json_records import (
    AROUND,
    DECLARE,
    JsonRecords,
    MisfitError,
    Values,
    cell_value,
    time_fault,
)
from tailrace.model.logs.log import Log, too_large
from tailrace.model.logs.shapes import Field

QUOTES = "quotes are not as in RFC 4180"
NO_HEADER = "no header"
UTF_16 = "it looks like UTF-16: convert it to UTF-8, for example with iconv -f UTF-16 -t UTF-8"


class CsvHeaderError(ValueError):
    """The error for a header line that cannot be divided into the names of columns."""


class CsvRecords:
    """The reader of a log's CSV lines below one header.

    >>> log = Log(
    ...     name="orders",
    ...     columns={"at": "timestamp", "cents": "bigint", "tags": "array<string>"},
    ...     event_time="at",
    ...     fields={"at": "Created at"},
    ... )
    >>> read = CsvRecords(log, b"Created at,cents,tags").read
    >>> read(b'1970-01-01T00:00:01Z, 5 ,"[""a"", null]"')
    {'at': 1000000, 'cents': 5, 'tags': ['a', None]}
    >>> read(b'1970-01-01T00:00:01Z,5,"[1]"'), read(b"1970-01-01T00:00:01Z,five,")
    ('tags[0] = 1 is not a string', 'cents = five is not a bigint')
    """

    def __init__(self, log: Log, header: bytes | None = None) -> None:
        """Read lines below the line `header`, or lines of a log whose CSV files have no header.

        Raises `CsvHeaderError` if the header cannot be divided into names.
        """
        self.log, self.csv, self.values = log, log.csv, JsonRecords(log)
        self.around = "".join(one for one in AROUND if one != self.csv.delimiter)
        self.header = None if header is None else self._header_text(header)
        self.header_bytes = (self.header or "").encode(self.csv.encoding)
        self.names = self._names()
        places = {".".join(one.place): one for one in log.shape}
        self.fields: tuple[Field | None, ...] = tuple(places.get(name) for name in self.names)
        self.unlike = "" if self.header is None else self._unlike(places)
        self.order = {one.name: place for place, one in enumerate(log.shape)}

    @cached_property
    def count_reason(self) -> str:
        """The reason for rejecting a line with another number of values than there are columns."""
        return f"not one value for each of the {len(self.names)} columns"

    def is_header(self, raw: bytes) -> bool:
        """Return True if a line repeats the header; such a line is no record."""
        if self.header is None or self.unlike:
            return False
        try:
            return raw.decode(self.csv.encoding).strip(self.around) == self.header
        except ValueError:
            return False

    def read(self, raw: bytes, arrival: int | None = None, source: str = "") -> Values | str:
        """Read one line; return its values, or the reason for which it is rejected.

        `arrival` is the time at which the record arrived, in microseconds, if the log has no column for this time.
        `source` is the name of the line's file, as the log stores it.
        """
        if self.unlike:
            return self.unlike
        if len(raw) > self.log.record_bytes:
            return too_large(self.log)
        try:
            text = raw.decode(self.csv.encoding)
        except ValueError:
            return not_encoded(self.csv)
        cells = divide(self.csv, line_of(text))
        if cells is None:
            return QUOTES
        if len(cells) != len(self.names):
            return self.count_reason
        values, misfits = dict.fromkeys(self.log.columns), dict[str, str]()
        for field, cell in zip(self.fields, cells, strict=True):
            if field is not None and cell is not None:
                try:
                    values[field.name] = cell_value(self.values, field.shape, cell, field.name)
                except MisfitError as error:
                    misfits[field.name] = str(error)
        if misfits:
            return "; ".join(misfits[name] for name in sorted(misfits, key=self.order.__getitem__))
        if self.log.rest is not None:
            values[self.log.rest] = self._rest(cells)
        return self.values.add_folders(values, source) or time_fault(self.log, values, arrival) or values

    def _rest(self, cells: Sequence[str | None]) -> str | None:
        """Return the cells of undeclared columns, as one JSON object; None if the file has no such column."""
        more = zip(self.names, self.fields, cells, strict=True)
        members = [f"{as_json(name)}:{as_json(cell)}" for name, field, cell in more if field is None]
        return "{" + ",".join(members) + "}" if members else None

    def _header_text(self, header: bytes) -> str:
        if b"\0" in header or header.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise CsvHeaderError(UTF_16)
        try:
            return header.decode(self.csv.encoding).strip(self.around)
        except ValueError as error:
            raise CsvHeaderError(str(error)) from error

    def _names(self) -> tuple[str, ...]:
        """Return the names of the columns in a line: the names in the header, or the places that the log declares."""
        if self.header is None:
            return tuple(".".join(one.place) for one in self.log.shape if one.name not in self.log.folders)
        cells = divide(self.csv, self.header) if self.header else []
        if cells is None:
            raise CsvHeaderError(f"the header's {QUOTES}")
        return tuple((cell or "").strip() for cell in cells)

    def _unlike(self, places: Mapping[str, Field]) -> str:
        """Describe how the columns differ from the declared columns; the text is empty if they match.

        Columns other than the event time and the arrival time may be missing.
        """
        if not self.names:
            return NO_HEADER
        times = [one for one in (self.log.event_time, self.log.arrival_time) if one and one not in self.log.folders]
        own = {field.name: name for name, field in places.items()}
        wrong = [f"no column {own[name]!r}" for name in times if own[name] not in self.names]
        wrong += [f"column {n!r} is there twice" for n in self.names if n in places and self.names.count(n) > 1]
        if self.log.unknown == "reject" and self.log.rest is None:
            wrong += [f"unknown column {name!r}{DECLARE}" for name in self.names if name not in places]
        return "; ".join(dict.fromkeys(wrong))


def line_of(text: str) -> str:
    """Return a line without a byte order mark and without the carriage return of its end."""
    return text.lstrip("\ufeff").rstrip("\r")


def divide(csv: Csv, line: str) -> list[str | None] | None:
    """Divide a line into the texts of its cells, None for a missing value; return None if quotes are not paired.

    >>> divide(Csv(), 'a,"b, ""c"" d",,'), divide(Csv(), 'a,"b'), divide(Csv(null="-"), "-,")
    (['a', 'b, "c" d', None, None], None, [None, ''])
    """
    pattern, cells, at = _cell(csv), list[str | None](), 0
    while True:
        found = pattern.match(line, at)
        if found is None:
            return None
        written = found["enclosed"] if found["enclosed"] is not None else found["bare"]
        cells.append(None if written in csv.nulls else _unescaped(csv, written, enclosed=found["bare"] is None))
        at = found.end()
        if at == len(line):
            return cells
        if line[at] != csv.delimiter:
            return None
        at += 1


@lru_cache(maxsize=64)
def _cell(csv: Csv) -> re.Pattern[str]:
    """Return the pattern of a cell's text."""
    quote, delimiter = re.escape(csv.quote or ""), re.escape(csv.delimiter)
    escape = "" if csv.doubles_quotes else re.escape(csv.escape or "")
    pair = f"|{escape}." if escape else ""
    bare = f"(?P<bare>(?:[^{delimiter}{quote}{escape}]++{pair})*+)"
    enclosed = f"{quote}(?P<enclosed>(?:[^{quote}{escape}]++|{quote}{quote}{pair})*+){quote}" if quote else _NEVER
    return re.compile(f"{enclosed}|{bare}", re.DOTALL)


def _unescaped(csv: Csv, written: str, *, enclosed: bool) -> str:
    if enclosed and csv.quote is not None:
        if csv.doubles_quotes:
            return written.replace(csv.quote * 2, csv.quote)
        pair = f"{re.escape(csv.escape or '')}(.)|{re.escape(csv.quote)}({re.escape(csv.quote)})"
        return re.sub(pair, lambda found: found[1] or found[2], written, flags=re.DOTALL)
    if csv.escape is None or csv.doubles_quotes:
        return written
    return re.sub(f"{re.escape(csv.escape)}(.)", r"\1", written, flags=re.DOTALL)


def not_encoded(csv: Csv) -> str:
    """Return the reason for rejecting a line whose bytes are not in the encoding of the files."""
    return "not UTF-8" if csv.encoding.lower() in ("utf-8", "utf8") else f"not {csv.encoding}"


def as_json(text: str | None) -> str:
    """Return a text as JSON."""
    return json.dumps(text, ensure_ascii=False)


def csv_records(log: Log, lines: Iterable[bytes], source: str = "") -> Iterator[tuple[int, Values | str]]:
    """Yield the number of each record's line, with the values or the reason for which the line is rejected.

    Blank lines, the header and its repetitions are no records. Raises `CsvHeaderError` if the header is damaged.
    """
    records = None if log.csv.header else CsvRecords(log)
    for number, line in enumerate(lines, 1):
        raw = line.removesuffix(b"\n")
        if not is_blank(raw):
            records = records or CsvRecords(log, raw)
            if not records.is_header(raw):
                yield number, records.read(raw, source=source)


_BLANK = re.compile(rb"(?:[ \t\r]|\xef\xbb\xbf)*")


def is_blank(line: bytes) -> bool:
    """Return True if a line has only white space."""
    return _BLANK.fullmatch(line) is not None


_NEVER = "(?P<enclosed>(?!))"
