"""Combiners that keep values and not only totals of them: the largest, the distinct ones, a quantile, or all.

`Collect` runs natively. The others are written as a user would write his own, and run where those do
(`tailrace.model.own`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

from tailrace.model.algebra import Algebra, Term
from tailrace.model.combiners import Merge, Part
from tailrace.model.errors import Fault
from tailrace.model.own import OwnCombiner
from tailrace.model.types import struct_fields


class _Values(OwnCombiner):
    """An accumulator that is an array of a column's values."""

    def state_type(self, type: str | None) -> str:
        return f"array<{type}>"

    def zero(self) -> list[Any]:
        return []

    def add(self, state: list[Any], value: Any) -> list[Any]:
        return self.merge(state, [value])

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return [*a, *b]

    def check(self, path: str, type: str | None) -> Iterable[Fault]:
        return _unordered(path, self.column, type)


@dataclass(frozen=True)
class Collect:
    """All of a column's values, in order; the accumulator grows with them.

    A column that is several in one (`tailrace.model.joining.Pack`) is ordered by them, the first one first.

    >>> from tailrace.model.algebra import Scalars
    >>> (part,) = Collect("price").parts("bigint")
    >>> part.merged(Scalars(), [1, 3], [3])
    [1, 3, 3]
    """

    column: str
    uncombines: ClassVar[bool] = False

    def parts(self, type: str | None) -> tuple[Part, ...]:
        return (Part("state", f"array<{type}>", Merge.GATHER),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        return (o.alone(value, f"array<{type}>"),)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return parts["state"]

    def result_type(self, type: str | None) -> str:
        return f"array<{type}>"

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        return _unordered(path, self.column, type)


@dataclass(frozen=True)
class TopK(_Values):
    """The `count` largest of a column's values, the largest first.

    >>> TopK("price", 2).merge([5, 3], [4])
    [5, 4]
    """

    column: str
    count: int

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return heapq.nlargest(self.count, [*a, *b])

    def output(self, state: list[Any]) -> list[Any]:
        return state

    def result_type(self, type: str | None) -> str:
        return f"array<{type}>"

    def check(self, path: str, type: str | None) -> Iterable[Fault]:
        count: object = self.count
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            yield Fault(f"{path}.count", count, "a whole number of at least 1", f"write TopK({self.column!r}, 3)")
        yield from super().check(path, type)


@dataclass(frozen=True)
class Distinct(_Values):
    """How many different values a column has, exactly; the accumulator holds each of them once.

    >>> Distinct("user").merge(["a"], ["b", "a"])
    ['a', 'b']
    """

    column: str

    def merge(self, a: list[Any], b: list[Any]) -> list[Any]:
        return sorted({*a, *b})

    def output(self, state: list[Any]) -> int:
        return len(state)

    def result_type(self, type: str | None) -> str:
        return "bigint"


@dataclass(frozen=True)
class Quantile(_Values):
    """The smallest of a column's values that a share of them does not exceed: exact, and one of the values.

    Null when there are none. The accumulator grows with the values.

    >>> Quantile("delay", 0.5).output([9, 1, 5]), Quantile("delay", 1).output([9, 1, 5])
    (5, 9)
    """

    column: str
    share: float

    def output(self, state: list[Any]) -> Any:
        return sorted(state)[max(0, ceil(self.share * len(state)) - 1)] if state else None

    def result_type(self, type: str | None) -> str:
        return type or "string"

    def check(self, path: str, type: str | None) -> Iterable[Fault]:
        share: object = self.share
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
            yield Fault(f"{path}.share", share, "a share between 0 and 1", f"write Quantile({self.column!r}, 0.95)")
        yield from super().check(path, type)


def _unordered(path: str, column: str | None, type: str | None) -> Iterable[Fault]:
    if "double" in (type, *(struct_fields(type or "") or {}).values()):
        given, expected = f"{column}: {type}", "a column whose values have an order without exceptions"
        yield Fault(f"{path}.column", given, expected, "declare it as decimal(p,s)")
