"""Combiners, which compute the results of windows (Dataflow Model, 2.2 and 3.3).

Accumulators can be merged in any order. A combiner declares the named parts of its accumulator. For each part, the
combiner declares how two values of the part are merged (`Merge`: by addition, by taking the minimum or the maximum, and
so on) and which value a record adds to the part. The combiner also declares how to compute the result from the parts.
These declarations consist of data and of terms of the `Algebra`, so all executions use the same declarations.

A total is never rounded. If an exact total does not fit its type, the result is null, and the reason is stored. If
doubles were added one after another, the sum would depend on the order of addition. Therefore each double is split into
whole numbers (`Algebra.limbs`), these numbers are summed exactly, and only the result is rounded to a double (rule M7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.conditions import term_at
from tailrace.model.base.errors import Fault
from tailrace.model.base.types import (
    MAX_PRECISION,
    REAL,
    WHOLE,
    column_of,
    holds_reals,
    is_exact_number,
    is_nested,
    may_outgrow,
    sum_type,
    type_at,
)


class Merge(Enum):
    """The ways to merge a part of one accumulator with the same part of another accumulator."""

    ADD = "add"
    LEAST = "least"
    GREATEST = "greatest"
    GATHER = "gather"
    """The merged part contains all values of both parts, in sorted order."""
    UNITE = "unite"
    """The merged part contains each distinct value that occurs in either part, once, in sorted order."""
    TOP = "top"
    """The merged part contains the largest values of both parts, in descending order."""
    HIGHEST = "highest"
    """The merged part contains those values from both parts whose field `by` is highest, in sorted order."""
    COUNT = "count"
    """The merged part contains each distinct value that occurs in either part, once, with the sum of its counts.

    The values are sorted, and values whose total count is 0 are dropped.
    """
    OWN = "own"
    """The custom combiner's method `merge` merges the two parts."""


@dataclass(frozen=True)
class Part:
    """A part of an accumulator: its name, its column type, and the way in which the part is merged.

    With `Merge.TOP`, a merge keeps the `most` largest values. With `Merge.HIGHEST`, a merge keeps the values whose
    field `by` is highest. If `kept` is set, the part has two columns in tables (`columns`): a column of the smaller
    type `kept`, and a column of the part's type for values that do not fit `kept`. If `unit` is set, the part contains
    the sum of the last `unit` digits of the numbers; another part, `<name>_high`, contains the sum of the upper digits.
    If `lifted` is set, a record adds a value of this narrower type to the part. If `nested` is set, the part's values
    are lists or structs, in which there may be nulls.
    """

    name: str
    type: str
    merge: Merge
    most: int = 0
    by: str = ""
    kept: str = ""
    unit: int = 0
    lifted: str = ""
    nested: bool = False

    def columns(self, name: str) -> dict[str, str]:
        """Return the names and types of the table columns that store a part named `name`."""
        return {name: self.kept, f"{name}_over": self.type} if self.kept else {name: self.type}

    @property
    def is_list(self) -> bool:
        """Whether the part is a list of values instead of a single value."""
        return self.merge in (Merge.GATHER, Merge.UNITE, Merge.TOP, Merge.HIGHEST, Merge.COUNT)

    @property
    def has_zero(self) -> bool:
        """Whether this part has a value other than null in an empty accumulator."""
        return self.merge is Merge.ADD or self.is_list

    def zero(self, o: Algebra) -> Term:
        """Return the value of this part in an empty accumulator, to which no record has been added."""
        if self.is_list:
            return o.no_values(self.type)
        return o.literal(0 if self.merge is Merge.ADD else None, self.type)

    def merged(self, o: Algebra, a: Term, b: Term) -> Term:
        """Merge the values that this part has in two accumulators.

        The operation is associative and commutative, and `zero` is its neutral element. If the part belongs to a custom
        combiner, the values are merged by the method `merge` of that combiner (`tailrace.model.combiners.own`).
        """
        if self.merge is Merge.ADD:
            return o.add(a, b, self.type)
        if self.merge is Merge.GATHER:
            return o.gathered(a, b, self.type)
        if self.merge is Merge.COUNT:
            return o.counted(a, b, self.type)
        if self.merge is Merge.UNITE:
            return o.united(a, b, self.type)
        if self.merge is Merge.TOP:
            return o.largest(a, b, self.most, self.type)
        if self.merge is Merge.HIGHEST:
            return o.highest(o.gathered(a, b, self.type), self.by)
        type = self.type if self.nested else None
        return o.least(a, b, type) if self.merge is Merge.LEAST else o.greatest(a, b, type)


def sum_of_longs(part: Part, values: Sequence[Any]) -> int | None:
    """Return the sum of whole numbers for a part that is added up, or None if `Part.merged` has to merge the values.

    >>> part = Part("n", "bigint", Merge.ADD)
    >>> sum_of_longs(part, [1, 2, 3]), sum_of_longs(part, [2**62, 2**62])
    (6, None)
    """
    if part.merge is not Merge.ADD or part.type not in ("bigint", WHOLE) or values[0].__class__ is not int:
        return None
    total = sum(values)
    # The sum of whole numbers and decimals is a decimal, which has been rounded.
    exact = total.__class__ is int and (part.type == WHOLE or -(2**63) <= total < 2**63)
    return total if exact else None


class Combiner:
    """The base class of combiners; it declares the members that every combiner has."""

    gives: str | None = None
    """The type of the result; None if the result has the type of the column that the combiner reads."""

    takes_nested: ClassVar[bool] = False
    """Whether the combiner can read a column of any type; otherwise, it can read only columns of plain types."""

    # Type checkers see the members below as read-only properties. So a combiner may define them as fields, attributes
    # or properties.
    if TYPE_CHECKING:

        @property
        def column(self) -> str | None:
            """The log's column that the combiner reads; None if the combiner reads no column."""
            raise NotImplementedError

        @property
        def uncombines(self) -> bool:
            """Whether retracted records can be removed from an accumulator, given the accumulator of the retracted
            records.
            """
            raise NotImplementedError

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, or the paths of fields in columns, that the combiner reads."""
        return () if self.column is None else (self.column,)

    def reals(self, types: Mapping[str, str]) -> dict[str, str]:
        """Return the columns, with their types, that the combiner must read without negative zeros (rule M8).

        These are the columns with doubles or floats whose values the accumulator contains. A combiner that adds up
        numbers needs none of them, because zero and negative zero add the same. `types` has the types of all columns.
        """
        if all(part.merge is Merge.ADD for part in self.parts(self.read_type(types))):
            return {}
        read = {column_of(name) for name in self.columns}
        return {name: type for name, type in types.items() if name in read and holds_reals(type)}

    def read(self, o: Algebra, record: Mapping[str, Term], at: Term) -> Term:
        """Return the value that the combiner reads from a record, which `lift` takes: the value of its column.

        `at` is the record's event time in microseconds. The value is null if the combiner reads no column.
        """
        return None if self.column is None else term_at(o, record, self.column)

    def read_type(self, types: Mapping[str, str]) -> str | None:
        """Return the type of the values that the combiner reads, given the types of all columns.

        The methods below take this type.
        """
        return None if self.column is None else type_at(types, self.column)

    def parts(self, type: str | None) -> tuple[Part, ...]:
        """Return the parts of the combiner's accumulator; `type` is the type of the combiner's column."""
        raise NotImplementedError

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        """Return the value that one record adds to each part.

        `value` is the record's value in the combiner's column; the value may be null. `type` is the type of the column.
        """
        raise NotImplementedError

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Compute the combiner's result from the parts of an accumulator."""
        raise NotImplementedError

    def result_type(self, type: str | None) -> str:
        """Return the column type of the result for a column of this type."""
        return self.gives or type or "string"

    def leaves(self, type: str | None) -> bool:
        """Return True if the combiner can compute a result that does not fit the result type; such a result becomes
        null.
        """
        return False

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Return, as text, the reason why an accumulator has no result.

        The reason is null if the accumulator has a result or contains no values.
        """
        return o.literal(None, "string")

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        """Find the faults of the combiner for a column of this type."""
        return ()


UNIT = 28
"""For totals of large decimals: the number of last digits whose sum is a separate part of the accumulator.

The sum of a billion numbers with 28 digits fits a decimal of 38 digits.
"""


def total_parts(name: str, type: str) -> tuple[Part, ...]:
    """Return the parts for an exact total of values of this type. No part overflows, however many values are added.

    >>> [part.name for type in ("int", "bigint", "decimal(30,2)") for part in total_parts("total", type)]
    ['total', 'total', 'total', 'total_high']
    """
    if not may_outgrow(type):
        return (Part(name, sum_type(type), Merge.ADD),)
    if type == "bigint":
        return (Part(name, WHOLE, Merge.ADD, kept="bigint", lifted="bigint"),)
    return split_parts(name, sum_type(type))


def split_parts(name: str, type: str) -> tuple[Part, Part]:
    """Return the two parts for a total of this type: one part for the last digits, and one part for the upper
    digits.
    """
    return Part(name, type, Merge.ADD, unit=UNIT), Part(f"{name}_high", WHOLE, Merge.ADD)


def lifted_total(o: Algebra, number: Term, type: str) -> tuple[Term, ...]:
    """Return the value that a number adds to each part of `total_parts`; the number must not be null."""
    if type == "bigint" or not may_outgrow(type):
        return (number,)
    return (o.remainder(number, UNIT, sum_type(type)), o.quotient(number, UNIT, sum_type(type)))


LIMBS = ("top", "whole", "small", "least")
"""The parts for the exact total of doubles: sums of whole numbers in units of 2^62, 1, 2^-62 and 2^-124."""

ENDLESS = ("up", "down")
"""The parts that count the doubles that are not finite.

`up` counts the values that are infinity, and `down` the values that are minus infinity. A NaN is counted in both parts,
because the sum of infinity and minus infinity is also NaN.
"""

OUTSIDE = "outside"
"""The part that counts the doubles whose limbs do not represent their value exactly (`Algebra.limbs`)."""


def double_parts() -> tuple[Part, ...]:
    """Return the parts for the exact total of doubles, and for the numbers of values of each kind."""
    limbs = (Part(name, WHOLE, Merge.ADD, lifted="bigint") for name in LIMBS)
    counts = (Part(name, "bigint", Merge.ADD) for name in ("n", *ENDLESS, OUTSIDE))
    return (*limbs, *counts)


def without_negative_zeros(o: Algebra, record: Mapping[str, Term], reals: Mapping[str, str]) -> Mapping[str, Term]:
    """Return a record in which the columns `reals`, whose types are given, have no negative zeros (rule M8)."""
    if not reals:
        return record
    return {**record, **{name: o.unsigned_zeros(record.get(name), type) for name, type in reals.items()}}


def as_double(o: Algebra, value: Term, type: str | None) -> Term:
    """Return a double or a float as a double; a float is converted exactly."""
    return o.real(value, "float") if type == "float" else value


def has_value(o: Algebra, value: Term, then: Term, otherwise: Term) -> Term:
    """Return `then` if a value is not null, otherwise `otherwise`."""
    return o.choose(o.missing(value), otherwise, then)


@dataclass(frozen=True)
class Count(Combiner):
    """The number of records or, with `column`, the number of records that have a value in this column.

    >>> from tailrace.model.base.algebra import Scalars
    >>> Count().lift(Scalars(), None, None), Count("delay").lift(Scalars(), None, "int")
    ((1,), (0,))
    """

    column: str | None = None
    uncombines: ClassVar[bool] = True
    takes_nested: ClassVar[bool] = True
    gives = "bigint"

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("n", "bigint", Merge.ADD),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        one = o.literal(1, "bigint")
        return (one if self.column is None else has_value(o, value, one, o.literal(0, "bigint")),)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return parts["n"]


@dataclass(frozen=True)
class Totals(Combiner):
    """The base class of combiners that add up a column's numbers; exact totals of doubles are sums of limbs."""

    column: str
    uncombines: ClassVar[bool] = True
    _limit: ClassVar[str]
    """The smallest absolute value of a double for which there is no exact total."""

    _total_name: ClassVar[str] = "total"

    def leaves(self, type: str | None) -> bool:
        return type in REAL

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        if type not in REAL:
            return o.literal(None, "string")
        why = (
            f"a value of {self.column} is {self._limit} or more, or has binary digits below 2^-124 (4.7e-38), "
            f"so that there is no exact {self._total_name}: leave out such records with keep"
        )
        return o.choose(self._fits(o, parts), o.literal(None, "string"), o.literal(why, "string"))

    def _fits(self, o: Algebra, parts: Mapping[str, Term]) -> Term:
        """Return whether the limbs represent the totals of doubles exactly."""
        return o.equal(parts[OUTSIDE], o.literal(0, "bigint"))


@dataclass(frozen=True)
class _Total(Totals):
    """The base class of `Sum` and `Mean`, which add up a column's values exactly and count the values.

    The total never overflows. The total of 64-bit numbers has a type with 38 digits; the total of decimals with nearly
    38 digits is stored in two parts. The total of doubles is stored as the sums of their limbs.
    """

    _limit = "2^124 (2.1e37)"

    def parts(self, type: str | None) -> tuple[Part, ...]:
        # The part for the upper digits must be the last part, because a column that is added to an existing table
        # becomes the table's last column.
        if type in REAL:
            return double_parts()
        total, *high = total_parts("total", type or "bigint")
        return (total, Part("n", "bigint", Merge.ADD), *high)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        zero = o.literal(0, "bigint")
        if type in REAL:
            *limbs, up, down, outside = o.limbs(as_double(o, value, type))
            return (*limbs, has_value(o, value, o.literal(1, "bigint"), zero), up, down, outside)
        number = has_value(o, value, value, zero)
        total, *high = lifted_total(o, number, type or "bigint")
        return (total, has_value(o, value, o.literal(1, "bigint"), zero), *high)

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        if type is not None and type not in REAL and not is_exact_number(type):
            remedy = "declare it for example decimal(18,6) in the log"
            yield Fault(
                f"{path}.column", f"{self.column}: {type}", "a column of integers, decimals, doubles or floats", remedy
            )

    def _of_doubles(self, o: Algebra, parts: Mapping[str, Term]) -> Term:
        """Return the double closest to the total of doubles."""
        return o.real_of_limbs(*(parts[name] for name in (*LIMBS, *ENDLESS)))


@dataclass(frozen=True)
class Sum(_Total):
    """The total of a column's values; null if there are no values.

    The total of doubles is the double that is closest to the exact total, in any order of the records. It is NaN or
    infinite if a value is. It is null if the absolute value of a number is 2^124 (2.1e37) or more, or if a number has
    binary digits below 2^-124 (4.7e-38); the column `unanswered` then gives the reason.

    >>> from tailrace.model.base.algebra import Scalars
    >>> Sum("price").result(Scalars(), {"total": 0, "n": 0}, "bigint") is None
    True
    """

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        none = o.equal(parts["n"], o.literal(0, "bigint"))
        if type in REAL:
            there = o.every(o.no(none), self._fits(o, parts))
            return o.choose(there, self._of_doubles(o, parts), o.literal(None, "null"))
        return o.choose(none, o.literal(None, "null"), self._total(o, parts, type or "bigint"))

    def result_type(self, type: str | None) -> str:
        return "double" if type in REAL else sum_type(type or "bigint")

    def leaves(self, type: str | None) -> bool:
        return type in REAL or may_outgrow(type or "bigint")

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        type = type or "bigint"
        if type in REAL:
            return super().why_null(o, parts, type)
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

    The only rounding is the division of the exact total by the number of values. The mean of doubles is the `Sum`
    divided by the number of values, and is null if the `Sum` is.

    >>> from tailrace.model.base.algebra import Scalars
    >>> Mean("delay").result(Scalars(), {"total": 7, "n": 2}, "int")
    3.5
    """

    gives = "double"

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        zero = o.literal(0, "bigint")
        none = o.equal(parts["n"], zero)
        # An SQL engine may compute both branches of a conditional expression, so the divisor must never be zero.
        divisor = o.choose(none, o.literal(1, "bigint"), parts["n"])
        if type in REAL:
            there = o.every(o.no(none), self._fits(o, parts))
            return o.choose(there, o.ratio(self._of_doubles(o, parts), divisor), o.literal(None, "null"))
        return o.choose(none, o.literal(None, "null"), o.ratio(self._real(o, parts, type or "bigint"), divisor))

    def _real(self, o: Algebra, parts: Mapping[str, Term], type: str) -> Term:
        """Return the total as a double."""
        if type == "bigint" or not may_outgrow(type):
            return o.real(parts["total"], WHOLE if type == "bigint" else sum_type(type))
        return o.real_of(parts["total_high"], parts["total"], UNIT, sum_type(type))


@dataclass(frozen=True)
class Extreme(Combiner):
    """The base class of combiners that keep a column's smallest or largest value: `Min`, `Max` and `AnyValue`."""

    column: str
    uncombines: ClassVar[bool] = False
    _merge: ClassVar[Merge]

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("value", type or "string", self._merge, nested=is_nested(type)),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        return (value,)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return parts["value"]


@dataclass(frozen=True)
class Min(Extreme):
    """The smallest of a column's values; null if there are no values.

    A retracted value cannot be removed from the accumulator of `Min` (`uncombines`).
    """

    _merge: ClassVar[Merge] = Merge.LEAST


@dataclass(frozen=True)
class Max(Extreme):
    """The largest of a column's values; null if there are no values.

    A retracted value cannot be removed from the accumulator of `Max` (`uncombines`).
    """

    _merge: ClassVar[Merge] = Merge.GREATEST


@dataclass(frozen=True)
class AnyValue(Extreme):
    """One of a column's values, no matter which; null if there are no values. The implementation returns the smallest
    value.

    Use `AnyValue` for a column that has the same value in all records of a key, such as the name that belongs to an id.
    """

    takes_nested: ClassVar[bool] = True
    _merge: ClassVar[Merge] = Merge.LEAST


@dataclass(frozen=True)
class _Truth(Combiner):
    """The base class of `AllTrue` and `AnyTrue`, which count the values of a column and, separately, the values that
    are true.
    """

    column: str
    uncombines: ClassVar[bool] = True
    gives = "boolean"

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("true", "bigint", Merge.ADD), Part("n", "bigint", Merge.ADD))

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        one, zero = o.literal(1, "bigint"), o.literal(0, "bigint")
        given = has_value(o, value, value, o.literal(False, "boolean"))
        return (o.choose(given, one, zero), has_value(o, value, one, zero))

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
