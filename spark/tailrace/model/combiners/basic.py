"""Combiners, which compute the results of a window: accumulators merge in any order (Dataflow Model, 2.2 and 3.3).

A combiner declares the named parts of its accumulator, each with the way in which it merges (`Merge`: by adding, by
the smaller, by the larger and so on), the value that a record adds to each part, and the result of the parts. These are
data and terms of the algebra, so one text serves every execution.

The parts add up exactly or not at all: a sum of doubles depends on the order of addition, which would break the law
that stream, backfill and replay give the same rows, so a column to be added up is an integer or a decimal.
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
    """The ways in which a part of one accumulator is merged with the same part of another."""

    ADD = "add"
    LEAST = "least"
    GREATEST = "greatest"
    GATHER = "gather"
    """All values of both, in order."""
    UNITE = "unite"
    """Each value of both once, in order."""
    TOP = "top"
    """The largest values of both, the largest first."""
    HIGHEST = "highest"
    """The values of both that have the highest value of one of their fields, in order."""
    COUNT = "count"
    """The values of both, each with its count, in order; values whose count is 0 are left out."""
    OWN = "own"
    """By a combiner's own function."""


@dataclass(frozen=True)
class Part:
    """A part of an accumulator: its name, its column type, and how it merges.

    `Merge.TOP` keeps `most` values; `Merge.HIGHEST` compares field `by`. A part that is `kept` as another type has a
    column of that type in tables, and a second column, of the part's type, for values that do not fit (`columns`). A
    part with a `unit` holds the last `unit` digits of numbers; part `<name>_high` holds the digits above.
    """

    name: str
    type: str
    merge: Merge
    most: int = 0
    by: str = ""
    kept: str = ""
    unit: int = 0

    def columns(self, name: str) -> dict[str, str]:
        """Return the columns that the part has in tables where it is called `name`, with their types."""
        return {name: self.kept, f"{name}_over": self.type} if self.kept else {name: self.type}

    @property
    def is_list(self) -> bool:
        """Whether the part is a list of values, and not one value."""
        return self.merge in (Merge.GATHER, Merge.UNITE, Merge.TOP, Merge.HIGHEST, Merge.COUNT)

    @property
    def has_zero(self) -> bool:
        """Whether the part of an accumulator of no records is a value, and not null."""
        return self.merge is Merge.ADD or self.is_list

    def zero(self, o: Algebra) -> Term:
        """Return the part of an accumulator of no records."""
        if self.is_list:
            return o.no_values(self.type)
        return o.literal(0 if self.merge is Merge.ADD else None, self.type)

    def merged(self, o: Algebra, a: Term, b: Term) -> Term:
        """Merge this part of two accumulators. Associative and commutative, with `zero` for its unit.

        The part of a custom combiner calls the combiner instead (`tailrace.model.combiners.own`).
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
    """The base of combiners: what each of them declares."""

    # Type checkers see read-only properties, so that a combiner may have them as fields or attributes, or compute them.
    if TYPE_CHECKING:

        @property
        def column(self) -> str | None:
            """The log's column that the combiner reads, if any."""
            raise NotImplementedError

        @property
        def uncombines(self) -> bool:
            """Whether a retracted accumulator can be taken out of a merged one."""
            raise NotImplementedError

    def parts(self, type: str | None) -> tuple[Part, ...]:
        """List the accumulator's parts over a column of this type."""
        raise NotImplementedError

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        """Return what one record adds to each part; `value` is the column's, which may be null, and `type` its type."""
        raise NotImplementedError

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Compute the result that an accumulator stands for."""
        raise NotImplementedError

    def result_type(self, type: str | None) -> str:
        """Return the result's column type."""
        raise NotImplementedError

    def leaves(self, type: str | None) -> bool:
        """Tell whether a result over a column of this type may leave its own type, and is null then."""
        return False

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Say why an accumulator has no result, as a text; null where it has one, or where it is of no values."""
        return o.literal(None, "string")

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        """Find the faults of the combiner over a column of this type."""
        return ()


UNIT = 28
"""The digits that a total of large decimals adds up apart: a billion numbers of so many digits have room."""


def total_parts(name: str, type: str) -> tuple[Part, ...]:
    """Return the parts of an exact total of values of this type, which no number of them overflows.

    >>> [part.name for type in ("int", "bigint", "decimal(30,2)") for part in total_parts("total", type)]
    ['total', 'total', 'total', 'total_high']
    """
    if not may_outgrow(type):
        return (Part(name, sum_type(type), Merge.ADD),)
    if type == "bigint":
        return (Part(name, WHOLE, Merge.ADD, kept="bigint"),)
    return split_parts(name, sum_type(type))


def split_parts(name: str, type: str) -> tuple[Part, Part]:
    """Return the two parts of a total of this type: one for the last digits of numbers, one for the digits above."""
    return Part(name, type, Merge.ADD, unit=UNIT), Part(f"{name}_high", WHOLE, Merge.ADD)


def lifted_total(o: Algebra, number: Term, type: str) -> tuple[Term, ...]:
    """Return the values that a number, which is not null, adds to the parts of `total_parts`."""
    if type == "bigint" or not may_outgrow(type):
        return (number,)
    return (o.remainder(number, UNIT, sum_type(type)), o.quotient(number, UNIT, sum_type(type)))


def _has(o: Algebra, value: Term, then: Term, otherwise: Term) -> Term:
    return o.choose(o.missing(value), otherwise, then)


@dataclass(frozen=True)
class Count(Combiner):
    """The number of records, or of records with a value in `column`.

    >>> from tailrace.model.base.algebra import Scalars
    >>> Count().lift(Scalars(), None, None), Count("delay").lift(Scalars(), None, "int")
    ((1,), (0,))
    """

    column: str | None = None
    uncombines: ClassVar[bool] = True

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("n", "bigint", Merge.ADD),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        one = o.literal(1, "bigint")
        return (one if self.column is None else _has(o, value, one, o.literal(0, "bigint")),)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return parts["n"]

    def result_type(self, type: str | None) -> str:
        return "bigint"


@dataclass(frozen=True)
class _Total(Combiner):
    """The base of `Sum` and `Mean`: an exact total and the number of values in it.

    The total never overflows: it has 38 digits for 64-bit numbers, and two parts for decimals of nearly 38 digits.
    """

    column: str
    uncombines: ClassVar[bool] = True

    def parts(self, type: str | None) -> tuple[Part, ...]:
        # A table that is there takes a new column of the accumulator as the last one.
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
    """The total of a column's values; null when there are none.

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
        """Return the total; null where it leaves its type."""
        if not may_outgrow(type):
            return parts["total"]
        if type == "bigint":
            return o.narrow(parts["total"])
        return o.joined(parts["total_high"], parts["total"], UNIT, sum_type(type))


@dataclass(frozen=True)
class Mean(_Total):
    """The mean of a column's values as a double, divided once from the exact total; null when there are none.

    >>> from tailrace.model.base.algebra import Scalars
    >>> Mean("delay").result(Scalars(), {"total": 7, "n": 2}, "int")
    3.5
    """

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        zero = o.literal(0, "bigint")
        none = o.equal(parts["n"], zero)
        # The divisor is kept off zero because an SQL engine may compute both branches.
        divisor = o.choose(none, o.literal(1, "bigint"), parts["n"])
        return o.choose(none, o.literal(None, "null"), o.ratio(self._real(o, parts, type or "bigint"), divisor))

    def _real(self, o: Algebra, parts: Mapping[str, Term], type: str) -> Term:
        """Return the total as a double."""
        if type == "bigint" or not may_outgrow(type):
            return o.real(parts["total"], WHOLE if type == "bigint" else sum_type(type))
        return o.real_of(parts["total_high"], parts["total"], UNIT, sum_type(type))

    def result_type(self, type: str | None) -> str:
        return "double"


@dataclass(frozen=True)
class Extreme(Combiner):
    """The base of combiners that keep one extreme of a column's values: `Min`, `Max` and `AnyValue`."""

    column: str
    uncombines: ClassVar[bool] = False
    _merge: ClassVar[Merge]

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("value", type or "string", self._merge),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        return (value,)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return parts["value"]

    def result_type(self, type: str | None) -> str:
        return type or "string"


@dataclass(frozen=True)
class Min(Extreme):
    """The smallest of a column's values; null when there are none. It cannot uncombine."""

    _merge: ClassVar[Merge] = Merge.LEAST


@dataclass(frozen=True)
class Max(Extreme):
    """The largest of a column's values; null when there are none. It cannot uncombine."""

    _merge: ClassVar[Merge] = Merge.GREATEST


@dataclass(frozen=True)
class AnyValue(Extreme):
    """Any one of a column's values, the same one in every execution: the smallest. Null when there are none.

    For a column that has one value in each window, such as a name that goes with the key.
    """

    _merge: ClassVar[Merge] = Merge.LEAST


@dataclass(frozen=True)
class _Truth(Combiner):
    """The base of `AllTrue` and `AnyTrue`: the number of values, and of true values."""

    column: str
    uncombines: ClassVar[bool] = True

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

    def result_type(self, type: str | None) -> str:
        return "boolean"

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        if type is not None and type != "boolean":
            expected = "a boolean column"
            yield Fault(f"{path}.column", f"{self.column}: {type}", expected, "declare it as boolean in the log")


@dataclass(frozen=True)
class AllTrue(_Truth):
    """Whether all of a column's values are true; null when there are none.

    >>> from tailrace.model.base.algebra import Scalars
    >>> AllTrue("paid").result(Scalars(), {"true": 2, "n": 3}, "boolean")
    False
    """

    def _enough(self, o: Algebra, parts: Mapping[str, Term]) -> Term:
        return parts["n"]


@dataclass(frozen=True)
class AnyTrue(_Truth):
    """Whether any of a column's values is true; null when there are none.

    >>> from tailrace.model.base.algebra import Scalars
    >>> AnyTrue("paid").result(Scalars(), {"true": 2, "n": 3}, "boolean")
    True
    """

    def _enough(self, o: Algebra, parts: Mapping[str, Term]) -> Term:
        return o.literal(1, "bigint")
