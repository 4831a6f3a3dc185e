"""Combiners over records that may be taken back: what a later stage makes of another's panes (DESIGN, section 5).

A combiner whose parts add up takes a record back by adding its opposite. One of a user's own that can uncombine keeps
what was added and what was taken back side by side. Any other is recomputed from the values, which are kept with how
often each is there: so no answer is ever wrong because something was taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tailrace.model.algebra import Algebra, Term, place
from tailrace.model.combiners import Combiner, Merge, Part
from tailrace.model.errors import Fault
from tailrace.model.merging import Merging
from tailrace.model.ordered import ByTime
from tailrace.model.own import OwnCombiner, OwnPart


def taking_back(combiner: Combiner, type: str | None) -> Combiner:
    """The combiner that gives the same results and can take records back; `type` is its column's.

    >>> from tailrace.model.combiners import Max, Sum
    >>> taking_back(Sum("price"), "bigint"), taking_back(Max("price"), "bigint")
    (Sum(column='price'), Kept(combiner=Max(column='price')))
    """
    if all(part.merge is Merge.ADD for part in combiner.parts(type)):
        return combiner
    if isinstance(combiner, OwnCombiner) and combiner.uncombines:
        return BothSides(combiner)
    return Kept(combiner)


def taken_back(o: Algebra, combiner: Combiner, terms: tuple[Term, ...], type: str | None) -> tuple[Term, ...]:
    """What taking back a record adds to each part, if `terms` is what the record added."""
    if isinstance(combiner, BothSides):
        return terms[::-1]
    if isinstance(combiner, Kept):
        return ([row | {"n": -row["n"]} for row in terms[0]],)
    parts = combiner.parts(type)
    return tuple(o.subtract(o.literal(0, part.type), term, part.type) for part, term in zip(parts, terms, strict=True))


@dataclass(frozen=True)
class _Wrapped:
    """What both kinds take from the combiner that they stand for."""

    combiner: Any
    uncombines: ClassVar[bool] = True

    @property
    def column(self) -> str | None:
        return self.combiner.column  # type: ignore[no-any-return]

    def result_type(self, type: str | None) -> str:
        return self.combiner.result_type(type)  # type: ignore[no-any-return]

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        return self.combiner.faults(path, type)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Kept(_Wrapped):
    """A combiner that is recomputed from the values of the records that are there, each with how many have it.

    >>> from tailrace.model.algebra import Scalars
    >>> from tailrace.model.combiners import Max
    >>> o, most = Scalars(), Kept(Max("price"))
    >>> two = most.merge(*most.lift(o, 2, "bigint"), *most.lift(o, 5, "bigint"))
    >>> most.result(o, {"kept": two}, "bigint")
    5
    >>> one = most.merge(two, *taken_back(o, most, most.lift(o, 5, "bigint"), "bigint"))
    >>> most.result(o, {"kept": one}, "bigint")
    2
    """

    def parts(self, type: str | None) -> tuple[Part, ...]:
        value = type or "boolean"
        if isinstance(self.combiner, ByTime):
            value = f"struct<at:bigint,value:{value}>"
        return (OwnPart("kept", f"array<struct<value:{value},n:bigint>>", Merge.OWN, combiner=self),)

    def zero(self) -> list[dict[str, Any]]:
        """No value."""
        return []

    def merge(self, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The values of both, with how often each is there; those that are there no more are left out."""
        held: dict[Any, dict[str, Any]] = {}
        for row in (*a, *b):
            at = place(row["value"])
            n = row["n"] + (held[at]["n"] if at in held else 0)
            held[at] = {"value": row["value"], "n": n}
        return [held[at] for at in sorted(held) if held[at]["n"]]

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        left_out = value is None and self.combiner.column is not None
        return ([] if left_out else [{"value": value, "n": 1}],)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        own = self.combiner.parts(type)

        def merged(a: tuple[Term, ...], b: tuple[Term, ...]) -> tuple[Term, ...]:
            return tuple(part.merged(o, x, y) for part, x, y in zip(own, a, b, strict=True))

        held = Merging[tuple[Term, ...]]()
        held.add(tuple(part.zero(o) for part in own), merged)
        for row in parts["kept"]:
            lifted = self.combiner.lift(o, row["value"], type)
            for _ in range(row["n"]):
                held.add(lifted, merged)
        total = held.total(merged)
        return self.combiner.result(o, {part.name: term for part, term in zip(own, total, strict=True)}, type)


@dataclass(frozen=True)
class BothSides(_Wrapped):
    """A combiner of a user's own that can uncombine: the accumulators of all that came and of all that was taken back.

    Law: `uncombine(merge(a, b), b)` stands for what `a` stands for (`tailrace.model.obeying` checks it).
    """

    def parts(self, type: str | None) -> tuple[Part, ...]:
        (state,) = self.combiner.parts(type)
        return (
            OwnPart("came", state.type, Merge.OWN, combiner=self.combiner),
            OwnPart("taken", state.type, Merge.OWN, combiner=self.combiner),
        )

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        return (*self.combiner.lift(o, value, type), self.combiner.zero())

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return self.combiner.output(self.combiner.uncombine(parts["came"], parts["taken"]))
