"""The few operations in which triggers, combiners and transitions are written, once for every execution.

A rule such as "fires when at least n records are fresh" is written as `o.at_least(fresh, n)`. `Scalars` computes it
at once, on Python values; the native execution has an algebra of its own that writes Spark SQL instead. So the
executions cannot disagree about a rule: there is one text of it.
"""

from __future__ import annotations

from decimal import Context, Decimal
from math import ceil
from typing import Any, Protocol, TypeAlias

from tailrace.model.base.errors import AnswerError
from tailrace.model.base.time import instant
from tailrace.model.base.types import decimal_parts

Term: TypeAlias = Any
"""A value of the algebra: a Python value for `Scalars`, an SQL expression for the native execution."""


class Algebra(Protocol):
    """What an execution must be able to do with terms. Truth values are never null; numbers may be."""

    def literal(self, value: bool | int | str | Decimal | None, type: str) -> Term:
        """A constant of a column type."""

    def add(self, a: Term, b: Term, type: str) -> Term:
        """a + b, exactly, as `type`; `AnswerError` (or the execution's own error) where it does not fit."""

    def subtract(self, a: Term, b: Term, type: str) -> Term:
        """a - b, exactly, as `type`."""

    def multiply(self, a: Term, b: Term, type: str) -> Term:
        """a * b, exactly, as `type`; both are whole numbers of at most 38 digits."""

    def size(self, a: Term) -> Term:
        """How many bytes a string takes in UTF-8; it is not null."""

    def at_least(self, a: Term, b: Term) -> Term:
        """Whether a >= b; neither is null."""

    def equal(self, a: Term, b: Term) -> Term:
        """Whether a = b; neither is null."""

    def every(self, *terms: Term) -> Term:
        """Whether all are true; true of none."""

    def some(self, *terms: Term) -> Term:
        """Whether any is true; false of none."""

    def no(self, term: Term) -> Term:
        """Whether it is false."""

    def choose(self, condition: Term, then: Term, otherwise: Term) -> Term:
        """`then` where the condition is true, else `otherwise`."""

    def missing(self, term: Term) -> Term:
        """Whether it is null."""

    def least(self, a: Term, b: Term) -> Term:
        """The smaller; null only if both are."""

    def greatest(self, a: Term, b: Term) -> Term:
        """The larger; null only if both are."""

    def ratio(self, a: Term, b: Term) -> Term:
        """a / b as a double; b is not zero where it matters."""

    def periods(self, at: Term, period: int, offset: int) -> Term:
        """How many whole periods lie between `offset` and `at`, rounded down."""

    def micros(self, a: Term) -> Term:
        """The microseconds since 1970 of an instant of a timestamp column; null of null."""

    def wide(self, a: Term) -> Term:
        """The value of an int column as a bigint; null of null."""

    def stamped(self, at: Term, a: Term) -> Term:
        """A value with an instant in microseconds, which it is ordered by first; null of a null value."""

    def unstamped(self, a: Term) -> Term:
        """The value of what is stamped; null of null."""

    def no_values(self, type: str) -> Term:
        """The list of a list's type that holds nothing."""

    def alone(self, a: Term, type: str) -> Term:
        """A value in a list of this type; the list that holds nothing of null."""

    def gathered(self, a: Term, b: Term, type: str) -> Term:
        """The values of two lists of this type, each as often as it is there, in order."""

    def united(self, a: Term, b: Term) -> Term:
        """The values of two lists, each once, in order."""

    def largest(self, a: Term, b: Term, most: int) -> Term:
        """The largest values of two lists, the largest first, and no more than `most`."""

    def field(self, a: Term, name: str) -> Term:
        """One of the values that are in a value; null of null."""

    def highest(self, a: Term, by: str) -> Term:
        """The values of a list that have the highest value of a field, in their order; nothing of what has none."""

    def once(self, a: Term, type: str) -> Term:
        """A value in a list of this type of `value`s with how many there are (`n`); nothing of null."""

    def counted(self, a: Term, b: Term, type: str) -> Term:
        """The values of two such lists of this type, in order, their counts added up; none of which none is left."""

    def opposite(self, a: Term) -> Term:
        """Such a list with the opposite of each count."""

    def told_apart(self, a: Term) -> Term:
        """The values of such a list that are there, each once, in order."""

    def spread(self, a: Term) -> Term:
        """The values of such a list, each as often as it is there, in order."""

    def end(self, a: Term, *, last: bool) -> Term:
        """The smallest or the largest value of such a list that is there; null of none."""

    def length(self, a: Term) -> Term:
        """How many values a list has."""

    def ranked(self, a: Term, share: float) -> Term:
        """The smallest value of a list that this share of them does not exceed; null of no values."""


_EXACT = Context(prec=80)
_BIGINT = 2**63


def _fit(value: Any, type: str) -> Any:
    parts = decimal_parts(type)
    if parts is None:
        if isinstance(value, int) and not -_BIGINT <= value < _BIGINT:
            raise AnswerError(f"{value} does not fit a bigint: declare the column decimal(38,0)")
    elif abs(value) >= 10 ** (parts[0] - parts[1]):
        raise AnswerError(f"{value} does not fit {type}: declare the column with fewer decimals")
    return value


class Scalars:
    """The algebra on Python values: what the reference execution computes with.

    >>> o = Scalars()
    >>> o.every() and not o.some()
    True
    >>> o.least(None, 3), o.ratio(7, 2)
    (3, 3.5)
    """

    def literal(self, value: bool | int | str | Decimal | None, type: str) -> Term:
        return value

    def add(self, a: Term, b: Term, type: str) -> Term:
        if type == "bigint" and -_BIGINT <= (total := a + b) < _BIGINT:
            return total
        return _fit(a + b if _whole(a, b) else _EXACT.add(a, b), type)

    def subtract(self, a: Term, b: Term, type: str) -> Term:
        return _fit(a - b if _whole(a, b) else _EXACT.subtract(a, b), type)

    def multiply(self, a: Term, b: Term, type: str) -> Term:
        return _fit(a * b if _whole(a, b) else _EXACT.multiply(a, b), type)

    def size(self, a: Term) -> Term:
        return len(a.encode())

    def at_least(self, a: Term, b: Term) -> Term:
        return a >= b

    def equal(self, a: Term, b: Term) -> Term:
        return a == b

    def every(self, *terms: Term) -> Term:
        return all(terms)

    def some(self, *terms: Term) -> Term:
        return any(terms)

    def no(self, term: Term) -> Term:
        return not term

    def choose(self, condition: Term, then: Term, otherwise: Term) -> Term:
        return then if condition else otherwise

    def missing(self, term: Term) -> Term:
        return term is None

    def least(self, a: Term, b: Term) -> Term:
        return b if a is None else a if b is None or _before(a, b) else b

    def greatest(self, a: Term, b: Term) -> Term:
        return b if a is None else a if b is None or _before(b, a) else b

    def ratio(self, a: Term, b: Term) -> Term:
        return float(a) / float(b)

    def periods(self, at: Term, period: int, offset: int) -> Term:
        return (at - offset) // period

    def micros(self, a: Term) -> Term:
        return None if a is None else instant(a)

    def wide(self, a: Term) -> Term:
        return a

    def stamped(self, at: Term, a: Term) -> Term:
        return None if a is None else {"at": at, "value": a}

    def unstamped(self, a: Term) -> Term:
        return None if a is None else a["value"]

    def no_values(self, type: str) -> Term:
        return []

    def alone(self, a: Term, type: str) -> Term:
        return [] if a is None else [a]

    def gathered(self, a: Term, b: Term, type: str) -> Term:
        return sorted([*a, *b], key=place)

    def united(self, a: Term, b: Term) -> Term:
        return sorted({place(one): one for one in (*a, *b)}.values(), key=place)

    def largest(self, a: Term, b: Term, most: int) -> Term:
        return sorted([*a, *b], key=place, reverse=True)[:most]

    def field(self, a: Term, name: str) -> Term:
        return None if a is None else a[name]

    def highest(self, a: Term, by: str) -> Term:
        there = [one for one in a if one[by] is not None]
        most = max((place(one[by]) for one in there), default=None)
        return [one for one in there if place(one[by]) == most]

    def once(self, a: Term, type: str) -> Term:
        return [] if a is None else [{"value": a, "n": 1}]

    def counted(self, a: Term, b: Term, type: str) -> Term:
        held: dict[Any, dict[str, Any]] = {}
        for row in (*a, *b):
            at = place(row["value"])
            held[at] = {"value": row["value"], "n": row["n"] + (held[at]["n"] if at in held else 0)}
        return [held[at] for at in sorted(held) if held[at]["n"]]

    def opposite(self, a: Term) -> Term:
        return [{"value": row["value"], "n": -row["n"]} for row in a]

    def told_apart(self, a: Term) -> Term:
        return [row["value"] for row in a if row["n"] > 0]

    def spread(self, a: Term) -> Term:
        return [row["value"] for row in a for _ in range(row["n"])]

    def end(self, a: Term, *, last: bool) -> Term:
        there = self.told_apart(a)
        return there[-1 if last else 0] if there else None

    def length(self, a: Term) -> Term:
        return len(a)

    def ranked(self, a: Term, share: float) -> Term:
        return sorted(a, key=place)[max(0, ceil(share * len(a)) - 1)] if a else None


def place(value: Any) -> tuple[bool, bool, Any]:
    """Where a value sorts: nothing first, what is no number after all numbers, and of several values field by field."""
    if isinstance(value, dict):
        return (True, False, tuple(place(one) for one in value.values()))
    odd = value != value
    return (value is not None, odd, 0 if odd or value is None else value)


def _whole(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int)


def _before(a: Any, b: Any) -> bool:
    """Whether a sorts before or with b, NaN after every number, as Spark SQL has it; what is stamped by its instant."""
    if isinstance(a, dict):
        return bool(a["at"] < b["at"]) or (a["at"] == b["at"] and _before(a["value"], b["value"]))
    return b != b or (a == a and bool(a <= b))
