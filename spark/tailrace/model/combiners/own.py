"""Custom windowings and combiners in plain Python, for users who need more than the built-in kinds.

Custom windowings and combiners run in the reference execution and, on Spark, in the `python` execution. Plain Python
never runs natively, because it cannot be compiled to SQL. Custom triggers need nothing from this module: a `Trigger` is
written in the algebra and runs everywhere.
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
    """The base class of custom windowings: implement `assign` and, if windows merge, `merges`, `reach` and `gathered`.

    The subclass must be a frozen dataclass, so that its options are part of the definition's meaning.
    """

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the windowing's options."""
        if not is_dataclass(self):
            expected = "a frozen dataclass, whose options are part of what the definition means"
            yield Fault(path, self, expected, "write @dataclass(frozen=True) above the class")


@dataclass(frozen=True)
class OwnPart(Part):
    """The only part of a custom combiner's accumulator."""

    combiner: Any = None

    def zero(self, o: Algebra) -> Term:
        return self.combiner.zero()

    def merged(self, o: Algebra, a: Term, b: Term) -> Term:
        return self.combiner.merge(a, b)


_COUNTS = "array<struct<value:bigint,n:bigint>>"
"""The type of numbers with counts: the only state type that is not a column type or a list of a column type."""


FAILED = "_failed"
"""The suffix for the name of the part that says why a custom combiner's part has no value."""

Guarded: TypeAlias = "tuple[Any, str | None]"
"""The accumulator of a custom combiner: its state and None, or None and the reason why there is no state."""


def guarded(part: Part, a: Guarded, b: Guarded) -> Guarded:
    """Merge two accumulators with the combiner's own code; if one accumulator has failed, the result has failed, too.

    The reason does not depend on the order of the merges, even if the order decides which merge fails first.
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
    """Merge two accumulators part by part; a custom combiner's part is merged with the part for its failure."""
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
"""The algebra that is passed to custom code: None, because custom code needs no algebra."""


def _of_state(state: Any, type: str) -> Guarded:
    try:
        return _of_type(state, type), None
    except _NO_VALUE:
        return None, f"the state is out of {type}"


_NO_VALUE = (ValueError, TypeError, ArithmeticError)
"""The errors that a conversion of a value to another type may raise."""


def _of_type(value: Any, type: str) -> Any:
    """Convert a value, or null, to the type of a state or a result.

    Raises an error of `_NO_VALUE` if the value does not fit.
    """
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
    """The base class of custom combiners: implement `zero`, `add`, `merge` and `output`, and declare the types.

    If a method raises an error or returns a value of another type, the window's result is null from then on, and
    `unanswered` contains the reason (rule X7). Other windows and results are not affected.

    `state` is the type of the accumulator: a column type, or `array<...>` of a column type. `gives` is the type of the
    result. If these types depend on the type of the column, override `state_type` and `result_type`. A record without a
    value in `column` is not added. The subclass must be a frozen dataclass.

    Laws: `merge` is associative and commutative, `zero` is its unit, and adding a value equals merging the accumulator
    of that value alone. The laws apply to the outputs of accumulators; `tailrace.model.combiners.laws` checks them.
    """

    column: str | None
    state: str = "bigint"
    gives: str = "bigint"
    uncombines: ClassVar[bool] = False

    fails: ClassVar[bool] = True
    """Whether a method may raise an error or return a value of another type.

    If a method raises an error, the result of the window is null, with a reason.
    """

    def zero(self) -> Any:
        """Return the empty accumulator, which contains no records."""
        raise NotImplementedError

    def add(self, state: Any, value: Any) -> Any:
        """Return the accumulator with one more value, without changing `state` in place."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        """Merge two accumulators."""
        raise NotImplementedError

    def output(self, state: Any) -> Any:
        """Compute the result of an accumulator."""
        raise NotImplementedError

    def uncombine(self, a: Any, b: Any) -> Any:
        """Remove the values of accumulator `b` from accumulator `a`, which must contain all values of `b`.

        Set `uncombines` to True if you implement `uncombine`. Without `uncombine`, a later stage keeps all values, and
        recomputes the result from the remaining values when a record is retracted.
        """
        raise NotImplementedError

    def state_type(self, type: str | None) -> str:
        """Return the type of the accumulator for a column of this type."""
        return self.state

    def check(self, path: str, type: str | None) -> Iterable[Fault]:
        """Find the faults of this kind of combiner for a column of this type; subclasses may override the method."""
        return ()

    def parts(self, type: str | None) -> tuple[Part, ...]:
        """Return the part for the state and, if the code may fail, the part for the reason of a failure."""
        return self.own_parts("state", type)

    def own_parts(self, name: str, type: str | None) -> tuple[Part, ...]:
        """Return the parts of an accumulator with this name."""
        state = OwnPart(name, self.state_type(type), Merge.OWN, combiner=self)
        return (state, Part(f"{name}{FAILED}", "string", Merge.LEAST)) if self.fails else (state,)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        """Return the accumulator of one record.

        Raises `RecordError` if the code fails, because the record is then at fault.
        """
        try:
            added = self.zero() if value is None and self.column is not None else self.add(self.zero(), value)
        except Exception as error:
            raise RecordError(f"{self.__class__.__name__}: {failure(error)}") from error
        return _of_state(added, self.state_type(type)) if self.fails else (added,)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Compute the result of an accumulator, or null if the accumulator has failed or `output` fails."""
        return self.answered(parts, ("state",), self.output, type)[0]

    def leaves(self, type: str | None) -> bool:
        """Return True if the combiner's code may fail."""
        return self.fails

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Return the reason why an accumulator has no result, or null if the accumulator has a result."""
        return self.answered(parts, ("state",), self.output, type)[1]

    def answered(
        self, parts: Mapping[str, Term], names: Sequence[str], output: Callable[..., Any], type: str | None
    ) -> Guarded:
        """Compute a result from the parts with these names.

        Returns the result and None, or None and the reason for a failure.
        """
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
