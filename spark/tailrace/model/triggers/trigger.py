"""The base class of triggers, and the simple triggers, which `combinators` composes (Dataflow Model, 2.3 and 3.3).

For each window and epoch, a trigger is asked once after the bundle has arrived (`Phase.DATA`), and once more after the
watermark has advanced (`Phase.WATERMARK`). The trigger answers whether it is ready. If the pane then fires, `fired`
returns the trigger's next state. The whole state is a few named slots of numbers and truth values, and the rules are
terms of the algebra, so all executions use the same code.

Fresh records are records that are not yet in any pane. Their number, the time since the first fresh record, and the end
of the window are kept with the window (`Moment`); the slots of a trigger only remember which of its parts are done.
Anything else that a trigger needs to know about the fresh records is a `Measure`, which is summed alongside the
accumulators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import product
from typing import NamedTuple, Protocol

from tailrace.model.base.algebra import Algebra, Scalars, Term
from tailrace.model.base.errors import Fault, whole_faults
from tailrace.model.base.names import name_faults
from tailrace.model.base.time import BEGINNING, duration, duration_faults, offset_faults

Slots = Mapping[str, Term]
"""A trigger's state: the value of each slot, by name."""


class Phase(Enum):
    """The two moments of an epoch at which a trigger is asked (rule T4)."""

    DATA = "data"
    WATERMARK = "watermark"


class Moment(NamedTuple):
    """The window and the clock as a trigger sees them. Values that vary are terms of the algebra."""

    phase: Phase
    fresh: Term
    """The number of fresh records, that is, records of the window that are not yet in any pane."""
    waiting_since: Term
    """The processing time at which the first fresh record arrived; null if there is no fresh record."""
    end: Term
    """The window's end."""
    watermark: Term
    now: Term
    """The epoch's processing time."""
    before: Term
    """The processing time of the preceding epoch."""
    measures: Mapping[str, Term] = {}
    """The total of each of the trigger's measures over the fresh records."""
    ahead: Mapping[int, int] = {}
    """The lead over the log's watermark, in microseconds, of the watermark of each percentile that the log declares."""
    signals: Mapping[str, Term] = {}
    """Whether each signal that the trigger waits for arrived with this epoch."""


class Measure(Protocol):
    """A number that is computed from each record and summed over a window's fresh records."""

    def of(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        """Return the bigint that one record adds; `record` has the values of the columns, and `types` their types."""


class Ready(NamedTuple):
    """A trigger's answer: whether it fires, and whether it does so because the watermark passed the window."""

    fires: Term
    on_time: Term


class Trigger:
    """The base class of all triggers: no slots, no measures, never done."""

    def slots(self) -> dict[str, bool | int]:
        """Return the names of the slots, each with its initial value."""
        return {}

    def measures(self) -> dict[str, Measure]:
        """Return the measures of the fresh records that the trigger needs in addition to their number, by name."""
        return {}

    def signals(self) -> frozenset[str]:
        """Return the names of the signals that the trigger waits for."""
        return frozenset()

    def periods(self) -> frozenset[tuple[int, int]]:
        """Return the periods of processing time at whose ends the trigger may fire, with offsets, in microseconds."""
        return frozenset()

    def delays(self) -> frozenset[int]:
        """Return the delays of processing time after which the trigger may fire, in microseconds.

        A delay is counted from the arrival of the first fresh record.
        """
        return frozenset()

    def arrived(self, o: Algebra, slots: Slots, measures: Mapping[str, Term]) -> dict[str, Term]:
        """Return the slots after a bundle whose records have these measures. `ready` is called after this method."""
        return dict(slots)

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        """Return whether the trigger fires at this moment."""
        raise NotImplementedError

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        """Return the slots after a pane for which the trigger was ready."""
        return dict(slots)

    def fired_by_others(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        """Return the slots after a pane that the enclosing trigger fired and for which this part was not ready."""
        return dict(slots)

    def done(self, o: Algebra, slots: Slots) -> Term:
        """Return whether the trigger will never fire again. Law: a trigger that is done is not ready."""
        return o.literal(False, "boolean")

    @property
    def finishes(self) -> bool:
        """Whether the trigger can become done."""
        return False

    @property
    def finishes_only_on_time(self) -> bool:
        """Whether the trigger becomes done only when the watermark has passed the window, not earlier."""
        return not self.finishes

    @property
    def fires_on_nothing(self) -> bool:
        """Whether the trigger can fire on time without fresh records each time that it starts over."""
        return any(ready.fires and ready.on_time for ready in self._asked_on_nothing())

    @property
    def ready_on_nothing(self) -> bool:
        """Whether the trigger can be ready without fresh records, on time or early.

        Early readiness alone fires no pane without fresh records, but it can enable an `AllOf` to fire.
        """
        return any(ready.fires for ready in self._asked_on_nothing())

    def _asked_on_nothing(self) -> Iterator[Ready]:
        """Yield the trigger's answers in its initial state, past the watermark and without fresh records.

        There is an answer for each combination of passing time and arriving signals.
        """
        o, now = Scalars(), 1 << 60
        for phase, before, came in product(Phase, (now, 0), (False, True)):
            measures, signals = dict.fromkeys(self.measures(), 0), dict.fromkeys(self.signals(), came)
            yield self.ready(o, dict(self.slots()), Moment(phase, 0, None, 0, 0, now, before, measures, {}, signals))

    @property
    def looks_at_watermark(self) -> bool:
        """Whether the watermark alone can make the trigger ready."""
        return False

    @property
    def counts(self) -> bool:
        """Whether the trigger depends on the number of fresh records; a custom trigger may."""
        return True

    @property
    def stops(self) -> bool:
        """Whether the trigger contains a stop that also counts records that are already in panes (rule M6)."""
        return False

    @property
    def fires_at_once(self) -> bool:
        """Whether the trigger fires in every epoch that has a record, so that no record ever stays fresh."""
        return False

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the trigger and its parts, each with the path of the faulty sub-expression."""
        return ()

    def column_faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        """Find the faults of the columns that the trigger uses; `types` are the column types of the log."""
        return ()

    def percentile_faults(self, path: str, known: Iterable[int]) -> Iterable[Fault]:
        """Find the faults of the percentiles that the trigger uses; `known` are the percentiles that the log has."""
        return ()


@dataclass(frozen=True)
class Never(Trigger):
    """A trigger that never fires: a window outputs all records in its last pane, as the window closes (rule M3)."""

    counts = False

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        never = o.literal(False, "boolean")
        return Ready(never, never)


class Once(Trigger):
    """A trigger that is done after its first pane."""

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
    """A trigger that fires once, early, when a percentile's watermark reaches the end of the window.

    By then, about `percent` per cent of the window's records are expected to have arrived.

    The log declares a smaller disorder for this share of its records (`Log.percentiles`). The trigger does not wait for
    stragglers (Dataflow Model, 2.3).
    """

    counts = False
    looks_at_watermark = True

    percent: int

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        ahead = o.literal(moment.ahead.get(self.percent, 0), "bigint")
        # A watermark at the beginning of time means that nothing is known yet, so no lead is added to it.
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
    """A trigger that fires once, when at least `count` records are fresh.

    The trigger is asked once per bundle (rule M5).
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
        # If no record waits, the delay counts from now. The delay is greater than zero, so it has not yet passed.
        since = o.choose(o.missing(moment.waiting_since), moment.now, moment.waiting_since)
        due = o.add(since, o.literal(duration(self.delay), "bigint"), "bigint")
        return Ready(o.at_least(moment.now, due), o.literal(False, "boolean"))

    def faults(self, path: str) -> Iterable[Fault]:
        return duration_faults(f"{path}.delay", self.delay, "AfterDelay(minutes(1))")


@dataclass(frozen=True)
class AfterSignal(Once):
    """A trigger that fires once, in the epoch in which a signal with this name arrives.

    A signal is a row in the log's table of signals.

    The signal is the model's external signal (Dataflow Model, 2.3). When a signal arrives, a window fires a pane with
    the records that it has at that time. A signal that finds no fresh record fires nothing, and is not kept for later
    records.
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
    """A trigger that fires at the end of each period of processing time if there are fresh records.

    Periods are aligned to 1970 plus `offset`.

    The end of the period must be after the processing time of the preceding epoch, and not after the processing time of
    this epoch. In the very first epoch, a period's end counts only if it equals the epoch's processing time.
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
    """Return True if the trigger itself is custom code. Its parts may be custom even if the trigger is not."""
    return not type(trigger).__module__.startswith("tailrace.model.")


def slot_type(start: bool | int) -> str:
    """Return the column type of a slot with this initial value."""
    return "boolean" if isinstance(start, bool) else "bigint"


def slot_types(trigger: Trigger) -> dict[str, str]:
    """Return the column type of each slot of the trigger.

    >>> slot_types(AfterCount(2))
    {'done': 'boolean'}
    """
    return {name: slot_type(start) for name, start in trigger.slots().items()}
