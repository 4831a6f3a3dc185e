"""Combiners, which compute the results of a window: accumulators merge in any order (Dataflow Model, 2.2 and 3.3).

A combiner declares its accumulator as named parts, each with the way in which it merges (`Merge`: by adding, by the
smaller, by the larger and so on); what a record adds to each part; and the result that the parts stand for. All of
these are data and algebra terms, so that one text serves every execution.

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
from tailrace.model.base.types import is_exact_number, sum_type


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

    `most` is how many values `Merge.TOP` keeps, `by` the field that `Merge.HIGHEST` goes by.
    """

    name: str
    type: str
    merge: Merge
    most: int = 0
    by: str = ""

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

        The part of a combiner of one's own calls that combiner instead (`tailrace.model.combiners.own`).
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

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        """Find the faults of the combiner over a column of this type."""
        return ()


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
    """The base of `Sum` and `Mean`: an exact total and the number of values in it."""

    column: str
    uncombines: ClassVar[bool] = True

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("total", sum_type(type or "bigint"), Merge.ADD), Part("n", "bigint", Merge.ADD))

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        zero = o.literal(0, "bigint")
        return (_has(o, value, value, zero), _has(o, value, o.literal(1, "bigint"), zero))

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
        return o.choose(none, o.literal(None, "null"), parts["total"])

    def result_type(self, type: str | None) -> str:
        return sum_type(type or "bigint")


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
        return o.choose(none, o.literal(None, "null"), o.ratio(parts["total"], divisor))

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
    """The base of `AllTrue` and `AnyTrue`: the number of values, and of those that are true."""

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
