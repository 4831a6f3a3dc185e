"""The base class of triggers, and the simple triggers, from which `combinators` builds composite triggers.

In each epoch, a window's trigger is evaluated twice: after the bundle has arrived (`Phase.DATA`), and after the
watermark has advanced (`Phase.WATERMARK`). The method `ready` returns whether the trigger fires (Dataflow Model, 2.3
and 3.3). If a pane then fires, the method `fired` returns the trigger's next state. The state of a trigger consists of
a few named slots, which are numbers or truth values. A trigger's rules are written as terms of an algebra (`Algebra`),
so all executions use the same code.

Fresh records are records that are not yet in any pane. The window's state, not the trigger, stores the number of fresh
records and the time at which the first fresh record arrived (`Moment`). So most triggers only store in their slots
which of their parts are done. If a trigger needs other facts about the fresh records, it declares a `Measure`, which is
summed over the fresh records in the same way as the accumulators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import product
from typing import Generic, NamedTuple, Protocol, TypeVar

from tailrace.model.base.algebra import Algebra, Scalars, Term
from tailrace.model.base.errors import Fault, whole_faults
from tailrace.model.base.names import name_faults
from tailrace.model.base.time import BEGINNING, duration, duration_faults, offset_faults

T = TypeVar("T")

Slots = Mapping[str, Term]
"""The state of a trigger: a mapping from the name of each slot to its value."""


class Phase(Enum):
    """The two phases of an epoch; in each phase, the trigger of a window is evaluated (rule T4)."""

    DATA = "data"
    WATERMARK = "watermark"


class Moment(NamedTuple):
    """The facts that a trigger receives about its window and about the epoch's clock.

    Facts that differ between windows or between epochs are terms of the algebra: Python values or SQL expressions.
    """

    phase: Phase
    fresh: Term
    """The number of fresh records, that is, records of the window that are not yet in any pane."""
    waiting_since: Term
    """The processing time at which the first fresh record arrived; null if there is no fresh record."""
    end: Term
    """The end of the window, in microseconds."""
    watermark: Term
    now: Term
    """The processing time of the epoch, in microseconds."""
    before: Term
    """The processing time of the preceding epoch, in microseconds."""
    measures: Mapping[str, Term] = {}
    """A dict from the name of each of the trigger's measures to the measure's sum over the fresh records."""
    ahead: Mapping[int, int] = {}
    """A dict from each percentile of the log to the time by which the percentile's watermark is ahead of the log's
    watermark, in microseconds.
    """
    signals: Mapping[str, Term] = {}
    """For each signal that the trigger waits for, by name: whether the signal arrived with this epoch."""


class Measure(Protocol):
    """A number that is computed from each record and summed over the fresh records of a window."""

    def of(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        """Return the bigint that one record adds to the sum.

        `record` maps column names to values, and `types` maps column names to types.
        """


class Ready(NamedTuple):
    """The result of `Trigger.ready`.

    `fires` says whether the trigger fires. `on_time` says whether the trigger fires because the watermark has passed
    the window.
    """

    fires: Term
    on_time: Term


class Trigger:
    """The base class of all triggers. By default, a trigger has no slots and no measures, and is never done."""

    def slots(self) -> dict[str, bool | int]:
        """Return a dict from the name of each slot to the slot's initial value."""
        return {}

    def measures(self) -> dict[str, Measure]:
        """Return the measures that the trigger needs, as a dict from names to measures.

        The trigger receives the number of fresh records in any case, so no measure is needed for it.
        """
        return {}

    def signals(self) -> frozenset[str]:
        """Return the names of the external signals that the trigger waits for."""
        return frozenset()

    def periods(self) -> frozenset[tuple[int, int]]:
        """Return the periods of processing time at whose ends the trigger may fire.

        A period is a pair of a length and an offset, in microseconds.
        """
        return frozenset()

    def delays(self) -> frozenset[int]:
        """Return the delays, in microseconds of processing time, after which the trigger may fire.

        A delay is counted from the arrival of the first fresh record.
        """
        return frozenset()

    def arrived(self, o: Algebra, slots: Slots, measures: Mapping[str, Term]) -> dict[str, Term]:
        """Return the slots after a bundle with these measures has arrived.

        The method `arrived` is called before `ready`.
        """
        return dict(slots)

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        """Return whether the trigger fires at this moment."""
        raise NotImplementedError

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        """Return the slots after a pane for which the trigger was ready."""
        return dict(slots)

    def fired_by_others(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        """Return the slots after a pane that other parts of the enclosing trigger fired, while this part was not
        ready.
        """
        return dict(slots)

    def done(self, o: Algebra, slots: Slots) -> Term:
        """Return whether the trigger will never fire again. Law: a trigger that is done is never ready."""
        return o.literal(False, "boolean")

    @property
    def finishes(self) -> bool:
        """Whether the trigger can finish, so that it never fires again."""
        return False

    @property
    def finishes_only_on_time(self) -> bool:
        """Whether the trigger can finish only after the watermark has passed the window, not earlier."""
        return not self.finishes

    @property
    def fires_on_nothing(self) -> bool:
        """Whether the trigger, in its initial state, can fire without fresh records because the watermark has passed
        the window.

        Within a `Repeat`, such a trigger can fire each time that it starts over.
        """
        return any(ready.fires and ready.on_time for ready in self._asked_on_nothing())

    @property
    def ready_on_nothing(self) -> bool:
        """Whether the trigger can be ready without fresh records, either before or after the watermark has passed the
        window.

        A trigger that is ready early, without fresh records, fires no pane. However, an `AllOf` may be waiting for this
        trigger.
        """
        return any(ready.fires for ready in self._asked_on_nothing())

    def _asked_on_nothing(self) -> Iterator[Ready]:
        """Yield results of `ready` for the trigger's initial state, in a window that has ended and has no fresh
        records.

        There is one result for each combination of three facts: the phase, whether processing time has advanced, and
        whether the signals have arrived.
        """
        o, now = Scalars(), 1 << 60
        for phase, before, came in product(Phase, (now, 0), (False, True)):
            measures, signals = dict.fromkeys(self.measures(), 0), dict.fromkeys(self.signals(), came)
            yield self.ready(o, dict(self.slots()), Moment(phase, 0, None, 0, 0, now, before, measures, {}, signals))

    @property
    def looks_at_watermark(self) -> bool:
        """Whether an advance of the watermark alone, without a new record, can make the trigger ready."""
        return False

    @property
    def counts(self) -> bool:
        """Whether the trigger depends on the number of fresh records.

        The property is true for a custom trigger, unless the trigger overrides it.
        """
        return True

    @property
    def stops(self) -> bool:
        """Whether the trigger contains an `Until` whose `stop` also counts records that are already in panes (rule
        M6).
        """
        return False

    @property
    def fires_at_once(self) -> bool:
        """Whether the trigger fires in every epoch that has a record for the window, so that no record stays fresh."""
        return False

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the trigger and its parts; each fault has the path of the faulty part."""
        return ()

    def column_faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        """Find the faults in the trigger's use of columns; `types` maps the names of the log's columns to their
        types.
        """
        return ()

    def percentile_faults(self, path: str, known: Iterable[int]) -> Iterable[Fault]:
        """Find the faults in the percentiles that the trigger refers to; `known` are the percentiles that the log
        declares.
        """
        return ()


class PositionalParts(Generic[T]):
    """The base class of triggers whose parts are positional arguments.

    Two such triggers are equal if they have the same type and the same parts.
    """

    def __init__(self, *parts: T) -> None:
        self.parts = parts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.parts))})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, PositionalParts) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash((type(self), self.parts))


@dataclass(frozen=True)
class Never(Trigger):
    """A trigger that never fires.

    All records of a window are output in its last pane, when the window closes (rule M3).
    """

    counts = False

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        never = o.literal(False, "boolean")
        return Ready(never, never)


class Once(Trigger):
    """The base class of triggers that are done after their first pane."""

    finishes = True
    finishes_only_on_time = False

    def slots(self) -> dict[str, bool | int]:
        return {"done": False}

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        raise NotImplementedError

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        holds, waiting = self._holds(o, moment), o.no(slots["done"])
        return Ready(o.every(waiting, holds.fires), o.every(waiting, holds.on_time))

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        return {"done": o.some(slots["done"], self._holds(o, moment).fires)}

    def done(self, o: Algebra, slots: Slots) -> Term:
        return slots["done"]


@dataclass(frozen=True)
class AtWatermark(Once):
    """A trigger that fires once, when the watermark reaches the end of the window (rule M1)."""

    counts = False
    finishes_only_on_time = True
    looks_at_watermark = True

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        passed = o.at_least(moment.watermark, moment.end)
        return Ready(passed, passed)


@dataclass(frozen=True)
class AtPercentile(Once):
    """A trigger that fires once, when the watermark of a percentile reaches the end of the window.

    The watermark of a percentile is ahead of the log's watermark. When the trigger fires, about `percent` per cent of
    the window's records are expected to have arrived.

    In `Log.percentiles`, the log declares a smaller disorder for `percent` per cent of its records. The trigger does
    not wait for the remaining records (Dataflow Model, 2.3).
    """

    counts = False
    looks_at_watermark = True

    percent: int

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        ahead = o.literal(moment.ahead.get(self.percent, 0), "bigint")
        # A watermark at the beginning of time means that no watermark is known yet. In this case, the time by which the
        # percentile is ahead is not added to the watermark.
        known = o.at_least(moment.watermark, o.literal(BEGINNING + 1, "bigint"))
        passed = o.every(known, o.at_least(o.add(moment.watermark, ahead, "bigint"), moment.end))
        return Ready(passed, o.literal(False, "boolean"))

    def faults(self, path: str) -> Iterable[Fault]:
        percent: object = self.percent
        if not isinstance(percent, int) or isinstance(percent, bool) or not 0 < percent < 100:
            yield Fault(f"{path}.percent", percent, "a whole number between 1 and 99", "write AtPercentile(90)")

    def percentile_faults(self, path: str, known: Iterable[int]) -> Iterable[Fault]:
        if self.percent not in known:
            declared = ", ".join(map(str, known)) or "there is none"
            remedy = f"declare percentiles={{{self.percent!r}: minutes(1)}} in the log"
            yield Fault(f"{path}.percent", self.percent, f"a percentile of the log ({declared})", remedy)


@dataclass(frozen=True)
class AfterCount(Once):
    """A trigger that fires once, when the window has at least `count` fresh records.

    The trigger is evaluated once per bundle (rule M5).
    """

    count: int

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        return Ready(o.at_least(moment.fresh, o.literal(self.count, "bigint")), o.literal(False, "boolean"))

    def faults(self, path: str) -> Iterable[Fault]:
        return whole_faults(f"{path}.count", self.count, "write AfterCount(1)")


@dataclass(frozen=True)
class AfterDelay(Once):
    """A trigger that fires once, when `delay` of processing time has passed since the first fresh record arrived."""

    counts = False

    delay: timedelta

    def delays(self) -> frozenset[int]:
        return frozenset({duration(self.delay)})

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        # If there is no fresh record, the delay is counted from now. Every delay is greater than zero, so the trigger
        # does not fire.
        since = o.choose(o.missing(moment.waiting_since), moment.now, moment.waiting_since)
        due = o.add(since, o.literal(duration(self.delay), "bigint"), "bigint")
        return Ready(o.at_least(moment.now, due), o.literal(False, "boolean"))

    def faults(self, path: str) -> Iterable[Fault]:
        return duration_faults(f"{path}.delay", self.delay, "AfterDelay(minutes(1))")


@dataclass(frozen=True)
class AfterSignal(Once):
    """A trigger that fires once, in the epoch in which a signal with the name `name` arrives.

    A signal is a row that a user adds to the log's table of signals.

    A signal corresponds to an external signal in the paper (Dataflow Model, 2.3). When a signal arrives, a window fires
    a pane with the records that have arrived for the window by then. If a window has no fresh records when the signal
    arrives, the window fires no pane, and the signal has no effect on records that arrive later.
    """

    counts = False

    name: str

    def signals(self) -> frozenset[str]:
        return frozenset({self.name})

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        never = o.literal(False, "boolean")
        return Ready(moment.signals[self.name] if moment.phase is Phase.DATA else never, never)

    def faults(self, path: str) -> Iterable[Fault]:
        return name_faults(f"{path}.name", self.name)


@dataclass(frozen=True)
class Every(Trigger):
    """A trigger that fires at the end of each period of processing time, if the window has fresh records.

    The first period starts at the beginning of 1970 (UTC) plus `offset`.

    A period ends in an epoch if its end is after the processing time of the preceding epoch, but not after the
    processing time of this epoch. In the very first epoch, a period's end counts only if it equals the epoch's
    processing time.
    """

    counts = False

    period: timedelta
    offset: timedelta = timedelta(0)

    def periods(self) -> frozenset[tuple[int, int]]:
        return frozenset({(duration(self.period), duration(self.offset))})

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        never = o.literal(False, "boolean")
        if moment.phase is not Phase.DATA:
            return Ready(never, never)
        period, offset = duration(self.period), duration(self.offset)
        now, before = o.periods(moment.now, period, offset), o.periods(moment.before, period, offset)
        return Ready(o.no(o.at_least(before, now)), never)

    def faults(self, path: str) -> Iterable[Fault]:
        yield from duration_faults(f"{path}.period", self.period, "Every(minutes(15))")
        yield from offset_faults(f"{path}.offset", self.offset)


def is_own(trigger: Trigger) -> bool:
    """Return True if the trigger itself is custom code; a built-in trigger may still have parts that are custom
    code.
    """
    return not type(trigger).__module__.startswith("tailrace.model.")


def slot_type(start: bool | int) -> str:
    """Return the column type of a slot, given the slot's initial value."""
    return "boolean" if isinstance(start, bool) else "bigint"


def slot_types(trigger: Trigger) -> dict[str, str]:
    """Return a dict from the name of each slot of the trigger to the slot's column type.

    >>> slot_types(AfterCount(2))
    {'done': 'boolean'}
    """
    return {name: slot_type(start) for name, start in trigger.slots().items()}
