"""Custom windowings and combiners in plain Python, for users for whom the built-in kinds are not enough.

Custom windowings and combiners run in Python: in the reference execution, in Spark's Python workers, and next to DuckDB
in this process. They never run in SQL, because plain Python cannot be compiled to SQL. Custom triggers need nothing
from this module: a `Trigger` is written in the algebra, so it runs in every execution, including SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache, partial
from threading import Lock
from typing import Any, ClassVar, TypeAlias, cast

from tailrace.model.base.algebra import Algebra, Scalars, Term
from tailrace.model.base.errors import Fault, RecordError, failure
from tailrace.model.base.types import element_type, is_plain, struct_fields
from tailrace.model.base.values import fitter
from tailrace.model.combiners import balanced_merge
from tailrace.model.combiners.basic import Combiner, Merge, Part
from tailrace.model.windows.windows import Windowing


class OwnWindows(Windowing):
    """The base class of custom windowings. Implement `assign` and, if windows merge, `merges`, `reach` and `gathered`.

    The subclass must be a frozen dataclass, so that its options are part of the definition's meaning.

    If windows do not merge, `assign_batch` may assign many records at once, beside `assign`.
    """

    def assign_batch(self, times: Any, records: Any) -> tuple[Any, Any] | None:
        """Return the starts and ends of the windows of many records, or None to have `assign` called for each record.

        `times` is a NumPy array of event times in microseconds, and `records` a `pyarrow.Table` with the columns that
        `assign` receives. Starts and ends are in microseconds, in the order of the records: two arrays with one window
        for each record, two NumPy arrays of two dimensions with several windows for each, or two arrays of lists.

        The law: the windows of each record are those of `assign` (`tailrace.testing.check_batches`). If this method
        fails, or returns invalid windows, `assign` is called for each record of the batch, and rejects those at fault.
        """
        return None

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the windowing's options."""
        if not is_dataclass(self):
            expected = "a frozen dataclass, whose options are part of what the definition means"
            yield Fault(path, self, expected, "write @dataclass(frozen=True) above the class")


@dataclass(frozen=True)
class OwnPart(Part):
    """The part of a custom combiner's accumulator that contains the combiner's state.

    `reads` is the type of the combiner's column, and `fails` says whether the next part of the accumulator contains the
    reason why the combiner failed.
    """

    combiner: Any = None
    reads: str | None = None
    fails: bool = False

    def zero(self, o: Algebra) -> Term:
        if isinstance(o, Scalars):
            return self.combiner.zero()
        return o.own(OwnCall(self, OwnUse.ZERO), o.literal(0, "bigint"))[0]

    def merged(self, o: Algebra, a: Term, b: Term) -> Term:
        if isinstance(o, Scalars):
            return self.combiner.merge(a, b)
        return o.own(OwnCall(self, OwnUse.MERGE), a, b)[0]


class OwnUse(Enum):
    """What a custom combiner's code is called for."""

    ZERO = "zero"
    """The empty accumulator. The argument is a number without a meaning, because no function of SQL is without one."""
    ADD = "add"
    """The accumulator of all records of a window: the argument is the list of the records' values."""
    MERGE = "merge"
    """The accumulator that two accumulators are merged into."""
    MERGE_ALL = "merge_all"
    """The accumulator that a list of accumulators is merged into."""
    OUTPUT = "output"
    """The result of an accumulator."""


@dataclass(frozen=True)
class OwnCall:
    """A call of a custom combiner's code in a query. The engine has a function with the call's name."""

    part: OwnPart
    use: OwnUse

    @property
    def name(self) -> str:
        """The function's name. It is the same for equal combiners, and has a meaning only in this process."""
        return f"tailrace_own_{_number(self.part)}_{self.use.value}"

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the function's values: the value, and the reason for a failure if the code may fail."""
        return ("value", "failed") if self.part.fails and self.use is not OwnUse.ZERO else ("value",)

    def __call__(self, *terms: Term) -> tuple[Term, ...]:
        """Call the combiner's code for one accumulator, with the arguments that the function has."""
        o, part = Scalars(), self.part
        match self.use:
            case OwnUse.ZERO:
                return (part.zero(o),)
            case OwnUse.ADD:
                return added(part, terms[0])[: len(self.fields)]
            case OwnUse.MERGE:
                return guarded(part, terms[:2], terms[2:]) if part.fails else (part.merged(o, *terms),)
            case OwnUse.MERGE_ALL:
                return merged_all(part, terms[0])[: len(self.fields)]
        names = ("state", f"state{FAILED}") if part.fails else ("state",)
        named = dict(zip(names, terms, strict=True))
        found: Guarded = part.combiner.answered(named, ("state",), part.combiner.output, part.reads)
        return found[: len(self.fields)]


_NUMBERED: list[OwnPart] = []
_NUMBERING = Lock()


def _number(part: OwnPart) -> int:
    """Return the number of a custom combiner in this process; equal combiners have the same number."""
    with _NUMBERING:
        for number, one in enumerate(_NUMBERED):
            # Options may be equal and yet differ, as 1 and 1.0 do.
            if type(one.combiner) is type(part.combiner) and one == part and repr(one) == repr(part):
                return number
        _NUMBERED.append(part)
        return len(_NUMBERED) - 1


def merged(part: OwnPart, a: Guarded, b: Guarded) -> Guarded:
    """Merge two accumulators of a custom combiner."""
    return guarded(part, a, b) if part.fails else (part.combiner.merge(a[0], b[0]), None)


def merged_all(part: OwnPart, accumulators: Sequence[Guarded]) -> Guarded:
    """Merge the accumulators of one window; the result is the empty accumulator if there are none."""
    if not accumulators:
        return part.combiner.zero(), None
    if part.fails and all(why is None for _, why in accumulators):
        # Nearly always, nothing fails, and no merge needs a guard.
        merge, fit = part.combiner.merge, fitted(part.type)
        with suppress(Exception):
            return balanced_merge.total([state for state, _ in accumulators], lambda a, b: fit(merge(a, b))), None
    return balanced_merge.total(accumulators, partial(merged, part))


def added(part: OwnPart, values: Sequence[Any]) -> Guarded:
    """Return the accumulator of the values of one window's records.

    Raises `RecordError` if the combiner's code fails for one of the values, whose record must then be rejected.
    """
    combiner, fit = part.combiner, fitted(part.type)
    if part.fails and values:
        # Nearly always, nothing fails, and no record has to be called for by itself.
        try:
            states = [fit(combiner.add(combiner.zero(), value)) for value in values]
            return balanced_merge.total(states, lambda a, b: fit(combiner.merge(a, b))), None
        except Exception:
            pass
    return merged_all(part, [(*combiner.lift(_PYTHON, value, part.reads), None)[:2] for value in values])


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
        merged = part.merged(_PYTHON, a[0], b[0])
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
        if isinstance(part, OwnPart) and part.fails:
            pairs = (a[place], a[place + 1]), (b[place], b[place + 1])
            scalar = isinstance(o, Scalars)
            merged += guarded(part, *pairs) if scalar else o.own(OwnCall(part, OwnUse.MERGE), *pairs[0], *pairs[1])
        else:
            merged.append(part.merged(o, a[place], b[place]))
    return tuple(merged)


_PYTHON = Scalars()
"""The algebra in which custom code runs: plain Python."""


def _of_state(state: Any, type: str) -> Guarded:
    try:
        return fitted(type)(state), None
    except _NO_VALUE:
        return None, f"the state is out of {type}"


_NO_VALUE = (ValueError, TypeError, ArithmeticError)
"""The errors that may be raised when a value is converted to another type."""


@cache
def fitted(type: str) -> Callable[[Any], Any]:
    """Return the function that converts a value, or null, to the type of a state or a result (`_of_type`).

    The functions for whole numbers, doubles and strings return what is of the type already without further calls.
    """
    general = partial(_of_type, type=type)
    if type in ("int", "bigint"):
        most = 2**31 if type == "int" else 2**63
        return lambda value: value if value.__class__ is int and -most <= value < most else general(value)
    if type == "double":
        # The addition makes a negative zero positive.
        return lambda value: value + 0.0 if value.__class__ is float else general(value)
    return general


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
    Tests can check the laws with `tailrace.testing.obeys`.
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

    def add_batch(self, state: Any, values: Any) -> Any:
        """Return the accumulator `state` with the values of a `pyarrow` array added; the method is optional.

        The array has the values of some records of one key and window, without nulls. NumPy's functions take such an
        array as it is. The method must return what `add` returns for one value after the other, and raise an error if
        `add` does for one of the values. The result may be a scalar or an array of Arrow or NumPy.
        """
        raise NotImplementedError

    def add_groups(self, values: Any, starts: Any) -> Any:
        """Return the accumulators of many windows at once, as an array or list of states; the method is optional.

        `values` is a `pyarrow` array with the values of all windows, without nulls: first the values of the first
        window, then those of the second, and so on. `starts` is a NumPy array with the places at which the windows'
        values begin, as `numpy.add.reduceat(values, starts)` takes them. Every window has at least one value. Each
        state must be the one that `add` returns for the window's values one after the other.
        """
        raise NotImplementedError

    @property
    def by_groups(self) -> bool:
        """Whether the combiner implements `add_groups`."""
        return type(self).add_groups is not OwnCombiner.add_groups

    @property
    def by_batch(self) -> bool:
        """Whether the combiner implements `add_batch`."""
        return type(self).add_batch is not OwnCombiner.add_batch

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
        state = OwnPart(name, self.state_type(type), Merge.OWN, combiner=self, reads=type, fails=self.fails)
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
        if not isinstance(o, Scalars):
            return self._called(o, parts, type)[0]
        return self.answered(parts, ("state",), self.output, type)[0]

    def leaves(self, type: str | None) -> bool:
        """Return True if the combiner's code may fail; a failure makes the result null."""
        return self.fails

    def why_null(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> Term:
        """Return the reason why an accumulator has no result, or null if the accumulator has a result."""
        if not isinstance(o, Scalars):
            return self._called(o, parts, type)[1]
        return self.answered(parts, ("state",), self.output, type)[1]

    def _called(self, o: Algebra, parts: Mapping[str, Term], type: str | None) -> tuple[Term, ...]:
        own = self.parts(type)
        return o.own(OwnCall(cast("OwnPart", own[0]), OwnUse.OUTPUT), *(parts[part.name] for part in own))

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
