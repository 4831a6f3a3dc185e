"""Read the cells of a text table as values of column types, and show values as cells."""

from __future__ import annotations

import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isnan
from typing import Any

from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.model.base.types import element_type, is_nested, struct_fields
from tailrace.model.base.values import fitted_number, in_utc
from tailrace.model.windows.windows import Window

WINDOW = "window"
"""The type of a column that has a window's start and end in one cell."""

NULL = "null"
"""The cell that stands for null; a text with these letters is written in quotes."""

_TIME = re.compile(r"\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?")
_ENDS = {"beginning": BEGINNING, "end": END_OF_TIME}
_PLAIN_TEXT = re.compile(r"""(?!~|\#|[:+-]*--)[^\s"|]+""")
_AS_TEXT = ("string", "timestamp", "date", "binary")


class Loose(ABC):
    """An expected value that more than one value equals."""

    @abstractmethod
    def matches(self, value: Any) -> bool:
        """Return True if a value is one of those that are expected."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The value as a cell."""


@dataclass(frozen=True)
class About(Loose):
    """A rounded double, which is written as `~0.33`: equal to each double that rounds to these digits."""

    digits: Decimal

    @property
    def text(self) -> str:
        return f"~{self.digits}"

    def matches(self, value: Any) -> bool:
        if not isinstance(value, float | int) or isnan(value) or value in (float("inf"), float("-inf")):
            return False
        exponent = self.digits.as_tuple().exponent
        assert isinstance(exponent, int)
        half = Decimal(5).scaleb(exponent - 1)
        return abs(Decimal(value) - self.digits) <= half


@dataclass
class CellReader:
    """The reader of a table's cells; a time of a day is on the day that was written last before it.

    >>> reader = CellReader()
    >>> reader.read("2026-03-01T09:00/10:00", "window").end - reader.read("2026-03-01T09:00/10:00", "window").start
    3600000000
    >>> reader.read("11:30", "timestamp").isoformat(), reader.read("null", "string"), reader.read('"null"', "string")
    ('2026-03-01T11:30:00+00:00', None, 'null')
    """

    day: str | None = None

    def read(self, text: str, type: str) -> Any:
        """Read a cell. Raises `ValueError` or `ArithmeticError` if the cell is not of the column's type."""
        if text == NULL:
            return None
        if type == WINDOW:
            start, _, end = text.partition("/")
            first = self._instant(start)
            last = self._instant(end)
            # A window that ends at a time of a day before its start ends on the next day.
            return Window(first, last + 86_400_000_000 if last <= first and _TIME.fullmatch(end) else last)
        if type == "timestamp":
            return moment(self._instant(text))
        return _nested(json.loads(text, parse_float=Decimal), type) if is_nested(type) else _plain(text, type)

    def _instant(self, text: str) -> int:
        if text in _ENDS:
            return _ENDS[text]
        if _TIME.fullmatch(text):
            if self.day is None:
                raise ValueError("a time of a day, and no day is written before it")
            text = f"{self.day}T{text}"
        at = in_utc(datetime.fromisoformat(text))
        self.day = f"{at:%Y-%m-%d}"
        return instant(at)


def _plain(text: str, type: str) -> Any:
    match type:
        case "string":
            return json.loads(text) if text.startswith('"') else text
        case "boolean":
            return {"true": True, "false": False}[text.lower()]
        case "date":
            return date.fromisoformat(text)
        case "binary":
            return b"" if text == '""' else base64.b64decode(text, validate=True)
        case "double" | "float":
            return About(Decimal(text[1:])) if text.startswith("~") else fitted_number(float(text), type)
    return fitted_number(Decimal(text), type)


def _nested(value: Any, type: str) -> Any:
    """Convert a value of JSON to a nested type; a field that an object lacks is null."""
    if value is None:
        return None
    if (element := element_type(type)) is not None:
        if not isinstance(value, list):
            raise ValueError("not a list")
        return [_nested(one, element) for one in value]
    if (fields := struct_fields(type)) is not None:
        if not isinstance(value, dict) or value.keys() - fields.keys():
            raise ValueError(f"not an object with the fields {', '.join(fields)}")
        return {name: _nested(value.get(name), of) for name, of in fields.items()}
    if isinstance(value, bool) != (type == "boolean") or isinstance(value, list | dict):
        raise ValueError(f"not a {type}")
    if isinstance(value, str) != (type in _AS_TEXT):
        raise ValueError(f"not a {type}")
    if type in ("boolean", "string"):
        return value
    return CellReader().read(str(value), type)


def key_of(value: Any) -> Hashable:
    """Return a key that is the same for equal values: NaN equals NaN, and 3 equals 3.00."""
    if isinstance(value, float):
        return "NaN" if isnan(value) else value
    if isinstance(value, Mapping):
        return tuple((name, key_of(one)) for name, one in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(key_of, value))
    assert isinstance(value, Hashable)
    return value


def cell(value: Any, type: str) -> str:
    """Show a value as a cell, which `CellReader` reads as the same value.

    >>> [cell(value, "string") for value in ("DE", "New York", "", None)]
    ['DE', '"New York"', '""', 'null']
    >>> cell(moment(0), "timestamp"), cell(Window(0, 3_600_000_000), "window"), cell([{"n": 1}], "array<struct<n:int>>")
    ('1970-01-01T00:00', '1970-01-01T00:00/01:00', '[{"n":1}]')
    """
    if value is None:
        return NULL
    if type == WINDOW:
        start, end = _instant_text(value.start), _instant_text(value.end)
        short = end[11:] if _TIME.fullmatch(end[11:]) and _next_time(start, end) else end
        return f"{start}/{short}"
    if is_nested(type):
        return _nested_text(value, type)
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return _instant_text(instant(value))
        case float():
            return _double_text(value)
        case str() if type == "string":
            return value if _PLAIN_TEXT.fullmatch(value) and value != NULL else json.dumps(value, ensure_ascii=False)
        case Decimal():
            return f"{value:f}"
        case bytes():
            return base64.b64encode(value).decode() or '""'
    return str(value)


def _double_text(value: float) -> str:
    return "NaN" if isnan(value) else repr(value).replace("inf", "Infinity")


def _next_time(start: str, end: str) -> bool:
    """Return True if the day of a window's end can be left out."""
    if start[:10] == end[:10]:
        return True
    try:
        following = date.fromisoformat(start[:10]) + timedelta(1)
    except ValueError:
        return False
    return following.isoformat() == end[:10] and end[11:] <= start[11:]


def _instant_text(micros: int) -> str:
    if micros <= BEGINNING or micros >= END_OF_TIME:
        return "beginning" if micros <= BEGINNING else "end"
    at = moment(micros).astimezone(UTC).replace(tzinfo=None)
    shortest = "minutes" if not at.second and not at.microsecond else "auto"
    return at.isoformat(timespec=shortest)


def _nested_text(value: Any, type: str) -> str:
    if value is None:
        return NULL
    if (element := element_type(type)) is not None:
        return f"[{','.join(_nested_text(one, element) for one in value)}]"
    if (fields := struct_fields(type)) is not None:
        members = (f"{json.dumps(name)}:{_nested_text(value[name], of)}" for name, of in fields.items())
        return f"{{{','.join(members)}}}"
    text = value if isinstance(value, str) else cell(value, type)
    return json.dumps(text, ensure_ascii=False) if type in _AS_TEXT else text
