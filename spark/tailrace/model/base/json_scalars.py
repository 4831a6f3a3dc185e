"""The meaning of numbers and texts in JSON as values of column types: a value is read without loss, or does not fit."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal
from json.decoder import scanstring as scanstring  # type: ignore[attr-defined]
from math import isinf
from typing import Any, NoReturn

from tailrace.model.base.json_limits import beyond
from tailrace.model.base.types import decimal_parts

ROUNDINGS = {"half_even": "ROUND_HALF_EVEN", "half_up": "ROUND_HALF_UP", "down": "ROUND_DOWN"}
"""The ways to round decimals (`Log.rounding`), with their names in the module `decimal`."""


class Number(str):
    """A number in a JSON text, with its digits as they are written."""

    __slots__ = ()


class Rounded(Decimal):
    """A decimal that is not the number that was read, because that number had more digits (`Log.rounding`)."""

    __slots__ = ()


def rounded_in(value: Any) -> int:
    """Return how many rounded decimals a value has, at any depth.

    >>> rounded_in({"items": [decimal_value("1.005", 9, 2, "down"), decimal_value("1.5", 9, 2, "down")], "n": None})
    1
    """
    if isinstance(value, list):
        return sum(map(rounded_in, value))
    if isinstance(value, dict):
        return sum(map(rounded_in, value.values()))
    return int(isinstance(value, Rounded))


class UnreadError(ValueError):
    """The error for a text that is not JSON."""


def no_constant(name: str) -> NoReturn:
    """Raise `UnreadError` for `NaN` and `Infinity`, which Python's parser would accept."""
    raise UnreadError(name)


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=no_constant)
scan = _DECODER.raw_decode


def skip(text: str, at: int) -> int:
    """Return the position after the JSON value that begins at a position. Raises `ValueError` if it is not JSON."""
    return scan(text, at)[1]


def space(text: str, at: int) -> int:
    """Return the position of the next character that is not white space."""
    while text[at] in " \t\r\n":
        at += 1
    return at


def is_json(text: str) -> bool:
    """Return True if a text is one JSON value, with no more levels of lists and objects than any record may have.

    >>> is_json(' {"a": [1.10]} '), is_json("{'a': 1}"), is_json("1 2"), is_json("NaN")
    (True, False, False, False)
    """
    whole = text.strip(" \t\r\n")
    try:
        return beyond(whole) is None and not half_a_pair(whole) and skip(whole, 0) == len(whole)
    except (ValueError, IndexError, RecursionError):
        return False


def half_a_pair(text: str) -> bool:
    r"""Return True if a JSON text has half of a surrogate pair, which is no character.

    >>> half_a_pair(r'"\ud83d\ude00"'), half_a_pair(r'"\ud83d"'), half_a_pair(r'"\\ud83d"')
    (False, True, False)
    """
    return "\\u" in text and _LONE.search(text) is not None


def number_value(digits: str, type: str, rounding: str | None = None) -> Any:
    """Convert a number to a column type. Raises an error if the number does not fit."""
    parts = decimal_parts(type)
    if parts is not None:
        return decimal_value(digits, *parts, rounding)
    if type in _WHOLE_TYPES:
        number = int(digits)
        if number not in _WHOLE_TYPES[type]:
            raise ValueError
        return number
    if type not in ("double", "float"):
        raise ValueError
    made = float(digits)
    lost = isinf(made) or (made == 0 and _DIGIT.search(digits.lower().partition("e")[0]) is not None)
    if lost or (abs(made) >= 2**53 and _is_whole(digits) and abs(int(digits)) > 2**53):
        raise ValueError
    return made if type == "double" else struct.unpack("<f", struct.pack("<f", made))[0]


def _is_whole(digits: str) -> bool:
    return digits.lstrip("-").isdigit()


def decimal_value(digits: str, precision: int, scale: int, rounding: str | None = None) -> Decimal:
    """Convert a number to a decimal of a type, `Rounded` if digits were lost.

    Without `rounding`, an error is raised if digits would be lost.
    """
    given = number = Decimal(digits)
    if rounding is not None and number.adjusted() < precision:
        number = number.quantize(Decimal(1).scaleb(-scale), ROUNDINGS[rounding], _ROUNDED)
    made = Decimal if number == given else Rounded
    _, figures, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if not number:
        return made(Decimal(0).scaleb(-scale))
    if number.adjusted() >= precision - scale:
        raise ValueError
    cut = -exponent - scale
    if cut > 0:
        if cut > len(figures) or any(figures[-cut:]):
            raise ValueError
        figures, exponent = figures[:-cut], -scale
    sign = 1 if number.is_signed() else 0
    return made((sign, figures + (0,) * (exponent + scale), -scale))


def instant_of(text: str, of_local: Callable[[int], int] | None = None) -> int:
    """Parse an instant in ISO 8601: a day or a time of a day, with or without an offset; return its microseconds.

    `of_local` converts a time without an offset, in microseconds, to an instant. By default, such times are in UTC.
    """
    found = _INSTANT.fullmatch(text)
    if found is None:
        raise ValueError
    year, month, day, hour, minute, second, fraction, offset = found.groups()
    local = days_of(int(year), int(month), int(day)) * 86_400
    local += _seconds(hour, minute, second)
    micros = local * 10**6 + int((fraction or "0").ljust(6, "0")[:6])
    if offset is None and of_local is not None:
        return of_local(micros)
    return micros - _offset(offset)


def _seconds(hour: str | None, minute: str | None, second: str | None) -> int:
    clock = [int(one or 0) for one in (hour, minute, second)]
    if clock[0] > 23 or clock[1] > 59 or clock[2] > 59:
        raise ValueError
    return clock[0] * 3600 + clock[1] * 60 + clock[2]


def _offset(text: str | None) -> int:
    """Return an offset from UTC in microseconds."""
    if text is None or text in "Zz":
        return 0
    digits = text[1:].replace(":", "").ljust(6, "0")
    hours, minutes, seconds = int(digits[:2]), int(digits[2:4]), int(digits[4:6])
    if hours > 18 or minutes > 59 or seconds > 59:
        raise ValueError
    return (-1 if text[0] == "-" else 1) * (hours * 3600 + minutes * 60 + seconds) * 10**6


def days_of(year: int, month: int, day: int) -> int:
    """Return the days since 1970 of a day; the years 0 to 9999 are valid."""
    # The year 0 has the calendar of the year 400, which is 146,097 days later.
    return (date(year or 400, month, day) - _FIRST).days - (0 if year else 146_097)


def day_of(text: str) -> int:
    """Parse a date in ISO 8601; return its days since 1970."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError
    return days_of(*map(int, found.groups()))


def time_of(text: str) -> str:
    """Parse a time of a day; return it with six digits after the seconds."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError
    hour, minute, second, fraction = found.groups()
    _seconds(hour, minute, second)
    return f"{hour}:{minute}:{second or '00'}.{(fraction or '').ljust(6, '0')[:6]}"


_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(rf"(?<!\\)(?:\\\\)*(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})")
_DIGIT = re.compile("[1-9]")
_OFFSET = r"[Zz]|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?"
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    rf"(?:[Tt ]([0-9]{{2}}):([0-9]{{2}})(?::([0-9]{{2}})(?:[.,]([0-9]+))?)?(?: ?({_OFFSET}))?)?"
)
_DATE = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?")
_WHOLE_TYPES = {"int": range(-(2**31), 2**31), "bigint": range(-(2**63), 2**63)}
_ROUNDED = Context(prec=80)
_FIRST = date(1970, 1, 1)
