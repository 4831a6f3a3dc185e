"""The base of triggers and the simple ones, which `combinators` composes (Dataflow Model, 2.3 and 3.3).

A trigger is asked once per window and epoch after the bundle has arrived (`Phase.DATA`), and once more after the
watermark has advanced (`Phase.WATERMARK`). It answers whether it is ready; if the pane then fires, `fired` gives the
trigger's next state. Its whole state is a few named slots of numbers and truth values, and its rules are terms of the
algebra, so the same text runs in every execution.

Fresh records are those in no pane yet. Their number, the time since the first of them, and the window's end are kept
with the window (`Moment`); a trigger's slots only remember which of its parts are done. Anything else that a trigger
needs to know of the fresh records is a `Measure`, which is added up beside the accumulators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import product
from typing import NamedTuple, Protocol

from tailrace.model.base.algebra import Algebra, Scalars, Term
from tailrace.model.base.errors import Fault
from tailrace.model.base.names import name_faults
from tailrace.model.base.time import BEGINNING, duration, duration_faults, offset_faults

Slots = Mapping[str, Term]
"""A trigger's state: its slots by name."""


class Phase(Enum):
    """The two moments of an epoch at which a trigger is asked (rule T4)."""

    DATA = "data"
    WATERMARK = "watermark"


class Moment(NamedTuple):
    """The window and the clock as a trigger sees them, as terms of the algebra."""

    phase: Phase
    fresh: Term
    """The number of fresh records: records of the window that are in no pane yet."""
    waiting_since: Term
    """The processing time at which the first fresh record came; null when there is none."""
    end: Term
    """The window's end."""
    watermark: Term
    now: Term
    """The epoch's processing time."""
    before: Term
    """The processing time of the epoch before."""
    measures: Mapping[str, Term] = {}
    """The total of each of the trigger's measures over the fresh records."""
    ahead: Mapping[int, int] = {}
    """The lead over the log's watermark, in microseconds, of the watermark of each percentile that the log declares."""
    signals: Mapping[str, Term] = {}
    """Whether each signal that the trigger waits for came with this epoch."""


class Measure(Protocol):
    """A number of each record that is added up over a window's fresh records."""

    def of(self, o: Algebra, record: Mapping[str, Term], types: Mapping[str, str]) -> Term:
        """Return what one record adds, a bigint; `record` has its columns' values, `types` their types."""


class Ready(NamedTuple):
    """A trigger's answer: whether it fires, and whether it does so because the watermark passed the window."""

    fires: Term
    on_time: Term


class Trigger:
    """The base of every trigger: no slots, no measures, never done."""

    def slots(self) -> dict[str, bool | int]:
        """Name the slots, each with the value that it starts at."""
        return {}

    def measures(self) -> dict[str, Measure]:
        """Name the measures of the fresh records that the trigger needs besides their number."""
        return {}

    def signals(self) -> frozenset[str]:
        """Name the signals that the trigger waits for."""
        return frozenset()

    def periods(self) -> frozenset[tuple[int, int]]:
        """List the periods of processing time at whose ends it may fire, with their offsets, in microseconds."""
        return frozenset()

    def delays(self) -> frozenset[int]:
        """List the delays of processing time after a first fresh record at which it may fire, in microseconds."""
        return frozenset()

    def arrived(self, o: Algebra, slots: Slots, measures: Mapping[str, Term]) -> dict[str, Term]:
        """Return the slots after a bundle whose records have these measures; `ready` is asked after that."""
        return dict(slots)

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        """Tell whether the trigger fires at this moment."""
        raise NotImplementedError

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        """Return the slots after a pane that the trigger was ready for."""
        return dict(slots)

    def fired_by_others(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        """Return the slots after a pane that fired without this trigger, which is a part of the one that fired."""
        return dict(slots)

    def done(self, o: Algebra, slots: Slots) -> Term:
        """Tell whether the trigger will never fire again. Law: a trigger that is done is not ready."""
        return o.literal(False, "boolean")

    @property
    def finishes(self) -> bool:
        """Whether it can become done."""
        return False

    @property
    def finishes_only_on_time(self) -> bool:
        """Whether it is done no sooner than the watermark passes the window."""
        return not self.finishes

    @property
    def fires_on_nothing(self) -> bool:
        """Whether it can be on time with no fresh record each time that it starts over."""
        return any(ready.fires and ready.on_time for ready in self._asked_on_nothing())

    @property
    def ready_on_nothing(self) -> bool:
        """Whether it can be ready so, on time or early: no pane comes of it alone, but it lets an `AllOf` fire one."""
        return any(ready.fires for ready in self._asked_on_nothing())

    def _asked_on_nothing(self) -> Iterator[Ready]:
        """Ask it at its start, past the watermark and with no fresh record, whatever time goes by or signal comes."""
        o, now = Scalars(), 1 << 60
        for phase, before, came in product(Phase, (now, 0), (False, True)):
            measures, signals = dict.fromkeys(self.measures(), 0), dict.fromkeys(self.signals(), came)
            yield self.ready(o, dict(self.slots()), Moment(phase, 0, None, 0, 0, now, before, measures, {}, signals))

    @property
    def looks_at_watermark(self) -> bool:
        """Whether it can become ready by the watermark alone."""
        return False

    @property
    def counts(self) -> bool:
        """Whether it looks at the number of fresh records; a custom trigger may."""
        return True

    @property
    def stops(self) -> bool:
        """Whether a part of it is ended by a stop that looks at records in panes, too (rule M6)."""
        return False

    @property
    def fires_at_once(self) -> bool:
        """Whether it fires in every epoch that brings a record, so that nothing is ever left fresh."""
        return False

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the trigger and its parts, each with its sub-expression."""
        return ()

    def column_faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        """Find the faults of the columns that the trigger looks at, in a log with columns of these types."""
        return ()

    def percentile_faults(self, path: str, known: Iterable[int]) -> Iterable[Fault]:
        """Find the faults of the percentiles that the trigger looks at, in a log that declares these."""
        return ()


@dataclass(frozen=True)
class Never(Trigger):
    """Fires no pane: a window's records come in its last pane alone, as it closes (rule M3)."""

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        never = o.literal(False, "boolean")
        return Ready(never, never)

    @property
    def counts(self) -> bool:
        return False


class Once(Trigger):
    """A trigger that is done after its first pane."""

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

    @property
    def finishes(self) -> bool:
        return True

    @property
    def finishes_only_on_time(self) -> bool:
        return False


@dataclass(frozen=True)
class AtWatermark(Once):
    """Fires once, when the watermark reaches the window's end (rule M1)."""

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        passed = o.at_least(moment.watermark, moment.end)
        return Ready(passed, passed)

    @property
    def counts(self) -> bool:
        return False

    @property
    def finishes_only_on_time(self) -> bool:
        return True

    @property
    def looks_at_watermark(self) -> bool:
        return True


@dataclass(frozen=True)
class AtPercentile(Once):
    """Fires once, early, when a percentile's watermark reaches the window's end: so many per cent are thought complete.

    The log says how much less this share of the records trails (`Log.percentiles`). The trigger does not wait for
    stragglers (Dataflow Model, 2.3).
    """

    percent: int

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        ahead = o.literal(moment.ahead.get(self.percent, 0), "bigint")
        # The beginning of time is no watermark to count from.
        known = o.at_least(moment.watermark, o.literal(BEGINNING + 1, "bigint"))
        passed = o.every(known, o.at_least(o.add(moment.watermark, ahead, "bigint"), moment.end))
        return Ready(passed, o.literal(False, "boolean"))

    @property
    def counts(self) -> bool:
        return False

    @property
    def looks_at_watermark(self) -> bool:
        return True

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
    """Fires once, when at least `count` records are fresh. It is asked once per bundle (rule M5)."""

    count: int

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        return Ready(o.at_least(moment.fresh, o.literal(self.count, "bigint")), o.literal(False, "boolean"))

    def faults(self, path: str) -> Iterable[Fault]:
        count: object = self.count
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            yield Fault(f"{path}.count", count, "a whole number of at least 1", "write AfterCount(1)")


@dataclass(frozen=True)
class AfterDelay(Once):
    """Fires once, when `delay` of processing time has gone by since the first fresh record."""

    delay: timedelta

    def delays(self) -> frozenset[int]:
        return frozenset({duration(self.delay)})

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        # Where no record waits, the delay counts from now, so that it has not gone by: it is more than zero.
        since = o.choose(o.missing(moment.waiting_since), moment.now, moment.waiting_since)
        due = o.add(since, o.literal(duration(self.delay), "bigint"), "bigint")
        return Ready(o.at_least(moment.now, due), o.literal(False, "boolean"))

    @property
    def counts(self) -> bool:
        return False

    def faults(self, path: str) -> Iterable[Fault]:
        yield from duration_faults(f"{path}.delay", self.delay, "AfterDelay(minutes(1))")


@dataclass(frozen=True)
class AfterSignal(Once):
    """Fires once, in the epoch in which a signal of this name comes: a row in the log's table of signals.

    It is the model's external signal (Dataflow Model, 2.3). A window fires what it has then; a signal that finds
    no fresh record fires nothing, and is not kept for later records.
    """

    name: str

    def signals(self) -> frozenset[str]:
        return frozenset({self.name})

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        never = o.literal(False, "boolean")
        return Ready(moment.signals[self.name] if moment.phase is Phase.DATA else never, never)

    @property
    def counts(self) -> bool:
        return False

    def faults(self, path: str) -> Iterable[Fault]:
        yield from name_faults(f"{path}.name", self.name)


@dataclass(frozen=True)
class Every(Trigger):
    """Fires at every period of processing time, aligned to 1970 plus `offset`, when there are fresh records.

    The period's end must lie after the processing time of the epoch before and no later than that of this epoch. The
    first epoch of all counts a period's end only if its processing time falls on it.
    """

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

    @property
    def counts(self) -> bool:
        return False

    def faults(self, path: str) -> Iterable[Fault]:
        yield from duration_faults(f"{path}.period", self.period, "Every(minutes(15))")
        yield from offset_faults(f"{path}.offset", self.offset)


def is_own(trigger: Trigger) -> bool:
    """Tell whether a trigger is custom; its parts may be custom where it is not."""
    return not type(trigger).__module__.startswith("tailrace.model.")


def slot_type(start: bool | int) -> str:
    """Return the column type of a slot that starts at this value."""
    return "boolean" if isinstance(start, bool) else "bigint"


def slot_types(trigger: Trigger) -> dict[str, str]:
    """Return the column type of each of the trigger's slots.

    >>> slot_types(AfterCount(2))
    {'done': 'boolean'}
    """
    return {name: slot_type(start) for name, start in trigger.slots().items()}
