"""Conversion of Python values to column types. An error is raised if a value cannot be converted exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from functools import cache, partial
from math import isinf
from struct import pack, unpack
from typing import Any

from tailrace.model.base.types import decimal_parts, element_type, is_nested, struct_fields


def of_value(value: Any, type: str) -> Any:
    """Convert a value to a column type.

    Raises `ValueError`, `TypeError` or `ArithmeticError` if the value does not fit.

    >>> of_value(3, "decimal(4,2)"), of_value(True, "boolean")
    (Decimal('3.00'), True)
    >>> of_value([{"n": 1}, None], "array<struct<n:int,word:string>>")
    [{'n': 1, 'word': None}, None]
    """
    match type:
        case "string":
            return _text(no_value() if value is None else value)
        case "boolean":
            return value if isinstance(value, bool) else no_value()
        case "timestamp":
            return in_utc(value) if isinstance(value, datetime) else no_value()
        case "date":
            return value if isinstance(value, date) and not isinstance(value, datetime) else no_value()
        case "binary":
            return value if isinstance(value, bytes) else no_value()
        case _ if is_nested(type):
            return _nested(value, type)
    return no_value() if isinstance(value, bool | str) else fitted_number(value, type)


@cache
def fitter(type: str) -> Callable[[Any], Any]:
    """Return a function that converts a value, or null, to a column type.

    The returned function does the same as `of_value`, but the type is parsed only once.

    >>> fitter("string")("a"), fitter("string")(None), fitter("int")(3)
    ('a', None, 3)
    """
    return _text if type == "string" else partial(_other, type)


def _nested(value: Any, type: str) -> Any:
    """Convert a list or a struct to a column type; fields that a struct lacks are null, and others do not fit."""
    if (element := element_type(type)) is not None:
        return [fitter(element)(one) for one in (value if isinstance(value, list | tuple) else no_value())]
    fields = struct_fields(type) or {}
    if not isinstance(value, Mapping) or value.keys() - fields.keys():
        no_value()
    return {name: fitter(of)(value.get(name)) for name, of in fields.items()}


def _text(given: Any) -> Any:
    """Return a string or null unchanged.

    Raises `ValueError` for any other value, and for a string with an unpaired surrogate, which cannot be encoded in
    UTF-8.
    """
    if given is None:
        return None
    if not isinstance(given, str):
        no_value()
    if not given.isascii():
        given.encode()
    return given


def _other(type: str, given: Any) -> Any:
    return None if given is None else of_value(given, type)


def fitted_number(value: Any, type: str) -> Any:
    """Convert a number to a column type exactly. Raises `ValueError` if the number does not fit."""
    if isinstance(value, bool):
        return value
    if type == "double":
        return _double(value)
    if type == "float":
        return unpack("f", pack("f", _double(value)))[0]
    if isinstance(value, int) and type in _WHOLE:
        return value if value in _WHOLE[type] else no_value()
    exact = Decimal(value)
    precision, scale = decimal_parts(type) or (None, 0)
    if not exact.is_finite() or exact.adjusted() > _DIGITS.prec // 2:
        raise ValueError
    # Use a separate decimal context, because the default context rounds to 28 digits.
    made = exact.quantize(Decimal(1).scaleb(-scale), context=_DIGITS)
    if exact != made:
        raise ValueError
    if precision is not None:
        return made if made.is_zero() or made.adjusted() < precision - scale else no_value()
    return int(exact) if int(exact) in _WHOLE[type] else no_value()


def _double(value: Any) -> float:
    """Convert a number to the nearest double. Raises `ValueError` if the conversion would be too inexact.

    The error is raised for an integer that no double represents exactly, for a number that is too large for a double,
    and for a decimal so small that its nearest double is zero.
    """
    try:
        made = float(value)
    except OverflowError as error:
        raise ValueError from error
    lost = made != value if isinstance(value, int) else isinf(made) or (made == 0 and value != 0)
    return no_value() if lost and not isinstance(value, float) else made


_DIGITS = Context(prec=160)

_WHOLE = {"int": range(-(2**31), 2**31), "bigint": range(-(2**63), 2**63)}
"""The range of each integer type: the whole numbers that the type can hold."""


def in_utc(at: datetime) -> datetime:
    """Convert a `datetime` to UTC. A `datetime` without a time zone is assumed to be in UTC already.

    Raises `ValueError` if the result is outside the years 1 to 9999.
    """
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError as error:
        raise ValueError from error


def no_value() -> Any:
    """Raise `ValueError`. Callers use this function in expressions, for a value that does not fit its type."""
    raise ValueError
