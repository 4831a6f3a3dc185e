"""Row filters for pyiceberg, which it pushes down to partitions and files' statistics. Instants are microseconds.

Nothing is later than the end of time, or earlier than the beginning, and pyiceberg is not asked: it counts on by a
microsecond, to an instant that Python does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

# Typed as plain callables, since the types that these classes declare are those of their JSON form.
_every: Callable[..., Filter] = And
_equal: Callable[..., Filter] = EqualTo
_above: Callable[..., Filter] = GreaterThan
_since: Callable[..., Filter] = GreaterThanOrEqual
_before: Callable[..., Filter] = LessThan
_up_to: Callable[..., Filter] = LessThanOrEqual
_among: Callable[..., Filter] = In
_begins: Callable[..., Filter] = StartsWith
_missing: Callable[..., Filter] = IsNull
_there: Callable[..., Filter] = NotNull


def every(*filters: Filter) -> Filter:
    """Select the rows that pass all of the filters; there must be at least one filter."""
    return filters[0] if len(filters) == 1 else _every(*filters)


def equal(column: str, value: Any) -> Filter:
    """Select the rows with this value; with None, those that have no value."""
    return _missing(column) if value is None else _equal(column, value)


def there(column: str) -> Filter:
    """Select the rows that have a value."""
    return _there(column)


def above(column: str, value: int) -> Filter:
    """Select the rows with a larger number."""
    return _above(column, value)


def at_most(column: str, value: int) -> Filter:
    """Select the rows with this number or a smaller one."""
    return _up_to(column, value)


def among(column: str, values: Iterable[str]) -> Filter:
    """Select the rows with one of these values."""
    return _among(column, set(values))


def begins(column: str, text: str) -> Filter:
    """Select the rows with a text that begins with this one."""
    return _begins(column, text)


def after(column: str, micros: int) -> Filter:
    """Select the rows with a later instant."""
    if micros >= END_OF_TIME:
        return AlwaysFalse()
    return _above(column, moment(micros).isoformat())


def up_to(column: str, micros: int) -> Filter:
    """Select the rows with this instant or an earlier one."""
    if micros >= END_OF_TIME:
        return _there(column)
    return _up_to(column, moment(micros).isoformat())


def since(column: str, micros: int) -> Filter:
    """Select the rows with this instant or a later one."""
    if micros <= BEGINNING:
        return _there(column)
    return _since(column, moment(micros).isoformat())


def before(column: str, micros: int) -> Filter:
    """Select the rows with an earlier instant."""
    if micros <= BEGINNING:
        return AlwaysFalse()
    return _before(column, moment(micros).isoformat())
