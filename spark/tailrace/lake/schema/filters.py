"""Row filters for pyiceberg, which it pushes down to partitions and files' statistics. Instants are microseconds.

Nothing is later than the end of time, or earlier than the beginning, and pyiceberg is not asked: it counts on by a
microsecond, to an instant that Python does not have.
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
    """Select the rows with this value; with None, those that have no value."""
    return _made(IsNull, column) if value is None else _made(EqualTo, column, value)


def has_value(column: str) -> Filter:
    """Select the rows that have a value."""
    return _made(NotNull, column)


def above(column: str, value: int) -> Filter:
    """Select the rows with a larger number."""
    return _made(GreaterThan, column, value)


def at_most(column: str, value: int) -> Filter:
    """Select the rows with this number or a smaller one."""
    return _made(LessThanOrEqual, column, value)


def among(column: str, values: Iterable[str]) -> Filter:
    """Select the rows with one of these values."""
    return _made(In, column, set(values))


def begins(column: str, text: str) -> Filter:
    """Select the rows with a text that begins with this one."""
    return _made(StartsWith, column, text)


def after(column: str, micros: int) -> Filter:
    """Select the rows with a later instant."""
    if micros >= END_OF_TIME:
        return AlwaysFalse()
    return _made(GreaterThan, column, moment(micros).isoformat())


def up_to(column: str, micros: int) -> Filter:
    """Select the rows with this instant or an earlier one."""
    if micros >= END_OF_TIME:
        return _made(NotNull, column)
    return _made(LessThanOrEqual, column, moment(micros).isoformat())


def since(column: str, micros: int) -> Filter:
    """Select the rows with this instant or a later one."""
    if micros <= BEGINNING:
        return _made(NotNull, column)
    return _made(GreaterThanOrEqual, column, moment(micros).isoformat())


def before(column: str, micros: int) -> Filter:
    """Select the rows with an earlier instant."""
    if micros <= BEGINNING:
        return AlwaysFalse()
    return _made(LessThan, column, moment(micros).isoformat())
