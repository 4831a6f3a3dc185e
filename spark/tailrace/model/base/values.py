"""Conversion of Python values to a column's type: exactly, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache, partial
from typing import Any

from tailrace.model.base.types import decimal_parts


def of_value(given: Any, type: str) -> Any:
    """Convert a value to a column type. Raises `ValueError` or `TypeError` where it is no value of that type.

    >>> of_value(3, "decimal(4,2)"), of_value(True, "boolean")
    (Decimal('3.00'), True)
    """
    match type:
        case "string" | "boolean":
            return given if isinstance(given, str if type == "string" else bool) else no_value()
        case "timestamp":
            return zoned(given) if isinstance(given, datetime) else no_value()
        case "date":
            return given if isinstance(given, date) and not isinstance(given, datetime) else no_value()
    return no_value() if isinstance(given, bool | str) else number(given, type)


@cache
def fitting(type: str) -> Callable[[Any], Any]:
    """Make the function that converts a value, or null, to a column's type: `of_value` with the type looked at once.

    >>> fitting("string")("a"), fitting("string")(None), fitting("int")(3)
    ('a', None, 3)
    """
    return _text if type == "string" else partial(_other, type)


def _text(given: Any) -> Any:
    return given if given is None or isinstance(given, str) else no_value()


def _other(type: str, given: Any) -> Any:
    return None if given is None else of_value(given, type)


def number(given: Any, type: str) -> Any:
    """Convert a number to a column type, exactly. Raises `ValueError` where it does not fit."""
    if isinstance(given, bool):
        return given
    if type == "double":
        return float(given)
    if isinstance(given, int) and type in _WHOLE:
        return given if given in _WHOLE[type] else no_value()
    exact = Decimal(given)
    precision, scale = decimal_parts(type) or (None, 0)
    if not exact.is_finite() or exact != round(exact, scale):
        raise ValueError
    if precision is not None:
        return round(exact, scale) if abs(exact) < 10 ** (precision - scale) else no_value()
    return int(exact) if int(exact) in _WHOLE[type] else no_value()


_WHOLE = {"int": range(-(2**31), 2**31), "bigint": range(-(2**63), 2**63)}
"""The whole numbers of each type."""


def zoned(at: datetime) -> datetime:
    """Convert an instant to UTC; an instant with no zone is taken to be in UTC already."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def no_value() -> Any:
    """Raise `ValueError`, for what is given is no value of the type."""
    raise ValueError
