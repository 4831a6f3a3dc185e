"""The algebra: the operations in which the rules of triggers, combiners and transitions are written.

A rule such as "fire if at least n records are fresh" is written as `o.at_least(fresh, n)`. With the algebra `Scalars`,
this call immediately computes the result from Python values. In the native execution, which runs in SQL, the same call
builds a Spark SQL expression. Each rule is written only once, so all executions apply the same rule.

The class `Algebra` contains the description of each operation together with its code for Python values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from math import ceil, fmod, inf, isfinite, nan, sqrt
from typing import Any, Protocol, TypeAlias

from tailrace.model.base.errors import AnswerError
from tailrace.model.base.json_places import value_inside
from tailrace.model.base.time import instant
from tailrace.model.base.types import (
    WHOLE,
    decimal_parts,
    element_type,
    exact,
    holds_reals,
    struct_fields,
    unit_power,
)

LIMB = 2.0**62
"""The ratio of the units of two neighbouring limbs of a double (`Algebra.limbs`)."""

LIMBS_END = 2.0**124
"""The absolute value from which on a double is too large for its limbs."""

SQUARES_END = 2.0**62
"""The absolute value from which on a double's square is too large for its limbs."""

SQUARE_UNITS = tuple(2.0 ** (62 * place) for place in range(1, -5, -1))
"""The units of the limbs of a double's square, the largest one first (`Algebra.square_limbs`)."""

SPLIT = 2.0**27 + 1
"""The factor by which a double is multiplied to split it into two halves of its digits."""


class OwnCode(Protocol):
    """A method of a custom combiner that is called for accumulators. In SQL, it is the function `name` of the engine.

    In SQL, the function returns a struct with the fields `fields`.
    """

    @property
    def name(self) -> str:
        """The function's name in SQL."""
        raise NotImplementedError

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the values that the code returns."""
        raise NotImplementedError

    def __call__(self, *terms: Any) -> tuple[Any, ...]:
        """Compute the values."""
        raise NotImplementedError


Term: TypeAlias = Any
"""A value of the algebra: a Python value for `Scalars`, or the text of a SQL expression for the execution in SQL."""


class Algebra(Protocol):
    """The operations on terms that the algebra of each execution must provide.

    The code of each operation computes the result for terms that are Python values. An algebra for other terms must
    replace the code of all operations. Boolean terms are never null; numbers may be null.
    """

    def literal(self, value: bool | int | str | Decimal | None, type: str) -> Term:
        """Return a constant as a term of the column type `type`."""
        return value

    def add(self, a: Term, b: Term, type: str) -> Term:
        """Return the exact sum of a and b; the result has the type `type`.

        If the sum does not fit `type`, the operation raises `AnswerError` or the equivalent error of the execution's
        engine.
        """
        if type == "bigint" and -_BIGINT <= (total := a + b) < _BIGINT:
            return total
        if type == WHOLE and _whole(a, b):
            return a + b
        return _fit(a + b if _whole(a, b) else _EXACT.add(a, b), type)

    def subtract(self, a: Term, b: Term, type: str) -> Term:
        """Return the exact difference a - b; the result has the type `type`."""
        return _fit(a - b if _whole(a, b) else _EXACT.subtract(a, b), type)

    def multiply(self, a: Term, b: Term, type: str) -> Term:
        """Return the exact product of a and b, which must be whole numbers of at most 38 digits.

        The result has the type `type`.
        """
        return _fit(a * b if _whole(a, b) else _EXACT.multiply(a, b), type)

    def calculated(self, a: Term, by: str, b: Term, type: str) -> Term:
        """Apply the operator `by` (`+`, `-` or `*`) to a and b; the exact result has the type `type`.

        The result is null if an operand is null, or if `type` is bigint and the result does not fit. A decimal `type`
        must have enough digits for every possible result. If `type` is double, a and b are doubles, and the result is
        the double that is closest to the exact result; a result of zero has no sign.
        """
        if a is None or b is None:
            return None
        if type == "double":
            return float(_CALCULATED[by](a, b)) + 0.0
        made = _CALCULATED[by](a, b) if _whole(a, b) else _DECIMALS[by](a, b)
        return None if type == "bigint" and not -_BIGINT <= made < _BIGINT else made

    def floored(self, a: Term, by: int) -> Term:
        """Divide a whole number by a positive whole number, and round down; the result is null if the dividend is
        null.
        """
        return None if a is None else a // by

    def converted(self, a: Term, type: str) -> Term:
        """Convert an exact number to a decimal type with enough digits; the result is null if the number is null."""
        _, scale = decimal_parts(type) or (0, 0)
        return None if a is None else _EXACT.quantize(Decimal(a), Decimal(1).scaleb(-scale))

    def size(self, a: Term) -> Term:
        """Return the number of bytes of a string in UTF-8; the string must not be null."""
        return len(a.encode())

    def at_least(self, a: Term, b: Term) -> Term:
        """Return True if a >= b; a and b must not be null."""
        return a >= b

    def equal(self, a: Term, b: Term) -> Term:
        """Return True if a = b; a and b must not be null."""
        return a == b

    def every(self, *terms: Term) -> Term:
        """Return True if all terms are true; without terms, the result is true."""
        return all(terms)

    def some(self, *terms: Term) -> Term:
        """Return True if at least one term is true; without terms, the result is false."""
        return any(terms)

    def no(self, term: Term) -> Term:
        """Return True if a term is false."""
        return not term

    def choose(self, condition: Term, then: Term, otherwise: Term) -> Term:
        """Return `then` if the condition is true, otherwise `otherwise`."""
        return then if condition else otherwise

    def missing(self, term: Term) -> Term:
        """Return True if a term is null."""
        return term is None

    def given(self, term: Term, holds: Callable[[Term], Term]) -> Term:
        """Return True if a term is not null and `holds` returns true for the term; a null term results in false."""
        return term is not None and holds(term)

    def least(self, a: Term, b: Term, type: str | None = None) -> Term:
        """Return the smaller of two terms. A null term is ignored; the result is null only if both terms are null.

        Pass `type` if the terms are lists or structs in which there may be nulls (`sort_key`).
        """
        return b if a is None else a if b is None or _before(a, b) else b

    def greatest(self, a: Term, b: Term, type: str | None = None) -> Term:
        """Return the larger of two terms; the parameters and null terms are as in `least`."""
        return b if a is None else a if b is None or _before(b, a) else b

    def ratio(self, a: Term, b: Term) -> Term:
        """Return a divided by b as a double; the caller must ensure that b is not zero."""
        return float(a) / float(b)

    def root(self, a: Term) -> Term:
        """Return the square root of a double that is not negative, as the closest double; null stays null."""
        return None if a is None else sqrt(a)

    def periods(self, at: Term, period: int, offset: int) -> Term:
        """Return how many whole periods lie between `offset` and `at`, rounded down; all arguments are in
        microseconds.
        """
        return (at - offset) // period

    def micros(self, a: Term) -> Term:
        """Convert an instant from a timestamp column to microseconds since 1970; null stays null."""
        return None if a is None else instant(a)

    def wide(self, a: Term) -> Term:
        """Convert a value of an int column to a bigint; the result is null if the value is null."""
        return a

    def real(self, a: Term, type: str) -> Term:
        """Convert a number of `type` (a bigint, a decimal or a float) to the closest double; null stays null."""
        return None if a is None else float(a)

    def remainder(self, a: Term, unit: int, type: str) -> Term:
        """Return the last `unit` digits of a decimal of type `type`, with the sign of the decimal.

        The result is the remainder after division by `unit_power(unit, type)`.
        """
        return _EXACT.remainder(a, unit_power(unit, type))

    def quotient(self, a: Term, unit: int, type: str) -> Term:
        """Return a decimal of type `type` without its last `unit` digits, as a whole number; `remainder` returns these
        digits.
        """
        return int(_EXACT.divide_int(a, unit_power(unit, type)))

    def joined(self, high: Term, low: Term, unit: int, type: str) -> Term:
        """Combine two sums into one number.

        `high` is the sum of the upper digits of some numbers, and `low` is the sum of their last `unit` digits.

        The result is null if the combined number does not fit `type`.
        """
        number = _EXACT.fma(high, unit_power(unit, type), low)
        return number if _inside(number, type) else None

    def levelled(self, high: Term, low: Term, unit: int, type: str) -> tuple[Term, Term]:
        """Normalize the two sums that `joined` takes: if two pairs of sums make the same combined number, the results
        are equal.

        If the combined number fits `type`, return zero and the combined number. Otherwise, return the upper digits and
        the last `unit` digits of the combined number.
        """
        number = _EXACT.fma(high, unit_power(unit, type), low)
        if _inside(number, type):
            return 0, number
        return self.quotient(number, unit, type), self.remainder(number, unit, type)

    def real_of(self, high: Term, low: Term, unit: int, type: str) -> Term:
        """Combine the two sums that `joined` takes into one number, and return the double that is closest to this
        number.

        The combined number may have more digits than `type` allows.
        """
        return float(_EXACT.fma(high, unit_power(unit, type), low))

    def unsigned_zeros(self, a: Term, type: str) -> Term:
        """Replace each negative zero in a value of `type` by zero, at any depth; other values stay the same (rule M8).

        The two zeros are equal, so an engine may keep either of them where it keeps one of several equal values. But
        their texts differ.
        """
        if a is None or not holds_reals(type):
            return a
        if (element := element_type(type)) is not None:
            return [self.unsigned_zeros(one, element) for one in a]
        if (fields := struct_fields(type)) is not None:
            return {name: self.unsigned_zeros(a[name], of) for name, of in fields.items()}
        return a + 0.0

    def limbs(self, a: Term) -> tuple[Term, ...]:
        """Split a double into whole numbers (limbs), whose sums are exact in any order; return seven bigints.

        The first four are the limbs, in units of 2^62, 1, 2^-62 and 2^-124. The others are 1 or 0. The first of them
        says whether the double is infinity or NaN, the second whether it is minus infinity or NaN. The third says
        whether the double is a finite number that the limbs do not represent exactly: a number whose absolute value is
        2^124 or more, or that has binary digits below 2^-124. A null has seven zeros.

        Every operation on doubles below is exact: a product with a power of two, and a number minus the closest whole
        number.
        """
        finite = a is not None and isfinite(a)
        left = float(a) if finite and abs(a) < LIMBS_END else 0.0
        # A tiny number becomes zero here. So the next limb is computed from the number itself.
        top = round(left / LIMB)
        left -= top * LIMB
        limbs = [top]
        for _ in range(3):
            limbs.append(round(left))
            left = (left - limbs[-1]) * LIMB
        odd = a is not None and a != a
        outside = finite and (abs(a) >= LIMBS_END or left != 0)
        return (*limbs, int(odd or a == inf), int(odd or a == -inf), int(outside))

    def real_of_limbs(self, top: Term, whole: Term, small: Term, least: Term, up: Term, down: Term) -> Term:
        """Return the double closest to the number whose limbs (`limbs`) have these sums; an exact tie goes to the even
        double.

        The result is NaN, infinity or minus infinity if `up`, `down` or both of them are not zero.
        """
        if up or down:
            return nan if up and down else inf if up else -inf
        number = 0
        for limb in (top, whole, small, least):
            number = number * int(LIMB) + int(limb)
        # Python rounds a quotient of integers correctly.
        return number / int(LIMB) ** 2

    def square_limbs(self, a: Term) -> tuple[Term, ...]:
        """Split the square of a double into whole numbers, whose sums are exact in any order; return seven bigints.

        The first six are in units of `SQUARE_UNITS`. They represent the square exactly if the absolute value of the
        double is less than 2^62, and the double has no binary digits below 2^-124. The last one is 1 if the double is a
        finite number that is too large, otherwise 0. A null, and any larger double, has six zeros.

        The square is the sum of two doubles, a rounded product and its error (T. J. Dekker, 1971). The remainder of a
        division by a power of two, and the difference of two such remainders, are exact.
        """
        value = float(a) if a is not None and abs(a) < SQUARES_END else 0.0
        times = SPLIT * value
        high = times - (times - value)
        low = value - high
        square = value * value
        left = ((high * high - square) + 2.0 * (high * low)) + low * low
        limbs, above = [0] * len(SQUARE_UNITS), (square, left)
        for place, unit in enumerate(SQUARE_UNITS):
            below = (fmod(square, unit), fmod(left, unit))
            limbs[place] = sum(int((a - b) / unit) for a, b in zip(above, below, strict=True))
            above = below
        large = a is not None and isfinite(a) and abs(a) >= SQUARES_END
        return (*limbs, int(large))

    def spread_of_limbs(self, n: Term, limbs: Sequence[Term], squares: Sequence[Term], endless: Sequence[Term]) -> Term:
        """Compute n times the sum of the squares, minus the square of the total; return the closest double.

        The total is given by the sums of the first four `limbs` of all values, and the sum of the squares by the sums
        of the first six `square_limbs`. The result is NaN if a count of `endless` is not zero.
        """
        if any(endless):
            return nan
        total = held = 0
        for limb in limbs:
            total = total * int(LIMB) + int(limb)
        for limb in squares:
            held = held * int(LIMB) + int(limb)
        return (int(n) * held - total**2) / int(LIMB) ** 4

    def narrow(self, a: Term) -> Term:
        """Convert a whole number of at most 38 digits to a bigint; the result is null if the number does not fit a
        bigint.
        """
        return int(a) if -_BIGINT <= a < _BIGINT else None

    def beyond(self, a: Term) -> Term:
        """Return a whole number of at most 38 digits unchanged if it is outside the range of a bigint; otherwise,
        return null.

        For every number, either `narrow` or `beyond` returns a value, and the other function returns null. So a table
        can store the number in one of two columns: a bigint column, or a wider column for the few numbers that do not
        fit a bigint.
        """
        return None if -_BIGINT <= a < _BIGINT else a

    def centred(self, n: Term, total: Term, squares: Term, high: Term, unit: int) -> Term:
        """Compute n times the sum of the squares, minus the square of the total; return the closest double.

        All arguments are whole numbers. The sum of the squares is passed in two parts: `squares` for the last `unit`
        digits, and `high` for the upper digits.
        """
        return float(n * (int(squares) + int(high) * 10**unit) - int(total) ** 2)

    def text(self, *terms: Term) -> Term:
        """Concatenate strings and whole numbers of at most 38 digits; the result is null if at least one term is
        null.
        """
        return None if any(term is None for term in terms) else "".join(map(str, terms))

    def listed(self, *terms: Term) -> Term:
        """Join the strings that are not null, separated by semicolons; the result is null if all strings are null."""
        return "; ".join(term for term in terms if term is not None) or None

    def stamped(self, at: Term, a: Term) -> Term:
        """Pair a value with an instant in microseconds; the result is null if the value is null.

        The pairs are ordered by their instants first, and then by their values.
        """
        return None if a is None else {"at": at, "value": a}

    def unstamped(self, a: Term) -> Term:
        """Return the value of a pair that `stamped` created; the result is null if the pair is null."""
        return None if a is None else a["value"]

    def no_values(self, type: str) -> Term:
        """Return the empty list of the list type `type`."""
        return []

    def alone(self, a: Term, type: str) -> Term:
        """Return a list of this type that contains only the value `a`; if `a` is null, the list is empty."""
        return [] if a is None else [a]

    def gathered(self, a: Term, b: Term, type: str) -> Term:
        """Merge two lists of this type into one sorted list, and keep duplicate values."""
        return sorted([*a, *b], key=sort_key)

    def united(self, a: Term, b: Term, type: str) -> Term:
        """Merge two lists of this type into one sorted list, which contains each different value once."""
        return sorted({sort_key(one): one for one in (*a, *b)}.values(), key=sort_key)

    def largest(self, a: Term, b: Term, most: int, type: str) -> Term:
        """Return at most `most` values: the largest values of two lists of this type, in descending order."""
        return sorted([*a, *b], key=sort_key, reverse=True)[:most]

    def packed(self, fields: Mapping[str, Term]) -> Term:
        """Return a struct with these fields."""
        return dict(fields)

    def each_field(self, a: Term, name: str) -> Term:
        """Return the list of the values that a list's structs have in a named field."""
        return [one[name] for one in a]

    def field(self, a: Term, name: str) -> Term:
        """Return a named field of a struct; the result is null if the struct is null."""
        return None if a is None else a[name]

    def inside(self, a: Term, place: str, target: str, type: str) -> Term:
        """Return the value at a place of a JSON text, read as the type `target`; the result has the type `type`.

        The result is null if the text is null, and in all cases that `json_places` names.
        """
        return value_inside(a, place, target)

    def has(self, a: Term, value: Term, field: str | None) -> Term:
        """Return True if a list contains a value; with `field`, the values are in this field of the list's structs."""
        return value in (a if field is None else [one[field] for one in a if one is not None])

    def highest(self, a: Term, by: str) -> Term:
        """Return all elements of a list that have the highest value in field `by`, in sorted order.

        Elements whose field `by` is null are dropped.
        """
        there = [one for one in a if one[by] is not None]
        most = max((sort_key(one[by]) for one in there), default=None)
        return [one for one in there if sort_key(one[by]) == most]

    def once(self, a: Term, type: str) -> Term:
        """Return a list that contains one counted value: the value `a` with the count 1.

        If `a` is null, the list is empty. `type` is the type of the list; each element of the list is a struct with the
        fields `value` and `n` (the count).
        """
        return [] if a is None else [{"value": a, "n": 1}]

    def counted(self, a: Term, b: Term, type: str) -> Term:
        """Merge two lists of counted values into one sorted list of this type, and add up the counts of equal values.

        Values whose count is 0 are dropped.
        """
        held: dict[Any, dict[str, Any]] = {}
        for row in (*a, *b):
            at = sort_key(row["value"])
            held[at] = {"value": row["value"], "n": row["n"] + (held[at]["n"] if at in held else 0)}
        return [held[at] for at in sorted(held) if held[at]["n"]]

    def opposite(self, a: Term) -> Term:
        """Negate every count of a list of counted values."""
        return [{"value": row["value"], "n": -row["n"]} for row in a]

    def distinct(self, a: Term) -> Term:
        """Return the values of a list of counted values, in sorted order; a value whose count is not above 0 is left
        out.
        """
        return [row["value"] for row in a if row["n"] > 0]

    def spread(self, a: Term) -> Term:
        """Return a sorted list in which each value of a list of counted values is repeated as often as its count."""
        return [row["value"] for row in a for _ in range(row["n"])]

    def end(self, a: Term, *, last: bool) -> Term:
        """Return the smallest value (or, with `last`, the largest value) of a list of counted values.

        Values whose count is not above 0 are ignored. The result is null if no value has a count above 0.
        """
        there = self.distinct(a)
        return there[-1 if last else 0] if there else None

    def length(self, a: Term) -> Term:
        """Return the number of values in a list; the result is null if the list is null."""
        return None if a is None else len(a)

    def own(self, code: OwnCode, *terms: Term) -> tuple[Term, ...]:
        """Call a custom combiner's code; return a term for each value that the code computes (`OwnCode.fields`)."""
        return code(*terms)

    def ranked(self, a: Term, share: float) -> Term:
        """Return the `share` quantile (0 to 1) of a list's values, or null if the list is empty.

        The quantile is determined by the nearest-rank method.
        """
        return sorted(a, key=sort_key)[max(0, ceil(exact(share) * len(a)) - 1)] if a else None


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


class Scalars(Algebra):
    """The algebra on Python values, which the reference execution uses.

    >>> o = Scalars()
    >>> o.every() and not o.some()
    True
    >>> o.least(None, 3), o.ratio(7, 2)
    (3, 3.5)
    """


def sort_key(value: Any) -> tuple[bool, bool, Any]:
    """Return the sort key of a value.

    Null sorts first, also inside a list or a struct, and NaN sorts after all numbers. Structs are compared field by
    field, and lists element by element; a list sorts before a longer list that begins with the same elements. Values
    with equal sort keys count as equal; zero and negative zero are equal, and so are two NaN.

    >>> lists = [[2], [1, 5], [1], [None, 7], []]
    >>> sorted(lists, key=sort_key)
    [[], [None, 7], [1], [1, 5], [2]]
    """
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return (True, False, tuple(map(sort_key, inside)))
    odd = value != value
    return (value is not None, odd, 0 if odd or value is None else value)


def _inside(value: Any, type: str) -> bool:
    """Return True if a number has no more digits than a decimal type allows.

    The comparison does not use `abs`, which would round the number to 28 digits.
    """
    end = unit_power((decimal_parts(type) or (0, 0))[0], type)
    return bool(end.copy_negate() < value < end)


def _whole(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int)


def _before(a: Any, b: Any) -> bool:
    """Return True if a sorts before b, or if a and b are equal; the order is that of `sort_key`."""
    if isinstance(a, dict | list):
        return bool(sort_key(a) <= sort_key(b))
    return b != b or (a == a and bool(a <= b))
