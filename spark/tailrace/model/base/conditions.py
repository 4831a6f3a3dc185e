"""Conditions on a record's columns, as data; a punctuation trigger waits for one.

A condition is a term of the algebra, so it means the same in every execution. It is true or false, never unknown: a
comparison with a missing value does not hold, and its opposite does, so `~Match(c, "==", v)` is not `!=`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import Fault, unknown_column
from tailrace.model.base.types import INTEGERS, decimal_parts

Operator = Literal["==", "!=", "<", "<=", ">", ">="]
_OPERATORS = ("==", "!=", "<", "<=", ">", ">=")


class Condition:
    """The base of every condition. Conditions are put together with `&`, `|` and `~`."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition looks at."""
        raise NotImplementedError

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        """Tell whether a record with these column values meets the condition; `types` are the columns' types."""
        raise NotImplementedError

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        """Find the faults of the condition over columns of these types."""
        raise NotImplementedError

    def __and__(self, other: Condition) -> Condition:
        return Both(self, other)

    def __or__(self, other: Condition) -> Condition:
        return Either(self, other)

    def __invert__(self) -> Condition:
        return Not(self)


@dataclass(frozen=True)
class Match(Condition):
    """A column's value compared with a constant.

    >>> from tailrace.model.base.algebra import Scalars
    >>> end = Match("kind", "==", "end")
    >>> [end.holds(Scalars(), {"kind": kind}, {"kind": "string"}) for kind in ("end", "ride", None)]
    [True, False, False]
    """

    column: str
    operator: Operator
    value: str | int | bool | Decimal

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        constant = o.literal(self.value, types[self.column])
        compared: Callable[[Term], Term] = {
            "==": lambda value: o.equal(value, constant),
            "!=": lambda value: o.no(o.equal(value, constant)),
            ">=": lambda value: o.at_least(value, constant),
            "<": lambda value: o.no(o.at_least(value, constant)),
            "<=": lambda value: o.at_least(constant, value),
            ">": lambda value: o.no(o.at_least(constant, value)),
        }[self.operator]
        return o.given(record.get(self.column), compared)

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if self.operator not in _OPERATORS:
            yield Fault(f"{path}.operator", self.operator, f"one of {', '.join(_OPERATORS)}", 'write for example "=="')
        if self.column not in types:
            yield unknown_column(f"{path}.column", self.column, types)
        elif (kind := _kind(types[self.column])) is None:
            expected = "a column of strings, truth values, integers or decimals"
            yield Fault(f"{path}.column", f"{self.column}: {types[self.column]}", expected, "compare another column")
        elif not _fits(self.value, kind, types[self.column]):
            yield Fault(
                f"{path}.value", self.value, f"a value of the column's type, {types[self.column]}", _REMEDY[kind]
            )


@dataclass(frozen=True)
class Missing(Condition):
    """The condition that a column has no value."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return o.missing(record.get(self.column))

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if self.column not in types:
            yield unknown_column(f"{path}.column", self.column, types)


@dataclass(frozen=True)
class _Pair(Condition):
    """The base of `Both` and `Either`: two conditions."""

    one: Condition
    other: Condition

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.one.columns, *self.other.columns)))

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        yield from condition_faults(f"{path}.one", self.one, types)
        yield from condition_faults(f"{path}.other", self.other, types)


@dataclass(frozen=True)
class Both(_Pair):
    """The condition that both of two conditions hold."""

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return o.every(self.one.holds(o, record, types), self.other.holds(o, record, types))


@dataclass(frozen=True)
class Either(_Pair):
    """The condition that at least one of two conditions holds."""

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return o.some(self.one.holds(o, record, types), self.other.holds(o, record, types))


@dataclass(frozen=True)
class Not(Condition):
    """The opposite of a condition. A record with a missing value meets it, for it does not meet the condition."""

    one: Condition

    @property
    def columns(self) -> tuple[str, ...]:
        return self.one.columns

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return o.no(self.one.holds(o, record, types))

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        yield from condition_faults(f"{path}.one", self.one, types)


def condition_faults(path: str, condition: object, types: Mapping[str, str]) -> Iterable[Fault]:
    """Find the faults of a condition; a value that is no `Condition` is a fault by itself."""
    if isinstance(condition, Condition):
        return condition.faults(path, types)
    return [Fault(path, condition, "a condition", 'write for example Match("kind", "==", "end")')]


_REMEDY = {
    "text": 'write a string, for example "end"',
    "truth": "write True or False",
    "number": "write a number that the column can hold",
}


def _kind(type: str) -> str | None:
    if type in INTEGERS or decimal_parts(type):
        return "number"
    return {"string": "text", "boolean": "truth"}.get(type)


def _fits(value: Any, kind: str, type: str) -> bool:
    if kind == "text":
        return isinstance(value, str)
    if kind == "truth" or isinstance(value, bool):
        return kind == "truth" and isinstance(value, bool)
    if not isinstance(value, int | Decimal) or not Decimal(value).is_finite():
        return False
    precision, scale = decimal_parts(type) or (18 if type == "bigint" else 9, 0)
    exact = Decimal(value)
    return abs(exact) < 10 ** (precision - scale) and exact == round(exact, scale)
