"""The meaning of a record in JSON: the values of a log's columns, or the reason for which the record is rejected (X6).

A value must have the declared type, and is read without loss: a text is not read as a number, a number is not read as a
text, and digits are rounded only in a float or a double. A reason names the place inside the record, such as
`items[3].price = "x" is not a double`. A faster reader must have the same result for each record as this module.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from tailrace.model.base.json_limits import beyond
from tailrace.model.base.json_scalars import (
    Number,
    UnreadError,
    day_of,
    decimal_value,
    half_a_pair,
    instant_of,
    number_value,
    scan,
    scanstring,
    skip,
    space,
    time_of,
)
from tailrace.model.base.time import (
    BEGINNING,
    BEYOND,
    END_OF_TIME,
    FIRST_DAY,
    LAST_DAY,
    duration,
    instant,
    length,
    moment,
)
from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.log import UNITS, Log, too_large
from tailrace.model.logs.shapes import AS_TEXT, Field, Listed, Mapped, Plain, Shape, Struct

NO_VALUE = "there is no value"
NO_OBJECT = "not one JSON object"
NO_UTF8 = "not UTF-8"
HALF_A_PAIR = "half of a surrogate pair, which is no character"
TWICE = "a column is there twice"
DECLARE = ': declare it in the log, or set unknown="ignore"'
AROUND = " \t\r\n\ufeff"
"""The characters that may be around a record: white space, and a byte order mark."""

DAY_MICROS = 86_400 * 10**6
"""The number of microseconds of a day."""

SPACE = " \t\r"
"""The white space that may be around a value that is no text."""

NO_FOLDER_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The text that stands for null in the name of a folder, such as `country=__HIVE_DEFAULT_PARTITION__`."""

Values: TypeAlias = "dict[str, Any]"
"""The values of a record's columns. An instant is the number of microseconds since 1970, a date is the number of days
since 1970, and a map is the list of its entries, sorted by key.
"""


class MisfitError(Exception):
    """The error for a value that does not have its declared type. The message is the reason for users."""


@dataclass
class Branch:
    """A JSON object that has columns among its fields: for each name, the field, or the inner object with fields.

    `rest` is the name of the column or field that keeps the object's undeclared members.
    """

    children: dict[str, Branch | Field] = field(default_factory=dict)
    rest: str | None = None


class JsonRecords:
    """The reader of a log's records in JSON.

    >>> log = Log(
    ...     name="orders",
    ...     columns={"at": "timestamp", "country": "string", "items": "array<struct<price:double>>"},
    ...     event_time="at",
    ...     fields={"country": "user.country", "items.price": "unitPrice"},
    ... )
    >>> read = JsonRecords(log).read
    >>> read(b'{"at": "1970-01-01T00:00:01Z", "user": {"country": "DE"}, "items": [{"unitPrice": 0.5}]}')
    {'at': 1000000, 'country': 'DE', 'items': [{'price': 0.5}]}
    >>> read(b'{"at": "1970-01-01T00:00:01Z", "items": [{"unitPrice": 1}, {"unitPrice": "x"}]}')
    'items[1].price = "x" is not a double'
    """

    def __init__(self, log: Log, only: Collection[str] | None = None, *, times: bool = True) -> None:
        """Read all columns of a log or, for `read_some`, the columns `only`, whose places have one name each.

        If `times` is False, the times of the records are not checked.
        """
        self.log, self._times = log, times
        fields = [one for one in log.shape if only is None or one.name in only]
        self.skipped = frozenset(one.place[0] for one in log.shape if one not in fields)
        self._root = branch_of(fields, log.rest)
        self._folder_values: dict[str, Values | str] = {}
        self._zone = None if log.zone is None or log.zone == "UTC" else ZoneInfo(log.zone)
        self._inside = {id(shape): branch_of(shape.fields, shape.rest) for shape in _structs(log.shape)}
        self._order = {one.name: place for place, one in enumerate(log.shape)}

    def read(self, raw: bytes | None, arrival: int | None = None, source: str = "") -> Values | str:
        """Read one record; return its values, or the reason for which it is rejected.

        `arrival` is the time at which the record arrived, in microseconds, if the log has no column for this time.
        `source` is the name of the record's file, as the log stores it.
        """
        if raw is None:
            return NO_VALUE
        if len(raw) > self.log.record_bytes:
            return too_large(self.log)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return NO_UTF8
        return self.read_text(text.strip(AROUND), arrival, source)

    def read_text(self, text: str, arrival: int | None = None, source: str = "") -> Values | str:
        """Read one record from its text, without the characters around it."""
        if (reason := beyond(text, self.log.depth)) is not None:
            return reason if _is_one_object(text) else NO_OBJECT
        reading = _Reading(self, text)
        try:
            if not text.startswith("{") or reading.branch(self._root, 1, reading.values, "", "") != len(text):
                return NO_OBJECT
        except (ValueError, IndexError, RecursionError):
            return NO_OBJECT
        if half_a_pair(text):
            return HALF_A_PAIR
        if (reason := reading.reason(self._order)) is not None:
            return reason
        values = dict.fromkeys(self.log.columns) | reading.values
        if (reason := self.add_folders(values, source)) is not None:
            return reason
        return (time_fault(self.log, values, arrival) if self._times else None) or values

    def read_some(self, raw: bytes) -> Values | None:
        """Read the columns `only`, and the column `rest`, of a record whose other columns another reader has read.

        Returns None if this reader cannot tell without the other columns whether the record fits.
        """
        reading = _Reading(self, raw.decode().strip(AROUND))
        try:
            reading.branch(self._root, 1, reading.values, "", "")
        except (ValueError, IndexError, RecursionError):
            return None
        if reading.reason(self._order) is not None:
            return None
        return reading.values

    def add_folders(self, values: Values, source: str) -> str | None:
        """Add the values of the columns `folders` of the log; return the reason for rejecting the record, if any."""
        if not self.log.folders:
            return None
        placed = self.folder_values(source)
        if isinstance(placed, str):
            return placed
        for name, value in placed.items():
            if value is not None and values[name] not in (None, value):
                return f"{name} has another value than the name of the folder"
            values[name] = values[name] if value is None else value
        return None

    def folder_values(self, source: str) -> Values | str:
        """Return the values in the names of a file's folders, or the reason why a value does not fit.

        >>> log = Log(name="l", columns={"at": "timestamp", "day": "date"}, event_time="at", folders="day")
        >>> JsonRecords(log).folder_values("file:/in/day=1970-01-02/a.json")
        {'day': 1}
        >>> JsonRecords(log).folder_values("file:/in/day=2/a.json")
        'day = 2 is not a date'
        """
        if (known := self._folder_values.get(source)) is not None:
            return known
        texts = dict[str, str]()
        for part in unquote(source).split("/")[:-1]:
            name, given, text = part.partition("=")
            if given:
                texts[unquote(name)] = unquote(text)
        found: Values | str = dict.fromkeys(self.log.folders)
        for one in self.log.shape:
            text = texts.get(".".join(one.place), NO_FOLDER_VALUE)
            if one.name in self.log.folders and text != NO_FOLDER_VALUE and isinstance(found, dict):
                try:
                    found[one.name] = cell_value(self, one.shape, text, one.name)
                except MisfitError as error:
                    found = str(error)
        if len(self._folder_values) >= _FOLDERS:
            self._folder_values.clear()
        self._folder_values[source] = found
        return found

    def read_value(self, shape: Shape, text: str, name: str) -> Any:
        """Read the value of a column from a JSON text of its own, such as a cell of CSV.

        Raises `MisfitError` if the value does not fit.
        """
        text = text.strip(AROUND)
        if (reason := beyond(text, self.log.depth)) is not None:
            raise MisfitError(f"{name} is {reason}")
        reading = _Reading(self, text)
        try:
            value, end = reading.value(shape, 0, name)
        except (ValueError, IndexError, RecursionError):
            end = -1
        if end != len(text):
            raise MisfitError(f"{name} = {excerpt(text)} is not JSON")
        if half_a_pair(text):
            raise MisfitError(f"{name} has {HALF_A_PAIR}")
        if (reason := reading.reason(self._order)) is not None:
            raise MisfitError(reason)
        return value

    def inside(self, shape: Struct) -> Branch:
        """Return the branch that reads the fields of a struct."""
        return self._inside[id(shape)]

    @property
    def in_utc(self) -> bool:
        """Whether times without an offset are in UTC."""
        return self._zone is None

    def of_local(self, micros: int) -> int:
        """Convert a local time in microseconds since 1970 to an instant, if Python's calendar has the time."""
        return self.micros(_NAIVE + timedelta(microseconds=micros)) if BEGINNING <= micros <= END_OF_TIME else micros

    def micros(self, local: datetime) -> int:
        """Convert a local time to an instant; a time without an offset is in the time zone of the log."""
        if local.tzinfo is not None:
            return instant(local)
        if self._zone is None:
            return (local - _NAIVE) // _MICROSECOND
        try:
            return instant(local.replace(tzinfo=self._zone, fold=0))
        except (OverflowError, ValueError):
            return (local - _NAIVE) // _MICROSECOND


class _Reading:
    """One pass over the text of a record: the values so far, and the faults of columns."""

    def __init__(self, records: JsonRecords, text: str) -> None:
        self.records, self.log, self.text = records, records.log, text
        self.values: Values = {}
        self.misfits: dict[str, str] = {}
        self.unknown: list[str] = []
        self.twice = False
        self._end = 0

    def reason(self, order: Mapping[str, int]) -> str | None:
        """Return the reason for which the record is rejected, or None if all columns fit."""
        if self.twice:
            return TWICE
        if self.unknown and self.log.unknown == "reject" and self.log.rest is None:
            return f"unknown column {', '.join(dict.fromkeys(self.unknown))}{DECLARE}"
        return "; ".join(self.misfits[name] for name in sorted(self.misfits, key=order.__getitem__)) or None

    def branch(self, branch: Branch, at: int, into: Values, path: str, base: str) -> int:
        """Read an object from after its opening brace; return the position after its closing brace.

        `path` is the object's place, which undeclared fields are reported with. `base` is the column or the field that
        the fields in `into` belong to. Both end with a dot if they are not empty.
        """
        seen, more = set[str](), list[str]()
        for name, place in self._members(at):
            child = branch.children.get(name)
            if child is None:
                end = self._undeclared(name, place, path, None if branch.rest is None else more)
            else:
                self.twice |= name in seen
                seen.add(name)
                if isinstance(child, Branch):
                    end = self._inner(child, place, into, path + name, base)
                else:
                    end = self._column(child, place, into, base)
            self._end = end
        if branch.rest is not None:
            into[branch.rest] = f"{{{','.join(more)}}}" if more else None
        return self._end

    def _undeclared(self, name: str, at: int, path: str, more: list[str] | None) -> int:
        """Skip a member of an object, or add its text to the undeclared members `more`, if these are kept."""
        end = skip(self.text, at)
        if not path and name in self.records.skipped:
            return end
        if more is not None:
            more.append(f"{json.dumps(name, ensure_ascii=False)}:{self.text[at:end]}")
        elif self.log.rest is None:
            self.unknown.append(path + name)
        return end

    def _inner(self, child: Branch, at: int, into: Values, path: str, base: str) -> int:
        """Read a JSON object that is not a column itself, but has columns among its nested fields."""
        if self.text.startswith("null", at):
            return at + 4
        if self.text[at] == "{":
            return self.branch(child, at + 1, into, f"{path}.", base)
        end = skip(self.text, at)
        fault = f"{path} = {excerpt(self.text[at:end])} is not an object"
        if into is not self.values:
            raise MisfitError(fault)
        self.misfits.setdefault(_first(child), fault)
        return end

    def _column(self, child: Field, at: int, into: Values, base: str) -> int:
        if into is not self.values:
            into[child.name], end = self.value(child.shape, at, base + child.name)
            return end
        try:
            into[child.name], end = self.value(child.shape, at, child.name)
        except MisfitError as error:
            self.misfits.setdefault(child.name, str(error))
            end = skip(self.text, at)
        return end

    def value(self, shape: Shape, at: int, path: str) -> tuple[Any, int]:
        """Read a value; return it and the position after it. Raises `MisfitError` if the value does not fit."""
        text = self.text
        if text.startswith("null", at):
            return None, at + 4
        if isinstance(shape, Plain):
            if shape.type == "json":
                end = skip(text, at)
                return text[at:end], end
            value, end = scan(text, at)
            return plain_value(self.records, shape, value, path, text[at:end]), end
        opening = "[" if isinstance(shape, Listed) else "{"
        if text[at] != opening:
            end = skip(text, at)
            kind = {Listed: "a list", Mapped: "a map", Struct: "an object"}[type(shape)]
            raise MisfitError(f"{path} = {excerpt(text[at:end])} is not {kind}")
        if isinstance(shape, Struct):
            made: Values = dict.fromkeys(one.name for one in shape.fields)
            return made, self.branch(self.records.inside(shape), at + 1, made, f"{path}.", f"{path}.")
        return self._listed(shape, at + 1, path) if isinstance(shape, Listed) else self._mapped(shape, at + 1, path)

    def _listed(self, shape: Listed, at: int, path: str) -> tuple[list[Any], int]:
        text, made = self.text, list[Any]()
        at = space(text, at)
        if text[at] == "]":
            return made, at + 1
        while True:
            value, at = self.value(shape.element, at, f"{path}[{len(made)}]")
            made.append(value)
            if len(made) > self.log.elements:
                raise MisfitError(too_many(path, self.log.elements))
            at = space(text, at)
            if text[at] == "]":
                return made, at + 1
            if text[at] != ",":
                raise UnreadError
            at = space(text, at + 1)

    def _mapped(self, shape: Mapped, at: int, path: str) -> tuple[list[Any], int]:
        made = dict[str, Any]()
        for name, place in self._members(at):
            if name in made:
                raise MisfitError(key_twice(path, name))
            made[name], self._end = self.value(shape.value, place, f"{path}[{json.dumps(name, ensure_ascii=False)}]")
            if len(made) > self.log.elements:
                raise MisfitError(too_many(path, self.log.elements))
        return [{"key": key, "value": made[key]} for key in sorted(made)], self._end

    def _members(self, at: int) -> Iterator[tuple[str, int]]:
        """Yield the name of each member of an object, and the position of its value.

        Before the next name is asked for, the reader of a value must set `_end` to the position after the value. At the
        end, `_end` is the position after the object.
        """
        text = self.text
        at = space(text, at)
        if text[at] == "}":
            self._end = at + 1
            return
        while True:
            if text[at] != '"':
                raise UnreadError
            name, at = scanstring(text, at + 1, True)
            at = space(text, at)
            if text[at] != ":":
                raise UnreadError
            yield name, space(text, at + 1)
            at = space(text, self._end)
            if text[at] == "}":
                self._end = at + 1
                return
            if text[at] != ",":
                raise UnreadError
            at = space(text, at + 1)


def too_many(path: str, most: int) -> str:
    """Return the reason for rejecting a list or a map that has too many elements."""
    return f"{path} is a list of more than {most} elements: set elements in the log"


def key_twice(path: str, key: str) -> str:
    """Return the reason for rejecting a map with two entries of the same key."""
    return f"{path} has the key {json.dumps(key, ensure_ascii=False)[:100]} twice"


def plain_value(records: JsonRecords, shape: Plain, value: Any, path: str, written: str) -> Any:
    """Convert a JSON value to its declared type. Raises `MisfitError` if the value does not fit."""
    type = shape.type
    try:
        if isinstance(value, Number):
            whole = shape.form in _PER_UNIT
            return value_of_number(value, shape) if whole else number_value(value, shape.type, shape.rounding)
        if isinstance(value, str):
            return text_value(records, shape, value)
        if type == "boolean" and isinstance(value, bool):
            return value
    except (ValueError, ArithmeticError):
        pass
    raise MisfitError(f"{path} = {excerpt(written)} is not a {type}")


def cell_value(records: JsonRecords, shape: Shape, text: str, name: str) -> Any:
    """Convert the text of a cell to a value of a column. Raises `MisfitError` if the text does not fit.

    >>> log = Log(name="l", columns={"at": "timestamp"}, event_time="at")
    >>> records = JsonRecords(log)
    >>> [cell_value(records, Plain(type), " +05 ", "n") for type in ("string", "bigint", "double")]
    [' +05 ', 5, 5.0]
    """
    if not isinstance(shape, Plain) or shape.type == "json":
        return records.read_value(shape, text, name)
    if shape.type == "string":
        return text
    bare = text.strip(SPACE)
    try:
        if shape.type == "boolean" and bare.lower() in ("true", "false"):
            return bare.lower() == "true"
        if _CELL_NUMBER.fullmatch(bare) and not _is_text(shape):
            return plain_value(records, shape, Number(bare.lstrip("+")), name, bare)
        if _is_text(shape):
            return text_value(records, shape, bare)
    except (ValueError, ArithmeticError, MisfitError):
        pass
    raise MisfitError(f"{name} = {text[:100]} is not a {shape.type}")


def _is_text(shape: Plain) -> bool:
    return shape.type in ("timestamp", "date", "time", "binary") and shape.form not in UNITS


def text_value(records: JsonRecords, shape: Plain, text: str) -> Any:
    """Convert a text to a type whose values are written as texts. Raises `ValueError` if the text does not fit."""
    if shape.form in _PER_UNIT:
        raise ValueError
    if shape.form == AS_TEXT and (parts := decimal_parts(shape.type)) is not None:
        if _DECIMAL.fullmatch(text) is None:
            raise ValueError
        return decimal_value(text, *parts, shape.rounding)
    match shape.type:
        case "string":
            return text
        case "timestamp":
            of_local = None if records.in_utc else records.of_local
            return records.micros(datetime.strptime(text, shape.form)) if shape.form else instant_of(text, of_local)
        case "date":
            return (datetime.strptime(text, shape.form) - _NAIVE).days if shape.form else day_of(text)
        case "time":
            return _clock(datetime.strptime(text, shape.form)) if shape.form else time_of(text)
        case "binary":
            return base64.b64decode(text, validate=True)
    raise ValueError


def value_of_number(digits: str, shape: Plain) -> int | str:
    """Convert a number in the unit of the shape's form to an instant, a date or a time of a day, rounded down."""
    micros = instant_of_number(digits, shape)
    if shape.type == "time":
        if not 0 <= micros < DAY_MICROS:
            raise ValueError
        return _clock(_NAIVE + timedelta(microseconds=micros))
    return micros // DAY_MICROS if shape.type == "date" else micros


def instant_of_number(digits: str, shape: Plain) -> int:
    """Convert a number in the unit of the shape's form to microseconds, rounded down."""
    micros = int((Decimal(digits) * _PER_UNIT[shape.form or ""]).to_integral_value("ROUND_FLOOR"))
    if not -(2**63) <= micros < 2**63:
        raise ValueError
    return micros


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S.%f")


def shown_instant(micros: int) -> str:
    """Return an instant as reasons show it: in UTC, without zeros at the end of the fraction.

    >>> shown_instant(1_500_000), shown_instant(BEGINNING - 1), shown_instant(END_OF_TIME + 1)
    ('1970-01-01 00:00:01.5', '0000-12-31 23:59:59.999999', '+10000-01-01 00:00:00')
    """
    days, within = divmod(micros, 86_400_000_000)
    seconds, fraction = divmod(within, 10**6)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{shown_day(days)} {clock}" + (f".{fraction:06}".rstrip("0") if fraction else "")


def shown_day(days: int) -> str:
    """Return a date as reasons show it; a year has a sign if it is not one of the years 0 to 9999.

    >>> shown_day(0), shown_day(FIRST_DAY - 366), shown_day(LAST_DAY + 1)
    ('1970-01-01', '0000-01-01', '+10000-01-01')
    """
    cycles = 0
    if not FIRST_DAY <= days <= LAST_DAY:
        # The calendar repeats after 400 years, which have 146,097 days.
        cycles = days // 146_097
        days -= cycles * 146_097
    day = _FIRST + timedelta(days)
    year = day.year + 400 * cycles
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{day.month:02}-{day.day:02}"


def time_fault(log: Log, values: Mapping[str, Any], arrival: int | None) -> str | None:
    """Return the reason for which a record's times, or missing values, do not fit the log; None if they fit.

    `values` has instants in microseconds and dates in days. `arrival` is the time at which the record arrived, if the
    log has no column for this time and the time is known.
    """
    for role, column in (("event time", log.event_time), ("arrival time", log.arrival_time)):
        if column is None:
            continue
        at = values[column]
        if at is None:
            return f"the {role} {column} is missing"
        if not instant(log.earliest) <= at < instant(log.latest):
            return f"the {role} {column} = {shown_instant(at)}{outside_bounds(log)}"
    arrived = arrival if log.arrival_time is None else values[log.arrival_time]
    if log.bound_ahead is not None and arrived is not None:
        bound, at = duration(log.bound_ahead), values[log.event_time]
        if at - arrived > bound:
            begins = f"the event time {log.event_time} = {shown_instant(at)}"
            return f"{begins}{too_far_ahead(bound)}{shown_instant(arrived)}"
    for one in log.shape:
        if one.name in (log.event_time, log.arrival_time):
            continue
        if (reason := _beyond_calendar(one.shape, values.get(one.name), one.name)) is not None:
            return reason
    return next((reason for column, reason in log.never_missing.items() if values[column] is None), None)


def _beyond_calendar(shape: Shape, value: Any, path: str) -> str | None:
    """Return the reason for rejecting an instant or a date outside the years of tables, at any depth."""
    if value is None:
        return None
    if isinstance(shape, Plain):
        if shape.type == "timestamp" and not BEGINNING <= value <= END_OF_TIME:
            return f"{path} = {shown_instant(value)} {BEYOND}"
        if shape.type == "date" and not FIRST_DAY <= value <= LAST_DAY:
            return f"{path} = {shown_day(value)} {BEYOND}"
        return None
    if isinstance(shape, Struct):
        inner = [(one.shape, value[one.name], f"{path}.{one.name}") for one in shape.fields]
    elif isinstance(shape, Listed):
        inner = [(shape.element, one, f"{path}[{place}]") for place, one in enumerate(value)]
    else:
        inner = [(shape.value, one["value"], f"{path}[{json.dumps(one['key'])}]") for one in value]
    return next((reason for one in inner if (reason := _beyond_calendar(*one)) is not None), None)


def outside_bounds(log: Log) -> str:
    """Return the reason for rejecting an instant outside the log's bounds; the text includes the remedy."""
    return f" lies outside [{log.earliest:%Y-%m-%d}, {log.latest:%Y-%m-%d}): set earliest and latest in the log"


def too_far_ahead(bound: int) -> str:
    """Return the reason for rejecting an event time that is too far after the record's arrival.

    The caller appends the arrival time to the text.
    """
    return f" is more than {length(bound)} (ahead in the log) after its arrival at "


def as_record(log: Log, values: Values) -> dict[str, Any]:
    """Convert the values of a record to Python values (`as_values`)."""
    shapes = {one.name: one.shape for one in log.shape}
    return {name: as_values(shapes[name], value) if name in shapes else value for name, value in values.items()}


def as_values(shape: Shape, value: Any) -> Any:
    """Convert a value that was read to the Python value of a record: `datetime` for an instant, `date` for a date."""
    if value is None:
        return None
    if isinstance(shape, Plain):
        if shape.type == "timestamp":
            return moment(value)
        return _FIRST + timedelta(value) if shape.type == "date" else value
    if isinstance(shape, Struct):
        return {one.name: as_values(one.shape, value[one.name]) for one in shape.fields}
    if isinstance(shape, Listed):
        return [as_values(shape.element, one) for one in value]
    return [{"key": one["key"], "value": as_values(shape.value, one["value"])} for one in value]


def excerpt(written: str) -> str:
    """Return the beginning of a JSON value for a reason, without white space between the parts of the value."""
    return _BETWEEN.sub(lambda found: found[1] or "", written[:10_000])[:100]


def branch_of(fields: Iterable[Field], rest: str | None = None) -> Branch:
    """Arrange fields by their places: the tree of the objects in which the fields' values are.

    `rest` is the name of the field that keeps the undeclared members of the outermost object.
    """
    root = Branch(rest=rest)
    for one in fields:
        at = root
        for name in one.place[:-1]:
            inner = at.children.setdefault(name, Branch())
            assert isinstance(inner, Branch), "places do not overlap"
            at = inner
        at.children[one.place[-1]] = one
    return root


def _structs(fields: tuple[Field, ...]) -> Iterator[Struct]:
    for one in fields:
        shape: Shape = one.shape
        while isinstance(shape, Listed | Mapped):
            shape = shape.element if isinstance(shape, Listed) else shape.value
        if isinstance(shape, Struct):
            yield shape
            yield from _structs(shape.fields)


def _first(branch: Branch) -> str:
    """Return the name of the first column that is read from a branch."""
    child = next(iter(branch.children.values()))
    return _first(child) if isinstance(child, Branch) else child.name


def _is_one_object(text: str) -> bool:
    """Return True if a text that exceeds a limit might still be one object: its brackets match."""
    rest = _STRING.sub("", text)
    depth = 0
    for place, one in enumerate(rest):
        depth += (one in "[{") - (one in "]}")
        if depth == 0:
            return text.startswith("{") and place == len(rest) - 1
    return False


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BETWEEN = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAIVE, _FIRST, _MICROSECOND = datetime(1970, 1, 1), date(1970, 1, 1), timedelta(microseconds=1)
_PER_UNIT = {unit: Decimal(times) / parts for unit, (times, parts) in UNITS.items()}


_CELL_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


_FOLDERS = 1_000
"""The number of files whose folders' values are remembered."""
