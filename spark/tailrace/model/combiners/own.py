"""Custom windows and combiners, in plain Python, for users whom the built-in kinds do not serve.

They run in the reference execution and, on Spark, in the `python` execution; never natively, for plain Python cannot
be compiled to SQL. Custom triggers need nothing from here: a `Trigger` is written in the algebra, and runs
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, TypeAlias

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import Fault, RecordError, failure
from tailrace.model.base.types import element_type, is_type, struct_fields
from tailrace.model.base.values import fitter
from tailrace.model.combiners.basic import Combiner, Merge, Part
from tailrace.model.windows.windows import Windowing


class OwnWindows(Windowing):
    """The base of custom windowings: write `assign`, and `merges`, `reach` and `gathered` where windows merge.

    Make it a frozen dataclass, so that its options are part of the definition's meaning.
    """

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the windowing's options."""
        if not is_dataclass(self):
            expected = "a frozen dataclass, whose options are part of what the definition means"
            yield Fault(path, self, expected, "write @dataclass(frozen=True) above the class")


@dataclass(frozen=True)
class OwnPart(Part):
    """The single part of the accumulator of a custom combiner."""

    combiner: Any = None

    def zero(self, o: Algebra) -> Term:
        return self.combiner.zero()

    def merged(self, o: Algebra, a: Term, b: Term) -> Term:
        return self.combiner.merge(a, b)


_COUNTS = "array<struct<value:bigint,n:bigint>>"
"""Numbers with their counts: the only state type that is neither a column type nor a list of one."""


FAILED = "_failed"
"""The suffix of the name of the part that says why the part of a custom combiner has no value any more."""

Guarded: TypeAlias = "tuple[Any, str | None]"
"""An accumulator of a custom combiner: its state, or null and why there is none."""


def guarded(part: Part, a: Guarded, b: Guarded) -> Guarded:
    """Merge two accumulators by the combiner's own code; an accumulator that failed has failed for good.

    The reason does not depend on the order, even where the order decides which merge fails first.
    """
    whys = [why for _, why in (a, b) if why is not None]
    if whys:
        return None, min(whys)
    try:
        merged = part.merged(_NONE, a[0], b[0])
    except Exception as error:
        return None, f"merge raised {type(error).__name__}"
    return _of_state(merged, part.type)


def merged_parts(o: Algebra, parts: Sequence[Part], a: Sequence[Term], b: Sequence[Term]) -> tuple[Term, ...]:
    """Merge two accumulators part by part; parts of custom code merge with the parts that say why they failed."""
    merged: list[Term] = []
    for place, part in enumerate(parts):
        if len(merged) > place:
            continue
        if place + 1 < len(parts) and parts[place + 1].name == f"{part.name}{FAILED}":
            merged += guarded(part, (a[place], a[place + 1]), (b[place], b[place + 1]))
        else:
            merged.append(part.merged(o, a[place], b[place]))
    return tuple(merged)


_NONE: Any = None
"""The algebra that custom code gets: none."""


def _of_state(state: Any, type: str) -> Guarded:
    try:
        return _of_type(state, type), None
    except _NO_VALUE:
        return None, f"the state is out of {type}"


_NO_VALUE = (ValueError, TypeError, ArithmeticError)
"""The errors of converting a value to another type."""


def _of_type(value: Any, type: str) -> Any:
    """Convert a value, or null, to a state's or a result's type. Raises one of `_NO_VALUE` where it is none of it."""
    if value is None or struct_fields(element := element_type(type) or type) is not None:
        return value
    return [fitter(element)(one) for one in value] if element != type else fitter(type)(value)


def _is_state(type: object) -> bool:
    if not isinstance(type, str):
        return False
    return type == _COUNTS or is_type(element_type(type) or type)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error!s:.200}"


class OwnCombiner(Combiner):
    """The base of custom combiners: write `zero`, `add`, `merge` and `output`, and say the types.

    Where the code raises, or returns a value of another type, the window's result is null from then on, and
    `unanswered` says why (rule X7); other windows and results go on.

    `state` is the type of the accumulator: a column type, or `array<...>` of one. `gives` is the result's type. Where
    they depend on the column's type, write `state_type` and `result_type`. A record without a value in `column` is not
    added. Make it a frozen dataclass.

    Laws: `merge` is associative and commutative with `zero` for its unit, and adding a value equals merging the
    accumulator of that value alone. They hold for the outputs of accumulators (`tailrace.model.combiners.laws` checks
    them).
    """

    column: str | None
    state: str = "bigint"
    gives: str = "bigint"
    uncombines: ClassVar[bool] = False

    fails: ClassVar[bool] = True
    """Whether a method may raise or return a value of another type; a window's result is then null, with why."""

    def zero(self) -> Any:
        """Return the accumulator of no records."""
        raise NotImplementedError

    def add(self, state: Any, value: Any) -> Any:
        """Return the accumulator with one more value; must not change `state` itself."""
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
        """Find the combiner's own faults over a column of this type, beside the faults of any combiner."""
        return ()

    def parts(self, type: str | None) -> tuple[Part, ...]:
        """Return the accumulator's part and, where it may fail, the part that says why."""
        return self.own_parts("state", type)

    def own_parts(self, name: str, type: str | None) -> tuple[Part, ...]:
        """Return the parts of an accumulator that has this name."""
        state = OwnPart(name, self.state_type(type), Merge.OWN, combiner=self)
        return (state, Part(f"{name}{FAILED}", "string", Merge.LEAST)) if self.fails else (state,)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        """Return the accumulator of one record. Raises `RecordError` where that fails: it is the record's own fault."""
        try:
            added = self.zero() if value is None and self.column is not None else self.add(self.zero(), value)
        except Exception as error:
            raise RecordError(f"{self.__class__.__name__}: {failure(error)}") from error
        return _of_state(added, self.state_type(type)) if self.fails else (added,)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Compute the result of an accumulator; null where it has failed, or fails now."""
        return self.answered(parts, ("state",), self.output, type)[0]

    def leaves(self, type: str | None) -> bool:
        """Tell whether the combiner's code may fail."""
        return self.fails

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Say why an accumulator has no result."""
        return self.answered(parts, ("state",), self.output, type)[1]

    def answered(
        self, parts: Mapping[str, Term], names: Sequence[str], output: Callable[..., Any], type: str | None
    ) -> Guarded:
        """Compute a result from the parts of these names, or say why there is none."""
        if not self.fails:
            return output(*(parts[name] for name in names)), None
        if whys := [why for name in names if (why := parts[f"{name}{FAILED}"]) is not None]:
            return None, min(whys)
        try:
            made = output(*(parts[name] for name in names))
        except Exception as error:
            return None, f"output raised {_said(error)}"
        try:
            return _of_type(made, self.result_type(type)), None
        except _NO_VALUE:
            return None, f"{made!r:.80} is out of {self.result_type(type)}"

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
