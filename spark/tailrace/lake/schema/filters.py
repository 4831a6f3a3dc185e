"""Build row filters for pyiceberg, which uses the filters to select partitions, files (by their statistics) and rows.

Instants are in microseconds.

No instant is later than the end of time or earlier than the beginning of time. A comparison with the end or the
beginning of time is therefore decided here and not passed to pyiceberg. Otherwise, pyiceberg would add or subtract a
microsecond and reach an instant that Python cannot represent.
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
    """Build a filter expression.

    `kind` has the type `Any`, because the argument types that pyiceberg declares are the types of the JSON form.
    """
    made: Filter = kind(*arguments)
    return made


def every(*filters: Filter) -> Filter:
    """Return a filter for the rows that pass all of the given filters; at least one filter is required."""
    return filters[0] if len(filters) == 1 else _made(And, *filters)


def equal(column: str, value: Any) -> Filter:
    """Return a filter for the rows in which a column equals `value`; if `value` is None, for the rows with null."""
    return _made(IsNull, column) if value is None else _made(EqualTo, column, value)


def has_value(column: str) -> Filter:
    """Return a filter for the rows in which a column is not null."""
    return _made(NotNull, column)


def above(column: str, value: int) -> Filter:
    """Return a filter for the rows in which a numeric column is larger than `value`."""
    return _made(GreaterThan, column, value)


def at_most(column: str, value: int) -> Filter:
    """Return a filter for the rows in which a numeric column is at most `value`."""
    return _made(LessThanOrEqual, column, value)


def among(column: str, values: Iterable[str]) -> Filter:
    """Return a filter for the rows in which a column has one of the given values."""
    return _made(In, column, set(values))


def begins(column: str, text: str) -> Filter:
    """Return a filter for the rows in which a column's text begins with the given text."""
    return _made(StartsWith, column, text)


def after(column: str, micros: int) -> Filter:
    """Return a filter for the rows in which a column's instant is later than `micros`."""
    if micros >= END_OF_TIME:
        return AlwaysFalse()
    return _made(GreaterThan, column, moment(micros).isoformat())


def up_to(column: str, micros: int) -> Filter:
    """Return a filter for the rows in which a column's instant is at or before `micros`."""
    if micros >= END_OF_TIME:
        return _made(NotNull, column)
    return _made(LessThanOrEqual, column, moment(micros).isoformat())


def since(column: str, micros: int) -> Filter:
    """Return a filter for the rows in which a column's instant is at or after `micros`."""
    if micros <= BEGINNING:
        return _made(NotNull, column)
    return _made(GreaterThanOrEqual, column, moment(micros).isoformat())


def before(column: str, micros: int) -> Filter:
    """Return a filter for the rows in which a column's instant is earlier than `micros`."""
    if micros <= BEGINNING:
        return AlwaysFalse()
    return _made(LessThan, column, moment(micros).isoformat())
