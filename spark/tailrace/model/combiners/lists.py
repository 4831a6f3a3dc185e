"""Combiners whose accumulators contain values instead of totals: all values, the largest values or the distinct
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import Fault, share_faults, whole_faults
from tailrace.model.base.types import is_plain, struct_fields
from tailrace.model.combiners.basic import Combiner, Merge, Part


class Gathering(Combiner):
    """The base class of the combiners in this module, whose accumulator is a list of a column's values."""

    column: str
    uncombines: ClassVar[bool] = False
    _merge: ClassVar[Merge] = Merge.GATHER

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("state", f"array<{type}>", self._merge),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        return (o.alone(value, f"array<{type}>"),)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return parts["state"]

    def result_type(self, type: str | None) -> str:
        return self.gives or f"array<{type}>"

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        if "double" in (type, *(struct_fields(type or "") or {}).values()):
            given, expected = f"{self.column}: {type}", "a column whose values have an order without exceptions"
            yield Fault(f"{path}.column", given, expected, "declare it as decimal(p,s)")


@dataclass(frozen=True)
class Collect(Gathering):
    """All of a column's values, in sorted order. The accumulator grows with the number of values.

    The values of a packed column (`Pack`) are sorted by its first field, then by its second field, and so on.

    >>> from tailrace.model.base.algebra import Scalars
    >>> (part,) = Collect("price").parts("bigint")
    >>> part.merged(Scalars(), [1, 3], [3])
    [1, 3, 3]
    """

    column: str


@dataclass(frozen=True)
class TopK(Gathering):
    """The `count` largest of a column's values, in descending order.

    >>> from tailrace.model.base.algebra import Scalars
    >>> (part,) = TopK("price", 2).parts("bigint")
    >>> part.merged(Scalars(), [5, 3], [4])
    [5, 4]
    """

    column: str
    count: int

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("state", f"array<{type}>", Merge.TOP, self.count),)

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        yield from whole_faults(f"{path}.count", self.count, f"write TopK({self.column!r}, 3)")
        yield from super().faults(path, type)


@dataclass(frozen=True)
class Highest(Gathering):
    """All values of a packed column that have the highest value in field `by`, in sorted order.

    If several packed values share the highest value in field `by`, all of these packed values are kept. A packed value
    whose field `by` is null is dropped. The accumulator is not larger than the result. In contrast, a combination of
    `Collect`, `Max` and a condition after `Unpack` would keep every value in its accumulator.

    >>> from tailrace.model.base.algebra import Scalars
    >>> bids = [{"price": price, "bidder": bidder} for price, bidder in ((5, "a"), (7, "b"), (7, "c"))]
    >>> (part,) = Highest("bid", by="price").parts("struct<price:bigint,bidder:string>")
    >>> [bid["bidder"] for bid in part.merged(Scalars(), bids[:1], bids[1:])]
    ['b', 'c']
    """

    column: str
    by: str

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("state", f"array<{type}>", Merge.HIGHEST, by=self.by),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        list_ = f"array<{type}>"
        return (o.choose(o.missing(o.field(value, self.by)), o.no_values(list_), o.alone(value, list_)),)

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        fields = struct_fields(type or "") or {}
        if not fields:
            expected = "a column that is several in one"
            yield Fault(f"{path}.column", f"{self.column}: {type}", expected, 'write each=Pack("bid", ("price", "by"))')
        elif not is_plain(fields.get(self.by)):
            yield Fault(f"{path}.by", self.by, f"one of the packed columns {', '.join(fields)}", "pack it, too")
        yield from super().faults(path, type)


@dataclass(frozen=True)
class Distinct(Gathering):
    """The exact number of different values of a column. The accumulator contains each different value once.

    >>> from tailrace.model.base.algebra import Scalars
    >>> (part,) = Distinct("user").parts("string")
    >>> part.merged(Scalars(), ["a"], ["b", "a"])
    ['a', 'b']
    """

    column: str
    gives = "bigint"
    _merge: ClassVar[Merge] = Merge.UNITE

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return o.length(parts["state"])


@dataclass(frozen=True)
class Quantile(Gathering):
    """The exact quantile of a column's values at `share`, by the nearest-rank method; null if there are no values.

    The quantile is the smallest value v such that at least a fraction `share` of the values are less than or equal to
    v. The accumulator grows with the number of values.

    >>> from tailrace.model.base.algebra import Scalars
    >>> [Quantile("delay", share).result(Scalars(), {"state": [1, 5, 9]}, "bigint") for share in (0.5, 1)]
    [5, 9]
    """

    column: str
    share: float

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return o.ranked(parts["state"], self.share)

    def result_type(self, type: str | None) -> str:
        return type or "string"

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        yield from share_faults(f"{path}.share", self.share, f"write Quantile({self.column!r}, 0.95)")
        yield from super().faults(path, type)
