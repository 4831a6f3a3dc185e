"""The few operations in which triggers, combiners and transitions are written, once for every execution.

A rule such as "fires when at least n records are fresh" is written as `o.at_least(fresh, n)`. `Scalars` computes it
at once, on Python values; the native execution has an algebra of its own that writes Spark SQL instead. So the
executions cannot disagree about a rule: there is one text of it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from math import ceil
from typing import Any, Protocol, TypeAlias

from tailrace.model.base.errors import AnswerError
from tailrace.model.base.time import instant
from tailrace.model.base.types import WHOLE, decimal_parts, exact, unit_power

Term: TypeAlias = Any
"""A value of the algebra: a Python value for `Scalars`, an SQL expression for the native execution."""


class Algebra(Protocol):
    """The operations on terms that every execution must provide. Truth values are never null; numbers may be."""

    def literal(self, value: bool | int | str | Decimal | None, type: str) -> Term:
        """Make a constant of a column type."""

    def add(self, a: Term, b: Term, type: str) -> Term:
        """Add a and b exactly, as `type`; raises `AnswerError` (or the execution's own) where the sum does not fit."""

    def subtract(self, a: Term, b: Term, type: str) -> Term:
        """Subtract b from a exactly, as `type`."""

    def multiply(self, a: Term, b: Term, type: str) -> Term:
        """Multiply a by b exactly, as `type`; both are whole numbers of at most 38 digits."""

    def calculated(self, a: Term, by: str, b: Term, type: str) -> Term:
        """Compute `a + b`, `a - b` or `a * b` exactly, as `type`; null of null, and where a bigint cannot hold it.

        A decimal `type` has room for every result.
        """

    def floored(self, a: Term, by: int) -> Term:
        """Divide a whole number by one above zero, rounded down; null of null."""

    def converted(self, a: Term, type: str) -> Term:
        """Convert an exact number to a decimal type that has room for its digits; null of null."""

    def size(self, a: Term) -> Term:
        """Count the bytes of a string in UTF-8; the string is not null."""

    def at_least(self, a: Term, b: Term) -> Term:
        """Tell whether a >= b; neither is null."""

    def equal(self, a: Term, b: Term) -> Term:
        """Tell whether a = b; neither is null."""

    def every(self, *terms: Term) -> Term:
        """Tell whether all terms are true; true where there are none."""

    def some(self, *terms: Term) -> Term:
        """Tell whether any term is true; false where there are none."""

    def no(self, term: Term) -> Term:
        """Tell whether a term is false."""

    def choose(self, condition: Term, then: Term, otherwise: Term) -> Term:
        """Choose `then` where the condition is true, else `otherwise`."""

    def missing(self, term: Term) -> Term:
        """Tell whether a term is null."""

    def given(self, term: Term, holds: Callable[[Term], Term]) -> Term:
        """Tell whether a term is not null and meets what `holds` makes of it; false of null."""

    def least(self, a: Term, b: Term) -> Term:
        """Return the smaller of two terms; null only if both are null."""

    def greatest(self, a: Term, b: Term) -> Term:
        """Return the larger of two terms; null only if both are null."""

    def ratio(self, a: Term, b: Term) -> Term:
        """Divide a by b, as a double; callers see to it that b is not zero."""

    def periods(self, at: Term, period: int, offset: int) -> Term:
        """Count the whole periods between `offset` and `at`, rounded down."""

    def micros(self, a: Term) -> Term:
        """Convert an instant of a timestamp column to microseconds since 1970; null of null."""

    def wide(self, a: Term) -> Term:
        """Convert a value of an int column to a bigint; null of null."""

    def real(self, a: Term, type: str) -> Term:
        """Convert a number of `type`, a bigint or a decimal, to the double that is closest."""

    def remainder(self, a: Term, unit: int, type: str) -> Term:
        """Divide a decimal of `type` by ten to the power `unit` of its last digits; return the remainder, signed as a.

        It is the number's last `unit` digits.
        """

    def quotient(self, a: Term, unit: int, type: str) -> Term:
        """Divide a decimal of `type` as `remainder` does, and return the whole number that its other digits are."""

    def joined(self, high: Term, low: Term, unit: int, type: str) -> Term:
        """Put a number of `type` together of sums of the last `unit` digits and of the others; null if it is none."""

    def levelled(self, high: Term, low: Term, unit: int, type: str) -> tuple[Term, Term]:
        """Return the one form of such sums: none and the number if it is of `type`, else its digits above and below."""

    def real_of(self, high: Term, low: Term, unit: int, type: str) -> Term:
        """Convert such a number, which may have more digits than its type, to the double that is closest."""

    def narrow(self, a: Term) -> Term:
        """Convert a whole number of 38 digits to a bigint; null where it is none."""

    def beyond(self, a: Term) -> Term:
        """Return a whole number of 38 digits that is no bigint; null of one that is."""

    def centred(self, n: Term, total: Term, squares: Term, high: Term, unit: int) -> Term:
        """Compute n times the squares less the square of the total as the double that is closest.

        All are whole numbers; `squares` are the last `unit` digits of the total of the squares, `high` the others.
        """

    def text(self, *terms: Term) -> Term:
        """Write texts and whole numbers of 38 digits side by side; null where one is null."""

    def listed(self, *terms: Term) -> Term:
        """Write the texts that are not null side by side, with a semicolon between two; null where there are none."""

    def stamped(self, at: Term, a: Term) -> Term:
        """Pair a value with an instant in microseconds, by which it is ordered first; null of a null value."""

    def unstamped(self, a: Term) -> Term:
        """Return the value of a stamped value; null of null."""

    def no_values(self, type: str) -> Term:
        """Make the empty list of a list type."""

    def alone(self, a: Term, type: str) -> Term:
        """Put a value into a list of this type; the empty list of null."""

    def gathered(self, a: Term, b: Term, type: str) -> Term:
        """Merge two lists of this type in order, with every occurrence of each value."""

    def united(self, a: Term, b: Term) -> Term:
        """Merge two lists in order, with each value once."""

    def largest(self, a: Term, b: Term, most: int) -> Term:
        """Keep the largest values of two lists, at most `most` of them, the largest first."""

    def field(self, a: Term, name: str) -> Term:
        """Return a named field of a struct; null of null."""

    def highest(self, a: Term, by: str) -> Term:
        """Keep the values with the highest value of field `by`, in order; values without that field are left out."""

    def once(self, a: Term, type: str) -> Term:
        """Make a list of counted values: rows of this type with a `value` and its count `n`, here 1; empty of null."""

    def counted(self, a: Term, b: Term, type: str) -> Term:
        """Add up two lists of counted values of this type, in order; values whose count is 0 are left out."""

    def opposite(self, a: Term) -> Term:
        """Negate each count of a list of counted values."""

    def distinct(self, a: Term) -> Term:
        """List the values of a list of counted values whose count is above 0, each once, in order."""

    def spread(self, a: Term) -> Term:
        """List the values of a list of counted values, each as often as its count says, in order."""

    def end(self, a: Term, *, last: bool) -> Term:
        """Find the smallest or the largest (`last`) counted value whose count is above 0; null where there is none."""

    def length(self, a: Term) -> Term:
        """Count the values of a list."""

    def ranked(self, a: Term, share: float) -> Term:
        """Find the smallest value of a list that this share of its values does not exceed; null of the empty list."""


_EXACT = Context(prec=80)
_BIGINT = 2**63
_CALCULATED: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_DECIMALS: Mapping[str, Callable[[Any, Any], Any]] = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply}


def _fit(value: Any, type: str) -> Any:
    parts = decimal_parts(type)
    if parts is None:
        if isinstance(value, int) and not -_BIGINT <= value < _BIGINT:
            raise AnswerError(f"{value} does not fit a bigint: declare the column decimal(38,0)")
    elif not _inside(value, type):
        raise AnswerError(f"{value} does not fit {type}: declare the column with fewer decimals")
    return value


class Scalars:
    """The algebra on Python values, with which the reference execution computes.

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
        if type == WHOLE and _whole(a, b):
            return a + b
        return _fit(a + b if _whole(a, b) else _EXACT.add(a, b), type)

    def subtract(self, a: Term, b: Term, type: str) -> Term:
        return _fit(a - b if _whole(a, b) else _EXACT.subtract(a, b), type)

    def multiply(self, a: Term, b: Term, type: str) -> Term:
        return _fit(a * b if _whole(a, b) else _EXACT.multiply(a, b), type)

    def calculated(self, a: Term, by: str, b: Term, type: str) -> Term:
        if a is None or b is None:
            return None
        made = _CALCULATED[by](a, b) if _whole(a, b) else _DECIMALS[by](a, b)
        return None if type == "bigint" and not -_BIGINT <= made < _BIGINT else made

    def floored(self, a: Term, by: int) -> Term:
        return None if a is None else a // by

    def converted(self, a: Term, type: str) -> Term:
        _, scale = decimal_parts(type) or (0, 0)
        return None if a is None else _EXACT.quantize(Decimal(a), Decimal(1).scaleb(-scale))

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

    def given(self, term: Term, holds: Callable[[Term], Term]) -> Term:
        return term is not None and holds(term)

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

    def real(self, a: Term, type: str) -> Term:
        return float(a)

    def remainder(self, a: Term, unit: int, type: str) -> Term:
        return _EXACT.remainder(a, unit_power(unit, type))

    def quotient(self, a: Term, unit: int, type: str) -> Term:
        return int(_EXACT.divide_int(a, unit_power(unit, type)))

    def joined(self, high: Term, low: Term, unit: int, type: str) -> Term:
        number = _EXACT.fma(high, unit_power(unit, type), low)
        return number if _inside(number, type) else None

    def levelled(self, high: Term, low: Term, unit: int, type: str) -> tuple[Term, Term]:
        number = _EXACT.fma(high, unit_power(unit, type), low)
        if _inside(number, type):
            return 0, number
        return self.quotient(number, unit, type), self.remainder(number, unit, type)

    def real_of(self, high: Term, low: Term, unit: int, type: str) -> Term:
        return float(_EXACT.fma(high, unit_power(unit, type), low))

    def narrow(self, a: Term) -> Term:
        return int(a) if -_BIGINT <= a < _BIGINT else None

    def beyond(self, a: Term) -> Term:
        return None if -_BIGINT <= a < _BIGINT else a

    def centred(self, n: Term, total: Term, squares: Term, high: Term, unit: int) -> Term:
        return float(n * (int(squares) + int(high) * 10**unit) - int(total) ** 2)

    def text(self, *terms: Term) -> Term:
        return None if any(term is None for term in terms) else "".join(map(str, terms))

    def listed(self, *terms: Term) -> Term:
        return "; ".join(term for term in terms if term is not None) or None

    def stamped(self, at: Term, a: Term) -> Term:
        return None if a is None else {"at": at, "value": a}

    def unstamped(self, a: Term) -> Term:
        return None if a is None else a["value"]

    def no_values(self, type: str) -> Term:
        return []

    def alone(self, a: Term, type: str) -> Term:
        return [] if a is None else [a]

    def gathered(self, a: Term, b: Term, type: str) -> Term:
        return sorted([*a, *b], key=sort_key)

    def united(self, a: Term, b: Term) -> Term:
        return sorted({sort_key(one): one for one in (*a, *b)}.values(), key=sort_key)

    def largest(self, a: Term, b: Term, most: int) -> Term:
        return sorted([*a, *b], key=sort_key, reverse=True)[:most]

    def field(self, a: Term, name: str) -> Term:
        return None if a is None else a[name]

    def highest(self, a: Term, by: str) -> Term:
        there = [one for one in a if one[by] is not None]
        most = max((sort_key(one[by]) for one in there), default=None)
        return [one for one in there if sort_key(one[by]) == most]

    def once(self, a: Term, type: str) -> Term:
        return [] if a is None else [{"value": a, "n": 1}]

    def counted(self, a: Term, b: Term, type: str) -> Term:
        held: dict[Any, dict[str, Any]] = {}
        for row in (*a, *b):
            at = sort_key(row["value"])
            held[at] = {"value": row["value"], "n": row["n"] + (held[at]["n"] if at in held else 0)}
        return [held[at] for at in sorted(held) if held[at]["n"]]

    def opposite(self, a: Term) -> Term:
        return [{"value": row["value"], "n": -row["n"]} for row in a]

    def distinct(self, a: Term) -> Term:
        return [row["value"] for row in a if row["n"] > 0]

    def spread(self, a: Term) -> Term:
        return [row["value"] for row in a for _ in range(row["n"])]

    def end(self, a: Term, *, last: bool) -> Term:
        there = self.distinct(a)
        return there[-1 if last else 0] if there else None

    def length(self, a: Term) -> Term:
        return len(a)

    def ranked(self, a: Term, share: float) -> Term:
        return sorted(a, key=sort_key)[max(0, ceil(exact(share) * len(a)) - 1)] if a else None


def sort_key(value: Any) -> tuple[bool, bool, Any]:
    """Make the sort key of a value: null first, NaN after all numbers, a struct field by field."""
    if isinstance(value, dict):
        return (True, False, tuple(sort_key(one) for one in value.values()))
    odd = value != value
    return (value is not None, odd, 0 if odd or value is None else value)


def _inside(value: Any, type: str) -> bool:
    """Tell whether a number has no more digits than a decimal type. `abs` would round it to 28 of them."""
    end = unit_power((decimal_parts(type) or (0, 0))[0], type)
    return bool(end.copy_negate() < value < end)


def _whole(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int)


def _before(a: Any, b: Any) -> bool:
    """Tell whether a sorts before or with b: NaN after numbers, as in Spark SQL; stamped values by instant first."""
    if isinstance(a, dict):
        return bool(a["at"] < b["at"]) or (a["at"] == b["at"] and _before(a["value"], b["value"]))
    return b != b or (a == a and bool(a <= b))
