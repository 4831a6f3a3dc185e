"""Conditions on the columns of a record, represented as data.

For example, a punctuation trigger waits for a record that meets a condition. A condition is evaluated in the algebra,
so it has the same meaning in every execution. A condition is true or false, never unknown: a comparison is false if the
column's value is missing, and the negation of this comparison is then true. So `~Match(c, "==", v)` differs from
`Match(c, "!=", v)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import Fault, unknown_column
from tailrace.model.base.types import INTEGERS, column_of, decimal_parts, element_type, struct_fields, type_at

Operator = Literal["==", "!=", "<", "<=", ">", ">="]
_OPERATORS = ("==", "!=", "<", "<=", ">", ">=")


class Condition:
    """The base class of conditions. Conditions are combined with `&`, `|` and `~`."""

    parts: tuple[str, ...] = ()
    """The names of the fields that contain the parts of this condition; each part is also a condition."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition reads: by default, the columns of its parts."""
        return tuple(dict.fromkeys(name for part in self.parts for name in getattr(self, part).columns))

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        """Return True if a record with these column values and column types meets the condition."""
        raise NotImplementedError

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        """Find the faults of the condition, given the columns' types; by default, these are the faults of the
        condition's parts.
        """
        for part in self.parts:
            yield from condition_faults(f"{path}.{part}", getattr(self, part), types)

    def __and__(self, other: Condition) -> Condition:
        return Both(self, other)

    def __or__(self, other: Condition) -> Condition:
        return Either(self, other)

    def __invert__(self) -> Condition:
        return Not(self)


@dataclass(frozen=True)
class _OfColumn(Condition):
    """The base class of conditions on the value of one column, or of a field in a column."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (column_of(self.column),)


@dataclass(frozen=True)
class Match(_OfColumn):
    """A condition that compares the value of a column, or of a field in a column, with a constant.

    The path of a field has dots, such as `item.sku`.

    >>> from tailrace.model.base.algebra import Scalars
    >>> end = Match("kind", "==", "end")
    >>> [end.holds(Scalars(), {"kind": kind}, {"kind": "string"}) for kind in ("end", "ride", None)]
    [True, False, False]
    """

    operator: Operator
    value: str | int | bool | Decimal

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        constant = o.literal(self.value, type_at(types, self.column) or "string")
        compared: Callable[[Term], Term] = {
            "==": lambda value: o.equal(value, constant),
            "!=": lambda value: o.no(o.equal(value, constant)),
            ">=": lambda value: o.at_least(value, constant),
            "<": lambda value: o.no(o.at_least(value, constant)),
            "<=": lambda value: o.at_least(constant, value),
            ">": lambda value: o.no(o.at_least(constant, value)),
        }[self.operator]
        return o.given(term_at(o, record, self.column), compared)

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if self.operator not in _OPERATORS:
            yield Fault(f"{path}.operator", self.operator, f"one of {', '.join(_OPERATORS)}", 'write for example "=="')
        type = type_at(types, self.column)
        if type is None:
            yield unknown_column(f"{path}.column", self.column, types)
        elif (kind := _kind(type)) is None:
            expected = "a column of strings, truth values, integers or decimals"
            yield Fault(f"{path}.column", f"{self.column}: {type}", expected, "compare another column")
        elif not _fits(self.value, kind, type):
            yield Fault(f"{path}.value", self.value, f"a value of the column's type, {type}", _REMEDY[kind])


@dataclass(frozen=True)
class Missing(_OfColumn):
    """The condition that the value of a column, or of a field in a column, is missing."""

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return o.missing(term_at(o, record, self.column))

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if type_at(types, self.column) is None:
            yield unknown_column(f"{path}.column", self.column, types)


@dataclass(frozen=True)
class Contains(_OfColumn):
    """The condition that a list has a value, or that a map has a key; it is false if the list is missing.

    >>> from tailrace.model.base.algebra import Scalars
    >>> new = Contains("tags", "new")
    >>> [new.holds(Scalars(), {"tags": tags}, {"tags": "array<string>"}) for tags in (["new", "x"], [], None)]
    [True, False, False]
    """

    value: str | int | bool | Decimal

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        value, list_ = o.literal(self.value, self._type(types) or "string"), term_at(o, record, self.column)
        keys = "key" if "key" in self._fields(types) else None
        return o.given(list_, lambda values: o.has(values, value, keys))

    def _fields(self, types: Mapping[str, str]) -> Mapping[str, str]:
        return struct_fields(element_type(type_at(types, self.column) or "") or "") or {}

    def _type(self, types: Mapping[str, str]) -> str | None:
        """Return the type of the values to compare; None if the column is neither a list of values nor a map."""
        fields = self._fields(types)
        if fields:
            return fields["key"] if [*fields] == ["key", "value"] else None
        return element_type(type_at(types, self.column) or "")

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if (found := type_at(types, self.column)) is None:
            yield unknown_column(f"{path}.column", self.column, types)
        elif (type := self._type(types)) is None or (kind := _kind(type)) is None:
            expected = "a list of strings, truth values, integers or decimals, or a map"
            yield Fault(f"{path}.column", f"{self.column}: {found}", expected, "take another column")
        elif not _fits(self.value, kind, type):
            yield Fault(f"{path}.value", self.value, f"a value of the elements' type, {type}", _REMEDY[kind])


@dataclass(frozen=True)
class _Pair(Condition):
    """The base class of `Both` and `Either`, which combine two conditions."""

    one: Condition
    other: Condition

    parts = ("one", "other")


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
    """The negation of a condition.

    A record whose value is missing does not meet a comparison, so the record meets the negation of that comparison.
    """

    one: Condition

    parts = ("one",)

    def holds(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        return o.no(self.one.holds(o, record, types))


def term_at(o: Algebra, record: Mapping[str, Term], path: str) -> Term:
    """Return the value of a column, or of a field in a column, whose path has dots."""
    column, *fields = path.split(".")
    value = record.get(column)
    for name in fields:
        value = o.field(value, name)
    return value


def condition_faults(path: str, condition: object, types: Mapping[str, str]) -> Iterable[Fault]:
    """Find the faults of a condition. A value that is not a `Condition` is itself a fault."""
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
