"""Combiners that depend on event time: they return the first or the last value of a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.conditions import term_at
from tailrace.model.base.types import is_nested
from tailrace.model.combiners.basic import Extreme, Merge, Part


class ByTime:
    """The base class of combiners that read a value paired with the record's event time (`Algebra.stamped`)."""


@dataclass(frozen=True)
class _End(ByTime, Extreme):
    """The base class of `First` and `Last`, which keep the smallest or the largest pair of an event time and a
    value.
    """

    takes_nested: ClassVar[bool] = True

    def read(self, o: Algebra, record: Mapping[str, Term], at: Term) -> Term:
        return o.stamped(at, term_at(o, record, self.column))

    def parts(self, type: str | None) -> tuple[Part, ...]:
        pair = f"struct<at:bigint,value:{type or 'string'}>"
        return (Part("seen", pair, self._merge, nested=is_nested(type)),)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        return o.unstamped(parts["seen"])


@dataclass(frozen=True)
class First(_End):
    """The value of a column in the record with the earliest event time.

    Records without a value in this column are ignored. If several records have the earliest event time, the smallest of
    their values is used.

    >>> from tailrace.model.base.algebra import Scalars
    >>> o, first = Scalars(), First("page")
    >>> seen = o.least(o.stamped(2, "b"), o.stamped(1, "c"))
    >>> first.result(o, {"seen": seen}, "string")
    'c'
    """

    _merge: ClassVar[Merge] = Merge.LEAST


@dataclass(frozen=True)
class Last(_End):
    """The value of a column in the record with the latest event time.

    Records without a value in this column are ignored. If several records have the latest event time, the largest of
    their values is used.
    """

    _merge: ClassVar[Merge] = Merge.GREATEST
