"""The variance of a column's values, computed from exact totals, which do not depend on the order of the values.

The total of the values and the total of their squares are whole numbers: an integer or a decimal is converted to a
multiple of the column's smallest decimal step, and a double and its square are split into limbs (`Algebra.limbs`,
`Algebra.square_limbs`). So the exact numerator of the variance is known. It is rounded to a double, and is then divided
as a double, so the result is the same in every execution (rule M7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.model.base.algebra import SQUARE_UNITS, Algebra, Term
from tailrace.model.base.errors import Fault
from tailrace.model.base.types import MAX_PRECISION, REAL, ROOM, WHOLE, decimal_parts, is_exact_number
from tailrace.model.combiners.basic import (
    ENDLESS,
    LIMBS,
    UNIT,
    Merge,
    Part,
    Totals,
    as_double,
    double_parts,
    has_value,
    split_parts,
)

_DIGITS = 18
"""The maximum number of digits of a decimal column; the squares of numbers with more digits would not fit a decimal."""

SQUARES = tuple(f"square_{place}" for place in range(len(SQUARE_UNITS)))
"""The parts for the exact total of the squares of doubles: sums of whole numbers in units of 2^62, 1, and so on."""


@dataclass(frozen=True)
class Variance(Totals):
    """The variance of a column's values as a double: the sample variance or, with `population=True`, the population
    variance.

    The result is null if there are no values. The sample variance is also null if there is only one value. The variance
    of doubles is NaN if a value is NaN or infinite. It is null if the absolute value of a number is 2^62 (4.6e18) or
    more, or if a number has binary digits below 2^-124 (4.7e-38); the column `unanswered` then gives the reason.

    Law: adding the same number to every value does not change the variance.

    >>> from tailrace.model.base.algebra import Scalars
    >>> values = {"total": 9, "squares": 41, "n": 2}
    >>> Variance("delay").result(Scalars(), values, "int"), Variance("delay", True).result(Scalars(), values, "int")
    (0.5, 0.25)
    """

    population: bool = False
    gives = "double"
    _limit = "2^62 (4.6e18)"
    _total_name = "total of squares"

    def parts(self, type: str | None) -> tuple[Part, ...]:
        if type in REAL:
            return (*double_parts(), *(Part(name, WHOLE, Merge.ADD, lifted="bigint") for name in SQUARES))
        total, n = Part("total", WHOLE, Merge.ADD), Part("n", "bigint", Merge.ADD)
        if not _large(type):
            return (total, Part("squares", WHOLE, Merge.ADD), n)
        squares, high = split_parts("squares", WHOLE)
        return (total, squares, n, high)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        if type in REAL:
            value = as_double(o, value, type)
            *limbs, up, down, outside = o.limbs(value)
            one, zero = o.literal(1, "bigint"), o.literal(0, "bigint")
            *squares, large = o.square_limbs(value)
            return (*limbs, has_value(o, value, one, zero), up, down, o.greatest(outside, large), *squares)
        scale = _scale(type)
        unit = o.literal(10**scale, WHOLE)
        number = o.choose(o.missing(value), o.literal(0, type or "bigint"), value)
        whole = o.multiply(number, unit, WHOLE)
        square, one, zero = o.multiply(whole, whole, WHOLE), o.literal(1, "bigint"), o.literal(0, "bigint")
        some = o.choose(o.missing(value), zero, one)
        if not _large(type):
            return (whole, square, some)
        return (whole, o.remainder(square, UNIT, WHOLE), some, o.quotient(square, UNIT, WHOLE))

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        n = parts["n"]
        one = o.literal(1, "bigint")
        enough = o.at_least(n, one if self.population else o.literal(2, "bigint"))
        # An SQL engine may compute both branches of a conditional expression, so the divisor must never be zero. The
        # product of two bigint counts always fits the type `WHOLE`, which has 38 digits.
        others = n if self.population else o.subtract(n, one, "bigint")
        divisor = o.choose(enough, o.multiply(o.multiply(n, o.literal(1, "decimal(1,0)"), WHOLE), others, WHOLE), one)
        if type in REAL:
            limbs, squares, endless = ([parts[name] for name in names] for names in (LIMBS, SQUARES, ENDLESS))
            spread = o.ratio(o.spread_of_limbs(n, limbs, squares, endless), divisor)
            return o.choose(o.every(enough, self._fits(o, parts)), spread, o.literal(None, "null"))
        total = parts["total"]
        high = parts["squares_high"] if _large(type) else o.literal(0, WHOLE)
        spread = o.ratio(o.centred(n, total, parts["squares"], high, UNIT), divisor)
        scale = _scale(type)
        if scale:
            spread = o.ratio(spread, o.literal(10 ** (2 * scale), WHOLE))
        return o.choose(enough, spread, o.literal(None, "null"))

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        declared = f"{self.column}: {type}"
        if type is not None and type not in REAL and not is_exact_number(type):
            yield Fault(f"{path}.column", declared, "a column of numbers", "declare it as double or decimal(18,6)")
        elif type is not None and (decimal_parts(type) or (0, 0))[0] > _DIGITS:
            expected = f"a column of at most {_DIGITS} digits"
            yield Fault(f"{path}.column", declared, expected, "declare it with fewer, so that its squares fit")


@dataclass(frozen=True)
class StdDev(Variance):
    """The standard deviation of a column's values as a double: the square root of the variance, rounded once.

    >>> from tailrace.model.base.algebra import Scalars
    >>> StdDev("delay", True).result(Scalars(), {"total": 9, "squares": 41, "n": 2}, "int")
    0.5
    """

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return o.root(super().result(o, parts, type))


def _large(type: str | None) -> bool:
    """Return True if the sum of the squares of a few billion values of this column type may need more than 38
    digits.
    """
    parts = decimal_parts(type or "bigint")
    return type != "int" if parts is None else 2 * parts[0] + ROOM >= MAX_PRECISION


def _scale(type: str | None) -> int:
    return (decimal_parts(type or "bigint") or (0, 0))[1]
