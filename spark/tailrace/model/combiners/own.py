"""Custom windowings and combiners in plain Python, for users for whom the built-in kinds are not enough.

Custom windowings and combiners run in Python: in the reference execution, in Spark's Python workers, and next to DuckDB
in this process. They never run in SQL, because plain Python cannot be compiled to SQL. Custom triggers need nothing
from this module: a `Trigger` is written in the algebra, so it runs in every execution, including SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, TypeAlias

from tailrace.model.base.algebra import Algebra, Scalars, Term
from tailrace.model.base.errors import Fault, RecordError, failure
from tailrace.model.base.types import element_type, is_plain, struct_fields
from tailrace.model.base.values import fitter
from tailrace.model.combiners.basic import Combiner, Merge, Part
from tailrace.model.windows.windows import Windowing


class OwnWindows(Windowing):
    """The base class of custom windowings. Implement `assign` and, if windows merge, `merges`, `reach` and `gathered`.

    The subclass must be a frozen dataclass, so that its options are part of the definition's meaning.
    """

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the windowing's options."""
        if not is_dataclass(self):
            expected = "a frozen dataclass, whose options are part of what the definition means"
            yield Fault(path, self, expected, "write @dataclass(frozen=True) above the class")


@dataclass(frozen=True)
class OwnPart(Part):
    """The part of a custom combiner's accumulator that contains the combiner's state."""

    combiner: Any = None

    def zero(self, o: Algebra) -> Term:
        return self.combiner.zero()

    def merged(self, o: Algebra, a: Term, b: Term) -> Term:
        return self.combiner.merge(a, b)


_COUNTS = "array<struct<value:bigint,n:bigint>>"
"""The type of a list of whole numbers with their counts. No other list of structs is allowed as a state."""


FAILED = "_failed"
"""The suffix in the name of the accumulator part that contains the reason why a custom combiner failed."""

Guarded: TypeAlias = "tuple[Any, str | None]"
"""The accumulator of a custom combiner as a pair: the state and None, or None and the reason why there is no state."""


def guarded(part: Part, a: Guarded, b: Guarded) -> Guarded:
    """Merge two accumulators by calling the custom combiner's method `merge`; if the call fails, store the reason.

    If at least one of the two accumulators has failed, the merged accumulator has failed, too. The reason for the
    failure does not depend on the order in which many accumulators are merged.
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
    """Merge two accumulators part by part.

    A custom combiner's accumulator consists of two parts, the state and the reason for a failure. These two parts are
    merged together.
    """
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
"""The value that custom code receives in place of an algebra: None, because plain Python needs no algebra."""


def _of_state(state: Any, type: str) -> Guarded:
    try:
        return _of_type(state, type), None
    except _NO_VALUE:
        return None, f"the state is out of {type}"


_NO_VALUE = (ValueError, TypeError, ArithmeticError)
"""The errors that may be raised when a value is converted to another type."""


def _of_type(value: Any, type: str) -> Any:
    """Convert a value, or null, to the type of a state or a result; a negative zero becomes zero (rule M8).

    Raises one of the errors in `_NO_VALUE` if the value does not fit the type.
    """
    if value is None or struct_fields(element := element_type(type) or type) is not None:
        return value
    made = [fitter(element)(one) for one in value] if element != type else fitter(type)(value)
    return Scalars().unsigned_zeros(made, type)


def _is_state(type: object) -> bool:
    if not isinstance(type, str):
        return False
    return type == _COUNTS or is_plain(element_type(type) or type)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error!s:.200}"


class OwnCombiner(Combiner):
    """The base class of custom combiners. Implement `zero`, `add`, `merge` and `output`, and declare the types.

    If a method of the combiner raises an error or returns a value of the wrong type, the combiner's result for the
    window is null from then on, and the column `unanswered` contains the reason (rule X7). Other windows and other
    results are not affected.

    `state` is the type of the accumulator: a column type, or `array<...>` of a column type. `gives` is the type of the
    result. If these types depend on the type of `column`, override `state_type` and `result_type`. A record without a
    value in `column` is ignored. The subclass must be a frozen dataclass.

    Laws: `merge` is associative and commutative, `zero` is its neutral element, and adding a value has the same effect
    as merging an accumulator that contains only that value. Two accumulators count as equal if their outputs are equal.
    Tests can check the laws with `tailrace.model.combiners.laws`.
    """

    column: str | None
    state: str = "bigint"
    gives: str = "bigint"
    uncombines: ClassVar[bool] = False

    fails: ClassVar[bool] = True
    """Whether a method of the combiner may raise an error or return a value of the wrong type.

    If a method fails in this way, the result for the window is null, and the reason is stored.
    """

    def zero(self) -> Any:
        """Return the empty accumulator, to which no value has been added."""
        raise NotImplementedError

    def add(self, state: Any, value: Any) -> Any:
        """Return the accumulator `state` with one more value added; the method must not change `state` in place."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        """Merge two accumulators."""
        raise NotImplementedError

    def output(self, state: Any) -> Any:
        """Compute the result from an accumulator."""
        raise NotImplementedError

    def uncombine(self, a: Any, b: Any) -> Any:
        """Remove from accumulator `a` all values of accumulator `b`; `a` must contain all values of `b`.

        Set `uncombines` to True if you implement `uncombine`. If you do not implement it, a pipeline whose records may
        be retracted keeps all values of a window; when a record is retracted, the pipeline recomputes the result from
        the remaining values.
        """
        raise NotImplementedError

    def state_type(self, type: str | None) -> str:
        """Return the type of the accumulator; `type` is the type of the combiner's column."""
        return self.state

    def check(self, path: str, type: str | None) -> Iterable[Fault]:
        """Find the faults that are specific to this kind of combiner; subclasses may override this method."""
        return ()

    def parts(self, type: str | None) -> tuple[Part, ...]:
        """Return the parts of the accumulator: the state and, if the combiner's code may fail, the reason for a
        failure.
        """
        return self.own_parts("state", type)

    def own_parts(self, name: str, type: str | None) -> tuple[Part, ...]:
        """Return the parts of a custom combiner's accumulator; `name` is the name of the part that contains the
        state.
        """
        state = OwnPart(name, self.state_type(type), Merge.OWN, combiner=self)
        return (state, Part(f"{name}{FAILED}", "string", Merge.LEAST)) if self.fails else (state,)

    def lift(self, o: Algebra, value: Term, type: str | None) -> tuple[Term, ...]:
        """Return the accumulator that contains only one record.

        Raises `RecordError` if the combiner's code fails, so that this record is rejected.
        """
        try:
            added = self.zero() if value is None and self.column is not None else self.add(self.zero(), value)
        except Exception as error:
            raise RecordError(f"{self.__class__.__name__}: {failure(error)}") from error
        return _of_state(added, self.state_type(type)) if self.fails else (added,)

    def result(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Compute the result from an accumulator. The result is null if the accumulator has failed or if `output`
        fails.
        """
        return self.answered(parts, ("state",), self.output, type)[0]

    def leaves(self, type: str | None) -> bool:
        """Return True if the combiner's code may fail; a failure makes the result null."""
        return self.fails

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Return the reason why an accumulator has no result, or null if the accumulator has a result."""
        return self.answered(parts, ("state",), self.output, type)[1]

    def answered(
        self, parts: Mapping[str, Term], names: Sequence[str], output: Callable[..., Any], type: str | None
    ) -> Guarded:
        """Pass the accumulator parts with these names to `output`, which computes the result.

        Returns the pair of the result and None. After a failure, returns the pair of None and the reason for the
        failure.
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
        """Find the faults of the custom combiner."""
        if not is_dataclass(self):
            expected = "a frozen dataclass, whose options are part of what the definition means"
            yield Fault(path, self, expected, "write @dataclass(frozen=True) above the class")
        for name, found in (("state", self.state_type(type)), ("gives", self.result_type(type))):
            if not _is_state(found):
                expected = "a column type, or array<...> of one"
                yield Fault(f"{path}.{name}", found, expected, 'write for example state = "array<bigint>"')
        yield from self.check(path, type)
