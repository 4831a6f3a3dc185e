"""Combiners, which compute the results of a window; accumulators merge in any order (Dataflow Model, 2.2 and 3.3).

A combiner declares the named parts of its accumulator. For each part, the combiner declares how two values merge
(`Merge`: by addition, by the minimum, by the maximum and so on) and which value a record adds. The combiner also
declares how to compute the result from the parts. These declarations are data and terms of the algebra, so the same
definition is used in every execution.

A total is never rounded: it is exact, or its result is null with a reason. A sum of doubles would depend on the order
of addition, so stream, backfill and replay could return different rows. Therefore a column to be summed must be an
integer or a decimal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import Fault
from tailrace.model.base.types import MAX_PRECISION, WHOLE, is_exact_number, may_outgrow, sum_type


class Merge(Enum):
    """The ways to merge a part of one accumulator with the same part of another accumulator."""

    ADD = "add"
    LEAST = "least"
    GREATEST = "greatest"
    GATHER = "gather"
    """All values of both parts, in order."""
    UNITE = "unite"
    """All different values of both parts, each value once, in order."""
    TOP = "top"
    """The largest values of both parts, in descending order."""
    HIGHEST = "highest"
    """The values of both parts that have the highest value of one of their fields, in order."""
    COUNT = "count"
    """All different values of both parts with their total counts, in order, without values whose count is 0."""
    OWN = "own"
    """The custom combiner's `merge` method merges the parts."""


@dataclass(frozen=True)
class Part:
    """A part of an accumulator: its name, its column type, and the way in which it merges.

    `Merge.TOP` keeps `most` values; `Merge.HIGHEST` compares the field `by`. If `kept` is another type, the part has
    two columns in tables: a column of type `kept`, and a column of the part's type for values that do not fit
    (`columns`). A part with a `unit` holds the sum of the last `unit` digits of numbers; the part `<name>_high` holds
    the sum of the other digits.
    """

    name: str
    type: str
    merge: Merge
    most: int = 0
    by: str = ""
    kept: str = ""
    unit: int = 0

    def columns(self, name: str) -> dict[str, str]:
        """Return the names and types of the columns that the part has in tables in which the part is called `name`."""
        return {name: self.kept, f"{name}_over": self.type} if self.kept else {name: self.type}

    @property
    def is_list(self) -> bool:
        """Whether the part is a list of values instead of a single value."""
        return self.merge in (Merge.GATHER, Merge.UNITE, Merge.TOP, Merge.HIGHEST, Merge.COUNT)

    @property
    def has_zero(self) -> bool:
        """Whether this part of an empty accumulator is a value instead of null."""
        return self.merge is Merge.ADD or self.is_list

    def zero(self, o: Algebra) -> Term:
        """Return this part of an empty accumulator, which contains no records."""
        if self.is_list:
            return o.no_values(self.type)
        return o.literal(0 if self.merge is Merge.ADD else None, self.type)

    def merged(self, o: Algebra, a: Term, b: Term) -> Term:
        """Merge this part of two accumulators; the operation is associative and commutative, and `zero` is its unit.

        For a custom combiner, the part calls the combiner's `merge` instead (`tailrace.model.combiners.own`).
        """
        if self.merge is Merge.ADD:
            return o.add(a, b, self.type)
        if self.merge is Merge.GATHER:
            return o.gathered(a, b, self.type)
        if self.merge is Merge.COUNT:
            return o.counted(a, b, self.type)
        if self.merge is Merge.UNITE:
            return o.united(a, b)
        if self.merge is Merge.TOP:
            return o.largest(a, b, self.most)
        if self.merge is Merge.HIGHEST:
            return o.highest(o.gathered(a, b, self.type), self.by)
        return o.least(a, b) if self.merge is Merge.LEAST else o.greatest(a, b)


class Combiner:
    """The base class of combiners, with the declarations that every combiner has."""

    gives: str | None = None
    """The type of the result; None if the result has the type of the column."""

    # For type checkers, these are read-only properties, so that a combiner may define them as fields, attributes or
    # properties.
    if TYPE_CHECKING:

        @property
        def column(self) -> str | None:
            """The log's column that the combiner reads; None if the combiner reads no column."""
            raise NotImplementedError

        @property
        def uncombines(self) -> bool:
            """Whether a retracted accumulator can be removed from a merged accumulator."""
            raise NotImplementedError

    def parts(self, type: str | None) -> tuple[Part, ...]:
        """Return the parts of the accumulator for a column of this type."""
        raise NotImplementedError

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        """Return the values that one record adds to the parts.

        `value` is the record's value in the combiner's column, which may be null; `type` is the type of this column.
        """
        raise NotImplementedError

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Compute the result of an accumulator from its parts."""
        raise NotImplementedError

    def result_type(self, type: str | None) -> str:
        """Return the column type of the result for a column of this type."""
        return self.gives or type or "string"

    def leaves(self, type: str | None) -> bool:
        """Return True if a result for a column of this type may not fit the result type; such a result is null."""
        return False

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Return the reason, as text, why an accumulator has no result.

        The reason is null if the accumulator has a result or contains no values.
        """
        return o.literal(None, "string")

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        """Find the faults of the combiner for a column of this type."""
        return ()


UNIT = 28
"""The number of trailing digits that a total of large decimals adds up in a separate part.

The sum of a billion numbers with this many digits fits a decimal.
"""


def total_parts(name: str, type: str) -> tuple[Part, ...]:
    """Return the parts of an exact total of values of this type; the parts do not overflow for any number of values.

    >>> [part.name for type in ("int", "bigint", "decimal(30,2)") for part in total_parts("total", type)]
    ['total', 'total', 'total', 'total_high']
    """
    if not may_outgrow(type):
        return (Part(name, sum_type(type), Merge.ADD),)
    if type == "bigint":
        return (Part(name, WHOLE, Merge.ADD, kept="bigint"),)
    return split_parts(name, sum_type(type))


def split_parts(name: str, type: str) -> tuple[Part, Part]:
    """Return the two parts of a total of this type: one for the last digits of numbers, one for the other digits."""
    return Part(name, type, Merge.ADD, unit=UNIT), Part(f"{name}_high", WHOLE, Merge.ADD)


def lifted_total(o: Algebra, number: Term, type: str) -> tuple[Term, ...]:
    """Return the values that a number adds to the parts of `total_parts`; the number may not be null."""
    if type == "bigint" or not may_outgrow(type):
        return (number,)
    return (o.remainder(number, UNIT, sum_type(type)), o.quotient(number, UNIT, sum_type(type)))


def _has(o: Algebra, value: Term, then: Term, otherwise: Term) -> Term:
    return o.choose(o.missing(value), otherwise, then)


@dataclass(frozen=True)
class Count(Combiner):
    """The number of records, or the number of records with a value in `column`.

    >>> from tailrace.model.base.algebra import Scalars
    >>> Count().lift(Scalars(), None, None), Count("delay").lift(Scalars(), None, "int")
    ((1,), (0,))
    """

    column: str | None = None
    uncombines: ClassVar[bool] = True
    gives = "bigint"

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("n", "bigint", Merge.ADD),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        one = o.literal(1, "bigint")
        return (one if self.column is None else _has(o, value, one, o.literal(0, "bigint")),)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return parts["n"]


@dataclass(frozen=True)
class _Total(Combiner):
    """The base class of `Sum` and `Mean`: an exact total of values, and their number.

    The total never overflows: it has 38 digits for 64-bit numbers, and it has two parts for decimals of nearly 38
    digits.
    """

    column: str
    uncombines: ClassVar[bool] = True

    def parts(self, type: str | None) -> tuple[Part, ...]:
        # An existing table gets a new column of the accumulator as its last column, so the upper digits go last.
        total, *high = total_parts("total", type or "bigint")
        return (total, Part("n", "bigint", Merge.ADD), *high)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        zero = o.literal(0, "bigint")
        number = _has(o, value, value, zero)
        total, *high = lifted_total(o, number, type or "bigint")
        return (total, _has(o, value, o.literal(1, "bigint"), zero), *high)

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        if type is not None and not is_exact_number(type):
            yield Fault(
                f"{path}.column",
                f"{self.column}: {type}",
                "an integer or decimal column",
                "declare it for example decimal(18,6) in the log, so that its total is exact in any order",
            )


@dataclass(frozen=True)
class Sum(_Total):
    """The total of a column's values; null if there are no values.

    >>> from tailrace.model.base.algebra import Scalars
    >>> Sum("price").result(Scalars(), {"total": 0, "n": 0}, "bigint") is None
    True
    """

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        none = o.equal(parts["n"], o.literal(0, "bigint"))
        return o.choose(none, o.literal(None, "null"), self._total(o, parts, type or "bigint"))

    def result_type(self, type: str | None) -> str:
        return sum_type(type or "bigint")

    def leaves(self, type: str | None) -> bool:
        return may_outgrow(type or "bigint")

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        type = type or "bigint"
        out = f"out of {sum_type(type)}"
        if type == "bigint":
            return o.text(
                o.beyond(parts["total"]), o.literal(f" is {out}: declare {self.column} decimal(19,0)", "string")
            )
        why = o.literal(f"a total of more than {MAX_PRECISION} digits is {out}", "string")
        return o.choose(o.missing(self._total(o, parts, type)), why, o.literal(None, "string"))

    def _total(self, o: Algebra, parts: Mapping[str, Term], type: str) -> Term:
        """Return the total, or null if it does not fit its type."""
        if not may_outgrow(type):
            return parts["total"]
        if type == "bigint":
            return o.narrow(parts["total"])
        return o.joined(parts["total_high"], parts["total"], UNIT, sum_type(type))


@dataclass(frozen=True)
class Mean(_Total):
    """The mean of a column's values as a double; null if there are no values.

    The only rounding is the division of the exact total by the number of values.

    >>> from tailrace.model.base.algebra import Scalars
    >>> Mean("delay").result(Scalars(), {"total": 7, "n": 2}, "int")
    3.5
    """

    gives = "double"

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        zero = o.literal(0, "bigint")
        none = o.equal(parts["n"], zero)
        # The divisor is never zero, because an SQL engine may compute both branches.
        divisor = o.choose(none, o.literal(1, "bigint"), parts["n"])
        return o.choose(none, o.literal(None, "null"), o.ratio(self._real(o, parts, type or "bigint"), divisor))

    def _real(self, o: Algebra, parts: Mapping[str, Term], type: str) -> Term:
        """Return the total as a double."""
        if type == "bigint" or not may_outgrow(type):
            return o.real(parts["total"], WHOLE if type == "bigint" else sum_type(type))
        return o.real_of(parts["total_high"], parts["total"], UNIT, sum_type(type))


@dataclass(frozen=True)
class Extreme(Combiner):
    """The base class of combiners that keep the smallest or the largest value: `Min`, `Max` and `AnyValue`."""

    column: str
    uncombines: ClassVar[bool] = False
    _merge: ClassVar[Merge]

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("value", type or "string", self._merge),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        return (value,)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return parts["value"]


@dataclass(frozen=True)
class Min(Extreme):
    """The smallest of a column's values; null if there are no values.

    The accumulator of `Min` cannot remove a retracted value (`uncombines`).
    """

    _merge: ClassVar[Merge] = Merge.LEAST


@dataclass(frozen=True)
class Max(Extreme):
    """The largest of a column's values; null if there are no values.

    The accumulator of `Max` cannot remove a retracted value (`uncombines`).
    """

    _merge: ClassVar[Merge] = Merge.GREATEST


@dataclass(frozen=True)
class AnyValue(Extreme):
    """The smallest of a column's values, for columns in which any value will do; null if there are no values.

    Use `AnyValue` for a column that has only one value in each window, such as a name that belongs to the key.
    """

    _merge: ClassVar[Merge] = Merge.LEAST


@dataclass(frozen=True)
class _Truth(Combiner):
    """The base class of `AllTrue` and `AnyTrue`: the number of values, and the number of true values."""

    column: str
    uncombines: ClassVar[bool] = True
    gives = "boolean"

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("true", "bigint", Merge.ADD), Part("n", "bigint", Merge.ADD))

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        one, zero = o.literal(1, "bigint"), o.literal(0, "bigint")
        given = _has(o, value, value, o.literal(False, "boolean"))
        return (o.choose(given, one, zero), _has(o, value, one, zero))

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        none = o.equal(parts["n"], o.literal(0, "bigint"))
        return o.choose(none, o.literal(None, "null"), o.at_least(parts["true"], self._enough(o, parts)))

    def _enough(self, o: Algebra, parts: Mapping[str, Term]) -> Term:
        raise NotImplementedError

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        if type is not None and type != "boolean":
            expected = "a boolean column"
            yield Fault(f"{path}.column", f"{self.column}: {type}", expected, "declare it as boolean in the log")


@dataclass(frozen=True)
class AllTrue(_Truth):
    """Whether all of a column's values are true; null if there are no values.

    >>> from tailrace.model.base.algebra import Scalars
    >>> AllTrue("paid").result(Scalars(), {"true": 2, "n": 3}, "boolean")
    False
    """

    def _enough(self, o: Algebra, parts: Mapping[str, Term]) -> Term:
        return parts["n"]


@dataclass(frozen=True)
class AnyTrue(_Truth):
    """Whether at least one of a column's values is true; null if there are no values.

    >>> from tailrace.model.base.algebra import Scalars
    >>> AnyTrue("paid").result(Scalars(), {"true": 2, "n": 3}, "boolean")
    True
    """

    def _enough(self, o: Algebra, parts: Mapping[str, Term]) -> Term:
        return o.literal(1, "bigint")
