"""Combiners for records that may be retracted, such as the panes of an earlier stage that a later stage reads.

If the parts of a combiner are sums, the values of a retracted record are added to the parts with the opposite sign. A
custom combiner that implements `uncombine` has one accumulator for added records and one accumulator for retracted
records. For any other combiner, the values are kept with their counts, and the result is recomputed from these values.
So answers are still correct after a retraction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tailrace.model.base.algebra import Algebra, Scalars, Term
from tailrace.model.base.errors import Fault, RecordError
from tailrace.model.combiners.balanced_merge import Merging
from tailrace.model.combiners.basic import Combiner, Extreme, Merge, Part
from tailrace.model.combiners.first_last import ByTime
from tailrace.model.combiners.lists import Gathering
from tailrace.model.combiners.own import Guarded, OwnCombiner, OwnPart, merged_parts


def taking_back(combiner: Combiner, type: str | None) -> Combiner:
    """Return a combiner that has the same results as `combiner` and from which retracted records can also be removed.

    `type` is the type of the column that the combiner reads.

    >>> from tailrace.model.combiners.basic import Max, Sum
    >>> taking_back(Sum("price"), "bigint"), taking_back(Max("price"), "bigint")
    (Sum(column='price'), ByCounts(combiner=Max(column='price')))
    """
    if all(part.merge is Merge.ADD for part in combiner.parts(type)):
        return combiner
    if isinstance(combiner, OwnCombiner) and combiner.uncombines:
        return BothSides(combiner)
    own = combiner.parts(type)
    known = isinstance(combiner, BY_VALUE) and len(own) == 1
    return ByCounts(combiner) if known else Kept(combiner)


def taken_back(o: Algebra, combiner: Combiner, terms: tuple[Term, ...], type: str | None) -> tuple[Term, ...]:
    """Return, for each part of the accumulator, the value that the retraction of a record adds to the part.

    `terms` are the values that were added to the parts when the record itself was added.
    """
    if isinstance(combiner, BothSides):
        # Swap the halves of `terms`: the accumulator of added records, and the accumulator of retracted records.
        half = len(terms) // 2
        return (*terms[half:], *terms[:half])
    if isinstance(combiner, ByCounts):
        return (o.opposite(terms[0]),)
    if isinstance(combiner, Kept):
        return ([row | {"n": -row["n"]} for row in terms[0]],)
    parts = combiner.parts(type)
    return tuple(o.subtract(o.literal(0, part.type), term, part.type) for part, term in zip(parts, terms, strict=True))


@dataclass(frozen=True)
class _Wrapped(Combiner):
    """The base class of the combiners that wrap another combiner.

    The wrapper has the same column, result type and faults as the wrapped combiner (`combiner`).
    """

    combiner: Any
    uncombines: ClassVar[bool] = True

    @property
    def column(self) -> str | None:
        return self.combiner.column  # type: ignore[no-any-return]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.combiner.columns  # type: ignore[no-any-return]

    def read(self, o: Algebra, record: Mapping[str, Term], at: Term) -> Term:
        return self.combiner.read(o, record, at)

    def read_type(self, types: Mapping[str, str]) -> str | None:
        return self.combiner.read_type(types)  # type: ignore[no-any-return]

    def result_type(self, type: str | None) -> str:
        return self.combiner.result_type(type)  # type: ignore[no-any-return]

    def leaves(self, type: str | None) -> bool:
        return self.combiner.leaves(type)  # type: ignore[no-any-return]

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        return self.combiner.faults(path, type)  # type: ignore[no-any-return]


BY_VALUE = (Extreme, Gathering)
"""The classes of the combiners whose accumulator is a list of column values or a single column value.

Such an accumulator can be rebuilt from counted values.
"""


@dataclass(frozen=True)
class ByCounts(_Wrapped):
    """A wrapper that computes the result of a built-in combiner from counted values.

    A counted value is a column value together with the number of records that have this value.

    >>> from tailrace.model.base.algebra import Scalars
    >>> from tailrace.model.combiners.basic import Max
    >>> o, most = Scalars(), ByCounts(Max("price"))
    >>> (part,) = most.parts("bigint")
    >>> two = part.merged(o, *most.lift(o, 2, "bigint"), *most.lift(o, 5, "bigint"))
    >>> most.result(o, {"kept": two}, "bigint")
    5
    >>> one = part.merged(o, two, *taken_back(o, most, most.lift(o, 5, "bigint"), "bigint"))
    >>> most.result(o, {"kept": one}, "bigint")
    2
    """

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("kept", _kept_type(self.combiner, type), Merge.COUNT),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        return (o.once(value, _kept_type(self.combiner, type)),)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        (own,), held = self.combiner.parts(type), parts["kept"]
        match own.merge:
            case Merge.LEAST | Merge.GREATEST:
                values = o.end(held, last=own.merge is Merge.GREATEST)
            case Merge.UNITE:
                values = o.distinct(held)
            case Merge.TOP:
                values = o.largest(o.spread(held), o.no_values(own.type), own.most, own.type)
            case Merge.HIGHEST:
                values = o.highest(o.spread(held), own.by)
            case _:
                values = o.spread(held)
        return self.combiner.result(o, {own.name: values}, type)


def _kept_type(combiner: Combiner, type: str | None) -> str:
    """Return the type of the list of counted values; `type` is the type of the combiner's column."""
    value = type or "boolean"
    return (
        f"array<struct<value:{f'struct<at:bigint,value:{value}>' if isinstance(combiner, ByTime) else value},n:bigint>>"
    )


@dataclass(frozen=True)
class Kept(_Wrapped):
    """A wrapper that stores counted values, and rebuilds the wrapped combiner's accumulator from these values."""

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (OwnPart("kept", _kept_type(self.combiner, type), Merge.OWN, combiner=self),)

    def zero(self) -> list[dict[str, Any]]:
        """Return the empty list of counted values."""
        return []

    def merge(self, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Add up the counts of two lists of counted values; values whose count is 0 are dropped."""
        counted: list[dict[str, Any]] = Scalars().counted(a, b, "")
        return counted

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        left_out = value is None and self.combiner.column is not None
        return ([] if left_out else [{"value": value, "n": 1}],)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return self.combiner.result(o, self._computed(o, parts, type), type)

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return self.combiner.why_null(o, self._computed(o, parts, type), type)

    def _computed(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> dict[str, Term]:
        """Compute the accumulator of the wrapped combiner from the counted values."""
        own = self.combiner.parts(type)

        def merged(a: tuple[Term, ...], b: tuple[Term, ...]) -> tuple[Term, ...]:
            return merged_parts(o, own, a, b)

        held = Merging[tuple[Term, ...]]()
        held.add(tuple(part.zero(o) for part in own), merged)
        for row in parts["kept"]:
            try:
                lifted = self.combiner.lift(o, row["value"], type)
            except RecordError as error:
                # The record was accepted in an earlier epoch and can no longer be rejected, so the combiner's result
                # becomes null instead.
                lifted = (None, f"{error}")
            for _ in range(row["n"]):
                held.add(lifted, merged)
        total = held.total(merged)
        return {part.name: term for part, term in zip(own, total, strict=True)}


@dataclass(frozen=True)
class BothSides(_Wrapped):
    """A wrapper for a custom combiner that implements `uncombine`.

    The wrapper has one accumulator for all added records and one accumulator for all retracted records.

    Law: `uncombine(merge(a, b), b)` has the same output as `a` (`tailrace.model.combiners.laws` checks this law).
    """

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (*self.combiner.own_parts("came", type), *self.combiner.own_parts("taken", type))

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        came = self.combiner.lift(o, value, type)
        return (*came, self.combiner.zero(), *(None for _ in came[1:]))

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return self._answered(parts, type)[0]

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return self._answered(parts, type)[1]

    def _answered(self, parts: Mapping[str, Term], type: str | None) -> Guarded:
        def output(came: Any, taken: Any) -> Any:
            return self.combiner.output(self.combiner.uncombine(came, taken))

        found: Guarded = self.combiner.answered(parts, ("came", "taken"), output, type)
        return found
