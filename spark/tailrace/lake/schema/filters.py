"""Build row filters for pyiceberg, which applies them to partitions and files' statistics.

Instants are in microseconds.

No instant is later than the end of time, or earlier than the beginning of time. Comparisons with the end or the
beginning of time do not use pyiceberg, because pyiceberg would add or subtract a microsecond and reach an instant that
Python cannot represent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    StartsWith,
)

from tailrace.model.base.time import BEGINNING, END_OF_TIME, moment

Filter: TypeAlias = BooleanExpression

EVERYTHING: Filter = AlwaysTrue()


def _made(kind: Any, *arguments: Any) -> Filter:
    """Make an expression; `Any`, because the types that pyiceberg declares are the types of its JSON form."""
    made: Filter = kind(*arguments)
    return made


def every(*filters: Filter) -> Filter:
    """Select the rows that pass all of the filters; there must be at least one filter."""
    return filters[0] if len(filters) == 1 else _made(And, *filters)


def equal(column: str, value: Any) -> Filter:
    """Select the rows with this value; for None, select the rows without a value."""
    return _made(IsNull, column) if value is None else _made(EqualTo, column, value)


def has_value(column: str) -> Filter:
    """Select the rows that have a value in this column."""
    return _made(NotNull, column)


def above(column: str, value: int) -> Filter:
    """Select the rows with a number larger than `value`."""
    return _made(GreaterThan, column, value)


def at_most(column: str, value: int) -> Filter:
    """Select the rows with a number that is at most `value`."""
    return _made(LessThanOrEqual, column, value)


def among(column: str, values: Iterable[str]) -> Filter:
    """Select the rows with one of these values."""
    return _made(In, column, set(values))


def begins(column: str, text: str) -> Filter:
    """Select the rows whose text begins with the given text."""
    return _made(StartsWith, column, text)


def after(column: str, micros: int) -> Filter:
    """Select the rows with an instant later than `micros`."""
    if micros >= END_OF_TIME:
        return AlwaysFalse()
    return _made(GreaterThan, column, moment(micros).isoformat())


def up_to(column: str, micros: int) -> Filter:
    """Select the rows with an instant that is not later than `micros`."""
    if micros >= END_OF_TIME:
        return _made(NotNull, column)
    return _made(LessThanOrEqual, column, moment(micros).isoformat())


def since(column: str, micros: int) -> Filter:
    """Select the rows with an instant that is not earlier than `micros`."""
    if micros <= BEGINNING:
        return _made(NotNull, column)
    return _made(GreaterThanOrEqual, column, moment(micros).isoformat())


def before(column: str, micros: int) -> Filter:
    """Select the rows with an instant earlier than `micros`."""
    if micros <= BEGINNING:
        return AlwaysFalse()
    return _made(LessThan, column, moment(micros).isoformat())
