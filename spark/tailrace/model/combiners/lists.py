"""Combiners whose accumulators contain values instead of totals: all values, the largest values or the distinct
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.conditions import term_at
from tailrace.model.base.errors import Fault, share_faults, whole_faults
from tailrace.model.base.types import is_nested, is_single, struct_fields, struct_type, type_at
from tailrace.model.combiners.basic import Combiner, Merge, Part


class Gathering(Combiner):
    """The base class of the combiners in this module, whose accumulator is a list of a column's values."""

    column: str
    uncombines: ClassVar[bool] = False
    takes_nested: ClassVar[bool] = True
    _merge: ClassVar[Merge] = Merge.GATHER

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("state", f"array<{type}>", self._merge),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        return (o.alone(value, f"array<{type}>"),)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return parts["state"]

    def result_type(self, type: str | None) -> str:
        return self.gives or f"array<{type}>"


@dataclass(frozen=True)
class Collect(Gathering):
    """All of a column's values, in sorted order. The accumulator grows with the number of values.

    Structs, such as the values of a packed column (`Pack`), are sorted by their first field, then by their second
    field, and so on. Lists are sorted by their first elements in the same way. Null is the lowest value inside both.

    >>> from tailrace.model.base.algebra import Scalars
    >>> (part,) = Collect("price").parts("bigint")
    >>> part.merged(Scalars(), [1, 3], [3])
    [1, 3, 3]
    """

    column: str


@dataclass(frozen=True)
class TopK(Gathering):
    """The `count` largest of a column's values, in descending order.

    With `by`, the values of the `count` records that are highest in `by`, a column or several columns: the highest
    record first. The first column of `by` counts first. If records are equal in all columns of `by`, the larger value
    comes first; null is the lowest value. A column of `by` may be a struct, or the path of a field in a struct. A
    record without a value in `column` is ignored.

    >>> from tailrace.model.base.algebra import Scalars
    >>> (part,) = TopK("price", 2).parts("bigint")
    >>> part.merged(Scalars(), [5, 3], [4])
    [5, 4]
    >>> o, best = Scalars(), TopK("sku", 1, by="price")
    >>> type = best.read_type({"sku": "string", "price": "bigint"})
    >>> (part,) = best.parts(type)
    >>> some, more = ([best.read(o, {"sku": sku, "price": price}, 0)] for sku, price in (("a", 5), ("b", 7)))
    >>> best.result(o, {"state": part.merged(o, some, more)}, type)
    ['b']
    """

    column: str
    count: int
    by: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", (self.by,) if isinstance(self.by, str) else tuple(self.by))

    def __repr__(self) -> str:
        # The text is in the descriptions of columns, which stay as they are without `by`.
        by = f", by={self.by!r}" if self.by else ""
        return f"TopK(column={self.column!r}, count={self.count!r}{by})"

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.by, self.column)

    def read(self, o: Algebra, record: Mapping[str, Term], at: Term) -> Term:
        value = term_at(o, record, self.column)
        if not self.by:
            return value
        ranks = {f"by_{place}": term_at(o, record, name) for place, name in enumerate(self.by, start=1)}
        return o.choose(o.missing(value), o.literal(None, "null"), o.packed({**ranks, _RANKED: value}))

    def read_type(self, types: Mapping[str, str]) -> str | None:
        if not self.by:
            return type_at(types, self.column)
        ranks = {f"by_{place}": type_at(types, name) or "string" for place, name in enumerate(self.by, start=1)}
        return struct_type({**ranks, _RANKED: type_at(types, self.column) or "string"})

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("state", f"array<{type}>", Merge.TOP, self.count),)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return o.each_field(parts["state"], _RANKED) if self.by else parts["state"]

    def result_type(self, type: str | None) -> str:
        return f"array<{(struct_fields(type or '') or {})[_RANKED] if self.by else type}>"

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        yield from whole_faults(f"{path}.count", self.count, f"write TopK({self.column!r}, 3)")
        if is_nested(type) and not self.by:
            expected = "the columns by which values are ranked, where the values are nested"
            yield Fault(f"{path}.by", self.by, expected, f'write for example TopK({self.column!r}, 3, by="price")')
        yield from super().faults(path, type)


_RANKED = "value"
"""The field with a record's value, in the values that `TopK` reads with `by`; the fields before it rank the value."""


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
        elif not is_single(fields.get(self.by)):
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
    takes_nested: ClassVar[bool] = False

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return o.ranked(parts["state"], self.share)

    def result_type(self, type: str | None) -> str:
        return type or "string"

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        yield from share_faults(f"{path}.share", self.share, f"write Quantile({self.column!r}, 0.95)")
        yield from super().faults(path, type)
