"""Decide from the end of a window alone whether an epoch without records can change the window.

In an epoch without records, only the windows that the epoch can change are read. The rules of `model.step.transition`
are evaluated in an algebra of partial knowledge. A term of this algebra is a truth value, a range in which a number
lies, or an unknown value. For an unknown value, the algebra only knows whether the value may differ between epochs. The
end of a window is known only as a range that begins at a given instant. All other columns of the window's row are
unknown values that stay the same as long as no record arrives for the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from math import inf
from typing import Any

from tailrace.model.base.algebra import Algebra, OwnCode, Term
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.transition import Times, Transition


class Outlook(Enum):
    """The effect that epochs without records have on a window whose end is after the watermarks of these epochs."""

    NOTHING = "nothing"
    """Epochs without records never change the window."""

    SAME = "same"
    """The effect of an epoch depends only on the window's state.

    If one epoch without records leaves the window unchanged, all later epochs without records leave it unchanged, too.
    """

    ANY = "any"
    """The effect depends on the epoch. For example, a pane may fire because processing time has advanced."""


def outlook(pipeline: Pipeline) -> Outlook:
    """Return what an epoch without records does to a window that the watermark has not reached yet.

    The watermarks of the log's percentiles (`Log.percentiles`), which are ahead of the log's watermark, have not
    reached the window either.
    """
    before = Range(-inf, -1 - _farthest(pipeline), moves=True, relative=True)
    signals = dict.fromkeys(pipeline.when.signals(), _MOVES)
    found = _changes(pipeline, Range(0, inf, relative=True), Times(before, before, _MOVES, _MOVES, signals))
    if found is False:
        return Outlook.NOTHING
    return Outlook.SAME if found is True or not found.moves else Outlook.ANY


def passed_before(pipeline: Pipeline, watermark: int) -> int:
    """Return the earliest possible end of a window that ends after `watermark` and after the watermarks of all
    percentiles.

    The watermarks of percentiles are ahead of the log's watermark (`Log.percentiles`). All instants are in
    microseconds.
    """
    return watermark + _farthest(pipeline) + 1


def stays(pipeline: Pipeline, times: Times) -> bool:
    """Return True if this epoch certainly changes no window that ends after the watermark and has no new records.

    `times` is the epoch's clock, whose times are numbers of microseconds.
    """
    before, after, then, now = (
        Range(at, at, moves=True) for at in (times.watermark_before, times.watermark, times.before, times.now)
    )
    end = Range(passed_before(pipeline, times.watermark), inf)
    return _changes(pipeline, end, Times(before, after, then, now, times.signals)) is False


def _farthest(pipeline: Pipeline) -> int:
    return max((0, *pipeline.log.percentiles_ahead.values()))


def _changes(pipeline: Pipeline, end: Range, times: Times) -> Any:
    rules = Transition(pipeline, Known())
    return rules.changes_without_records(dict.fromkeys(rules.columns(), _STAYS), end, times)


@dataclass(frozen=True)
class Range:
    """A number that lies between two bounds, both included. If `moves` is true, the number may differ between epochs.

    If `relative` is true, the number is an instant that is not measured from 1970, but from the first instant after the
    watermarks of the epoch.
    """

    low: float
    high: float
    moves: bool = False
    relative: bool = False


@dataclass(frozen=True)
class Unknown:
    """A value that is unknown, except for one fact: `moves` is true if the value may differ between epochs."""

    moves: bool


_STAYS, _MOVES = Unknown(False), Unknown(True)


class Known(Algebra):
    """The algebra that evaluates conditions whose inputs are known only in part.

    A term is a truth value, a `Range` of possible values, or `Unknown`. The attribute `moves` is true if the value may
    differ between epochs. A number from 0 to 59 is never at least 60, but 60 or more may or may not be at least 70:

    >>> o = Known()
    >>> end = Range(60, inf)
    >>> o.at_least(Range(0, 59, moves=True), end), o.at_least(end, o.literal(70, "bigint"))
    (False, Unknown(moves=False))
    >>> o.at_least(Range(0, inf, relative=True), o.literal(-70, "bigint"))
    Unknown(moves=False)
    >>> o.every(False, Unknown(True)), o.every(True, Unknown(True)), o.some(False, Unknown(False))
    (False, Unknown(moves=True), Unknown(moves=False))
    """

    def literal(self, value: bool | int | str | Decimal | None, type: str) -> Term:
        if isinstance(value, bool):
            return value
        return Range(value, value) if isinstance(value, int) else _STAYS

    def add(self, a: Term, b: Term, type: str) -> Term:
        if not _ranges(a, b) or (a.relative and b.relative):
            return _of(a, b)
        return Range(a.low + b.low, a.high + b.high, _moves(a, b), a.relative or b.relative)

    def subtract(self, a: Term, b: Term, type: str) -> Term:
        if not _ranges(a, b) or (b.relative and not a.relative):
            return _of(a, b)
        return Range(a.low - b.high, a.high - b.low, _moves(a, b), a.relative and not b.relative)

    def at_least(self, a: Term, b: Term) -> Term:
        if _alike(a, b) and (a.low >= b.high or a.high < b.low):
            return a.low >= b.high
        return _of(a, b)

    def equal(self, a: Term, b: Term) -> Term:
        apart = _alike(a, b) and (a.high < b.low or b.high < a.low)
        return False if apart else _of(a, b)

    def every(self, *terms: Term) -> Term:
        if any(term is False for term in terms):
            return False
        open_ = [term for term in terms if term is not True]
        return _of(*open_) if open_ else True

    def some(self, *terms: Term) -> Term:
        return self.no(self.every(*map(self.no, terms)))

    def no(self, term: Term) -> Term:
        return not term if isinstance(term, bool) else term

    def choose(self, condition: Term, then: Term, otherwise: Term) -> Term:
        if isinstance(condition, bool):
            return then if condition else otherwise
        return then if then == otherwise else _of(condition, then, otherwise)

    def missing(self, term: Term) -> Term:
        return False if isinstance(term, Range | bool) else _of(term)

    def given(self, term: Term, holds: Callable[[Term], Term]) -> Term:
        return self.every(self.no(self.missing(term)), holds(term))

    def least(self, a: Term, b: Term, type: str | None = None) -> Term:
        if _ranges(a, b) and a.relative and not b.relative and b.low == END_OF_TIME:
            # `a` is an instant after the watermarks, and `b` is the end of time, after which no window ends. So `a` is
            # the minimum for every window that ends after the watermarks.
            return a
        if not _alike(a, b):
            return _of(a, b)
        return Range(min(a.low, b.low), min(a.high, b.high), _moves(a, b), a.relative)

    def greatest(self, a: Term, b: Term, type: str | None = None) -> Term:
        if not _alike(a, b):
            return _of(a, b)
        return Range(max(a.low, b.low), max(a.high, b.high), _moves(a, b), a.relative)

    def periods(self, at: Term, period: int, offset: int) -> Term:
        if not _ranges(at) or at.relative or at.low == -inf or at.high == inf:
            return _of(at)
        return Range((at.low - offset) // period, (at.high - offset) // period, at.moves)

    def _unknown(self, *terms: Any, **options: Any) -> Any:
        return _of(*terms)

    # For the results of these operations, the algebra tracks only whether a result may differ between epochs.
    multiply = calculated = floored = converted = ratio = micros = wide = real = remainder = quotient = _unknown
    root = spread_of_limbs = unsigned_zeros = inside = _unknown
    joined = real_of = real_of_limbs = narrow = beyond = centred = stamped = unstamped = _unknown
    size = text = listed = packed = each_field = field = length = ranked = end = _unknown
    no_values = alone = gathered = united = largest = highest = has = _unknown
    once = counted = opposite = distinct = spread = _unknown

    def own(self, code: OwnCode, *terms: Term) -> tuple[Term, ...]:
        return tuple(_of(*terms) for _ in code.fields)

    def limbs(self, a: Term) -> tuple[Term, ...]:
        return (_of(a),) * 7

    def square_limbs(self, a: Term) -> tuple[Term, ...]:
        return (_of(a),) * 7

    def levelled(self, high: Term, low: Term, unit: int, type: str) -> tuple[Term, Term]:
        return _of(high, low), _of(high, low)


def _ranges(*terms: Term) -> bool:
    return all(isinstance(term, Range) for term in terms)


def _alike(a: Term, b: Term) -> bool:
    """Return True if two terms are ranges that can be compared: either both are relative, or neither is."""
    return _ranges(a, b) and a.relative == b.relative


def _moves(*terms: Term) -> bool:
    return any(isinstance(term, Range | Unknown) and term.moves for term in terms)


def _of(*terms: Term) -> Unknown:
    return Unknown(_moves(*terms))
