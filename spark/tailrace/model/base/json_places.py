r"""Read one value inside a JSON text: the value at a place, as a value of a column type.

A place is a path of names, such as `user.country`; a name with a dot, a blank or any other sign is written in
backquotes. `[0]` after a name, or at the beginning, is an element of a list, counted from 0: `items[0].price`.

The value is what a log's column of this type would hold, whose times without an offset are in UTC. It is null in each
other case: if there is nothing at the place, if null is there, if the value does not fit the type, and if the text is
not JSON as a record may have it (`is_json`). If an object has a name twice, the first of the two counts. So no text is
an error, and a zero has no sign.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

from tailrace.model.base.json_limits import beyond
from tailrace.model.base.json_scalars import (
    Number,
    day_of,
    half_a_pair,
    instant_of,
    no_constant,
    number_value,
    scanstring,
    skip,
    space,
)
from tailrace.model.base.time import BEGINNING, END_OF_TIME, FIRST_DAY, LAST_DAY
from tailrace.model.base.types import is_plain

Step: TypeAlias = str | int
"""A name of an object's member, or the index of a list's element."""

_NAME = re.compile(r"`(?:[^`]|``)+`|[^.`\[\]]+")
_INDEX = re.compile(r"\[([0-9]{1,9})\]")
_PLACE = re.compile(
    rf"(?:(?:{_NAME.pattern})|(?:{_INDEX.pattern}))(?:{_INDEX.pattern}|\.(?:{_NAME.pattern}))*"
)  # an index may follow anything, and a name follows a dot


def is_target(type: object) -> bool:
    """Return True if values inside a JSON text can be read as this type: as any plain type, or as `json`."""
    return is_plain(type) or type == "json"


@lru_cache(maxsize=1024)
def steps_of(place: str) -> tuple[Step, ...] | None:
    """Parse a place inside a JSON value; return None if the text is not a place.

    >>> steps_of("user.`home country`"), steps_of("items[0].price"), steps_of("[1][2]"), steps_of("a..b")
    (('user', 'home country'), ('items', 0, 'price'), (1, 2), None)
    """
    if _PLACE.fullmatch(place) is None:
        return None
    made, at = list[Step](), 0
    while at < len(place):
        if (index := _INDEX.match(place, at)) is not None:
            made.append(int(index[1]))
            at = index.end()
            continue
        name = _NAME.match(place, at + (place[at] == "."))
        assert name is not None, "the whole text is a place"
        made.append(name[0][1:-1].replace("``", "`") if name[0].startswith("`") else name[0])
        at = name.end()
    return tuple(made)


def value_inside(text: str | None, place: str, type: str) -> Any:
    """Return the value at a place of a JSON text, as expressions compute with it; an instant is in microseconds.

    >>> extra = '{"user": {"tier": "gold", "since": "2025-01-01"}, "paid": [12.990, 7]}'
    >>> value_inside(extra, "user.tier", "string"), value_inside(extra, "paid[0]", "decimal(9,2)")
    ('gold', Decimal('12.99'))
    >>> value_inside(extra, "paid[0]", "json"), value_inside(extra, "paid[1]", "bigint"), value_inside("{", "a", "int")
    ('12.990', 7, None)
    >>> value_inside(extra, "user.tier", "bigint"), value_inside(extra, "user.name", "string")
    (None, None)
    """
    return None if text is None else _reader(place, type)(text)


def text_inside(text: str | None, place: str, type: str) -> str | None:
    """Return the value of `value_inside` as a text, which every engine casts to the value's type without loss.

    >>> text_inside('{"a": 1e-7}', "a", "decimal(9,7)"), text_inside('{"a": 1.50}', "a", "double")
    ('0.0000001', '1.5')
    """
    value = value_inside(text, place, type)
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:f}" if isinstance(value, Decimal) else None if value is None else str(value)


@lru_cache(maxsize=1024)
def _reader(place: str, type: str) -> Callable[[str], Any]:
    """Return the function that reads the value at a place of a JSON text."""
    steps = steps_of(place)
    assert steps is not None, f"{place} is a place"
    names = steps

    def read(text: str) -> Any:
        text = text.strip(" \t\r\n")
        try:
            if beyond(text) is not None or half_a_pair(text):
                return None
            value, end = _scan(text, 0)
            if end != len(text):
                return None
            for step in names:
                if isinstance(value, dict) if isinstance(step, str) else isinstance(value, list):
                    value = value[step]
                else:
                    return None
            if type != "json":
                return _as_type(value, type)
            return None if value is None else _written(text, names)
        except (ValueError, LookupError, ArithmeticError, RecursionError):
            return None

    return read


def _as_type(value: Any, type: str) -> Any:
    """Convert a JSON value to a column type. Raises an error if the value does not fit."""
    if isinstance(value, Number):
        number = number_value(value, type)
        return number + 0.0 if type == "double" else number
    if isinstance(value, str):
        if type == "string":
            return value
        if type == "timestamp":
            micros = instant_of(value)
            return micros if BEGINNING <= micros <= END_OF_TIME else None
        if type == "date":
            days = day_of(value)
            return _FIRST + timedelta(days) if FIRST_DAY <= days <= LAST_DAY else None
    return value if type == "boolean" and isinstance(value, bool) else None


def _written(text: str, steps: Iterable[Step]) -> str:
    """Return the value at a place as it is written; the text is JSON, and has a value at the place."""
    at = space(text, 0)
    for step in steps:
        at = _element(text, at, step) if isinstance(step, int) else _member(text, at, step)
    return text[at : skip(text, at)]


def _member(text: str, at: int, name: str) -> int:
    """Return the position of the value of an object's first member with a name."""
    while True:
        found, at = scanstring(text, space(text, at + 1) + 1, True)
        at = space(text, space(text, at) + 1)
        if found == name:
            return at
        at = space(text, skip(text, at))


def _element(text: str, at: int, index: int) -> int:
    """Return the position of an element of a list."""
    at = space(text, at + 1)
    for _ in range(index):
        at = space(text, space(text, skip(text, at)) + 1)
    return at


def _first_of(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object, of which the first counts if a name is there twice."""
    made = dict(members)
    return made if len(made) == len(members) else dict(reversed(members))


_scan = json.JSONDecoder(
    parse_float=Number, parse_int=Number, parse_constant=no_constant, object_pairs_hook=_first_of
).raw_decode
_FIRST = date(1970, 1, 1)
