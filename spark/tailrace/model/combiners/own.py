"""Windows and combiners of one's own, in plain Python, for users whom the built-in kinds do not serve.

They run in the reference execution and, on Spark, in the `python` execution; never natively, for plain Python cannot
be compiled to SQL. Triggers of one's own need nothing from here: a `Trigger` is written in the algebra, and runs
everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import Fault, RecordError, failure
from tailrace.model.base.types import element_type, is_type
from tailrace.model.combiners.basic import Combiner, Merge, Part
from tailrace.model.windows.windows import Windowing


class OwnWindows(Windowing):
    """The base of windowings of one's own: write `assign`, and `merges`, `reach` and `gathered` where windows merge.

    Make it a frozen dataclass, so that its options are part of the definition's meaning.
    """

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the windowing's options."""
        if not is_dataclass(self):
            expected = "a frozen dataclass, whose options are part of what the definition means"
            yield Fault(path, self, expected, "write @dataclass(frozen=True) above the class")


@dataclass(frozen=True)
class OwnPart(Part):
    """The single part of the accumulator of a combiner of one's own."""

    combiner: Any = None

    def zero(self, o: Algebra) -> Term:
        return self.combiner.zero()

    def merged(self, o: Algebra, a: Term, b: Term) -> Term:
        return self.combiner.merge(a, b)


_COUNTS = "array<struct<value:bigint,n:bigint>>"
"""Numbers with their counts: the only state type that is neither a column type nor a list of one."""


def _is_state(type: object) -> bool:
    if not isinstance(type, str):
        return False
    return type == _COUNTS or is_type(element_type(type) or type)


class OwnCombiner(Combiner):
    """The base of combiners of one's own: write `zero`, `add`, `merge` and `output`, and say the types.

    `state` is the type of the accumulator: a column type, or `array<...>` of one. `gives` is the result's type. Where
    they depend on the column's type, write `state_type` and `result_type`. A record without a value in `column` is not
    added. Make it a frozen dataclass.

    Laws, of what accumulators stand for: `merge` is associative and commutative with `zero` for its unit, and adding a
    value is merging what it alone makes (`tailrace.model.combiners.laws` checks them).
    """

    column: str | None
    state: str = "bigint"
    gives: str = "bigint"
    uncombines: ClassVar[bool] = False

    def zero(self) -> Any:
        """Return the accumulator of no records."""
        raise NotImplementedError

    def add(self, state: Any, value: Any) -> Any:
        """Return the accumulator with one value more; `state` itself must not be changed."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        """Merge two accumulators."""
        raise NotImplementedError

    def output(self, state: Any) -> Any:
        """Compute the result that the accumulator stands for."""
        raise NotImplementedError

    def uncombine(self, a: Any, b: Any) -> Any:
        """Take the values of `b`, all of which are in `a`, out of `a`; set `uncombines` if you write this method.

        Where a later stage takes records back, a combiner without it is computed from all the values, which are kept.
        """
        raise NotImplementedError

    def state_type(self, type: str | None) -> str:
        """Return the accumulator's type over a column of this type."""
        return self.state

    def check(self, path: str, type: str | None) -> Iterable[Fault]:
        """Find the combiner's own faults over a column of this type, besides those that every combiner may have."""
        return ()

    def parts(self, type: str | None) -> tuple[Part, ...]:
        """Return the accumulator's single part."""
        return (OwnPart("state", self.state_type(type), Merge.OWN, combiner=self),)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        """Return the accumulator of one record. Raises `RecordError` where that fails: it is the record's own fault."""
        try:
            return (self.zero() if value is None and self.column is not None else self.add(self.zero(), value),)
        except Exception as error:
            raise RecordError(f"{self.__class__.__name__}: {failure(error)}") from error

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Compute the result of an accumulator."""
        return self.output(parts["state"])

    def result_type(self, type: str | None) -> str:
        """Return the result's type."""
        return self.gives

    def faults(self, path: str, type: str | None) -> Iterable[Fault]:
        """Find the faults of the combiner."""
        if not is_dataclass(self):
            expected = "a frozen dataclass, whose options are part of what the definition means"
            yield Fault(path, self, expected, "write @dataclass(frozen=True) above the class")
        for name, found in (("state", self.state_type(type)), ("gives", self.result_type(type))):
            if not _is_state(found):
                expected = "a column type, or array<...> of one"
                yield Fault(f"{path}.{name}", found, expected, 'write for example state = "array<bigint>"')
        yield from self.check(path, type)
