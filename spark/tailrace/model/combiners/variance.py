"""The variance of a column's values, computed from exact totals, which do not depend on the order of the values.

Each value is converted to a multiple of the column's smallest decimal step, so the total and the total of the squares
are whole numbers. The only rounding is in the final division, so the result is the same in every execution.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import Fault
from tailrace.model.base.types import MAX_PRECISION, ROOM, WHOLE, decimal_parts, is_exact_number
from tailrace.model.combiners.basic import UNIT, Combiner, Merge, Part, split_parts

_DIGITS = 18
"""The maximum number of digits of a decimal column; the squares of numbers with more digits would not fit a decimal."""


@dataclass(frozen=True)
class Variance(Combiner):
    """The variance of a column's values as a double: the sample variance or, with `population=True`, the population
    variance.

    The result is null if there are no values. The sample variance is also null if there is only one value.

    Law: adding the same number to every value does not change the variance.

    >>> from tailrace.model.base.algebra import Scalars
    >>> values = {"total": 9, "squares": 41, "n": 2}
    >>> Variance("delay").result(Scalars(), values, "int"), Variance("delay", True).result(Scalars(), values, "int")
    (0.5, 0.25)
    """

    column: str
    population: bool = False
    uncombines: ClassVar[bool] = True
    gives = "double"

    def parts(self, type: str | None) -> tuple[Part, ...]:
        total, n = Part("total", WHOLE, Merge.ADD), Part("n", "bigint", Merge.ADD)
        if not _large(type):
            return (total, Part("squares", WHOLE, Merge.ADD), n)
        squares, high = split_parts("squares", WHOLE)
        return (total, squares, n, high)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
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
        n, total = parts["n"], parts["total"]
        one = o.literal(1, "bigint")
        enough = o.at_least(n, one if self.population else o.literal(2, "bigint"))
        # An SQL engine may compute both branches of a conditional expression, so the divisor must never be zero. The
        # product of two bigint counts always fits the type `WHOLE`, which has 38 digits.
        others = n if self.population else o.subtract(n, one, "bigint")
        divisor = o.choose(enough, o.multiply(o.multiply(n, o.literal(1, "decimal(1,0)"), WHOLE), others, WHOLE), one)
        high = parts["squares_high"] if _large(type) else o.literal(0, WHOLE)
        spread = o.ratio(o.centred(n, total, parts["squares"], high, UNIT), divisor)
        scale = _scale(type)
        if scale:
            spread = o.ratio(spread, o.literal(10 ** (2 * scale), WHOLE))
        return o.choose(enough, spread, o.literal(None, "null"))

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        declared = f"{self.column}: {type}"
        if type is not None and not is_exact_number(type):
            expected = "an integer or decimal column"
            remedy = "declare it for example decimal(18,6) in the log, so that its squares are exact in any order"
            yield Fault(f"{path}.column", declared, expected, remedy)
        elif type is not None and (decimal_parts(type) or (0, 0))[0] > _DIGITS:
            expected = f"a column of at most {_DIGITS} digits"
            yield Fault(f"{path}.column", declared, expected, "declare it with fewer, so that its squares fit")


def _large(type: str | None) -> bool:
    """Return True if the sum of the squares of a few billion values of this column type may need more than 38
    digits.
    """
    parts = decimal_parts(type or "bigint")
    return type != "int" if parts is None else 2 * parts[0] + ROOM >= MAX_PRECISION


def _scale(type: str | None) -> int:
    return (decimal_parts(type or "bigint") or (0, 0))[1]
