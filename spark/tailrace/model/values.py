"""Values of a column's type, taken from Python's own: exactly, or not at all."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tailrace.model.types import decimal_parts


def of_value(given: Any, type: str) -> Any:
    """A value as one of a column type. Raises `ValueError` or `TypeError` where it is none.

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


def number(given: Any, type: str) -> Any:
    """A number as one of a column type, exactly. Raises `ValueError` where it does not fit."""
    if isinstance(given, bool):
        return given
    if type == "double":
        return float(given)
    exact = Decimal(given)
    precision, scale = decimal_parts(type) or (None, 0)
    if not exact.is_finite() or exact != round(exact, scale):
        raise ValueError
    if precision is not None:
        return round(exact, scale) if abs(exact) < 10 ** (precision - scale) else no_value()
    bits = 31 if type == "int" else 63
    return int(exact) if -(2**bits) <= exact < 2**bits else no_value()


def zoned(at: datetime) -> datetime:
    """An instant in UTC; with no zone it is taken to be that already."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def no_value() -> Any:
    """Raises `ValueError`: what is given is no value of the type."""
    raise ValueError
