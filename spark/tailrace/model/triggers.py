"""When in processing time a window's pane is emitted: the trigger algebra (Dataflow Model, 2.3 and 3.3).

A trigger is asked once per window and epoch after the bundle has arrived (`Phase.DATA`), and once more after the
watermark has advanced (`Phase.WATERMARK`). It answers whether it is ready; if the pane then fires, `fired` gives the
trigger's next state. Its whole state is a few named slots of numbers and truth values, and its rules are terms of the
algebra, so the same text runs in every execution.

Fresh records are those in no pane yet. They, the time since the first of them, and the window itself are the
window's own (`Moment`); a trigger's slots only remember which of its parts are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import NamedTuple

from tailrace.model.algebra import Algebra, Term
from tailrace.model.errors import Fault
from tailrace.model.time import duration

Slots = Mapping[str, Term]
"""A trigger's state: its slots by name."""


class Phase(Enum):
    """The two moments of an epoch at which a trigger is asked (rule T4)."""

    DATA = "data"
    WATERMARK = "watermark"


class Moment(NamedTuple):
    """What a trigger sees of its window and the clock, as terms of the algebra."""

    phase: Phase
    fresh: Term
    """How many records of the window are in no pane yet."""
    waiting_since: Term
    """The processing time at which the first of them came; null when there is none."""
    end: Term
    """The window's end."""
    watermark: Term
    now: Term
    """The epoch's processing time."""
    before: Term
    """The processing time of the epoch before."""


class Ready(NamedTuple):
    """A trigger's answer: whether it fires, and whether it does so because the watermark passed the window."""

    fires: Term
    on_time: Term


class Trigger:
    """The base of every trigger: no slots, never done."""

    def slots(self) -> dict[str, bool | int]:
        """The slots' names and what they start at."""
        return {}

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        """Whether it fires at this moment."""
        raise NotImplementedError

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        """The slots after a pane that it was ready for."""
        return dict(slots)

    def done(self, o: Algebra, slots: Slots) -> Term:
        """Whether it will never fire again."""
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
        """Whether it can be ready again and again with no fresh record, once it has started anew."""
        return False

    def faults(self, path: str) -> Iterable[Fault]:
        """What is wrong with it or its parts, each with the sub-expression at fault."""
        return ()


class _Once(Trigger):
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
class AtWatermark(_Once):
    """Once, when the watermark reaches the window's end (rule M1)."""

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        passed = o.at_least(moment.watermark, moment.end)
        return Ready(passed, passed)

    @property
    def finishes_only_on_time(self) -> bool:
        return True

    @property
    def fires_on_nothing(self) -> bool:
        return True


@dataclass(frozen=True)
class AfterCount(_Once):
    """Once, when at least `count` records are fresh. It is asked once per bundle (rule M5)."""

    count: int

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        return Ready(
            o.at_least(moment.fresh, o.literal(self.count, "bigint")), o.literal(False, "boolean")
        )

    def faults(self, path: str) -> Iterable[Fault]:
        if not isinstance(self.count, int) or self.count < 1:
            yield Fault(f"{path}.count", self.count, "a whole number of at least 1", "write AfterCount(1)")


@dataclass(frozen=True)
class AfterDelay(_Once):
    """Once, when `delay` of processing time has gone by since the first fresh record."""

    delay: timedelta

    def _holds(self, o: Algebra, moment: Moment) -> Ready:
        # Nothing waits: measured from now, no delay has gone by, as long as the delay is more than zero.
        since = o.choose(o.missing(moment.waiting_since), moment.now, moment.waiting_since)
        due = o.add(since, o.literal(duration(self.delay), "bigint"), "bigint")
        return Ready(o.at_least(moment.now, due), o.literal(False, "boolean"))

    def faults(self, path: str) -> Iterable[Fault]:
        yield from _positive(path, "delay", self.delay, "AfterDelay(minutes(1))")


@dataclass(frozen=True)
class Every(Trigger):
    """At every period of processing time, aligned to 1970 plus `offset`, when there are fresh records.

    The period's end must lie after the epoch before and no later than this one. The first epoch of all counts a
    period's end only if it falls on it.
    """

    period: timedelta
    offset: timedelta = timedelta(0)

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        never = o.literal(False, "boolean")
        if moment.phase is not Phase.DATA:
            return Ready(never, never)
        period, offset = duration(self.period), duration(self.offset)
        now, before = o.periods(moment.now, period, offset), o.periods(moment.before, period, offset)
        return Ready(o.no(o.at_least(before, now)), never)

    def faults(self, path: str) -> Iterable[Fault]:
        yield from _positive(path, "period", self.period, "Every(minutes(15))")


class _Composite(Trigger):
    """A trigger made of others, whose slots are theirs with the part's place before the name."""

    @property
    def _parts(self) -> tuple[Trigger, ...]:
        raise NotImplementedError

    def slots(self) -> dict[str, bool | int]:
        return {
            f"{place}_{name}": start
            for place, part in enumerate(self._parts)
            for name, start in part.slots().items()
        }

    def _split(self, slots: Slots) -> Iterator[tuple[int, Trigger, Slots]]:
        for place, part in enumerate(self._parts):
            yield place, part, {name: slots[f"{place}_{name}"] for name in part.slots()}

    def _part_fired(
        self, o: Algebra, slots: Slots, moment: Moment, only: Mapping[int, Term]
    ) -> dict[str, Term]:
        """The parts' slots, each as after a pane where its condition in `only` holds."""
        after = dict(slots)
        for place, part, own in self._split(slots):
            for name, value in part.fired(o, own, moment).items():
                after[f"{place}_{name}"] = o.choose(only[place], value, own[name])
        return after

    def _ready_parts(self, o: Algebra, slots: Slots, moment: Moment) -> list[Ready]:
        return [part.ready(o, own, moment) for _, part, own in self._split(slots)]

    def _done_parts(self, o: Algebra, slots: Slots) -> list[Term]:
        return [part.done(o, own) for _, part, own in self._split(slots)]

    def faults(self, path: str) -> Iterable[Fault]:
        for place, part in enumerate(self._parts):
            if not isinstance(part, Trigger):
                yield Fault(f"{path}[{place}]", part, "a trigger", "write for example AfterCount(1)")
            else:
                yield from part.faults(f"{path}[{place}]")


class _Many(_Composite):
    """Any number of parts, given one after the other; at least one."""

    def __init__(self, *parts: Trigger) -> None:
        self.parts = parts

    @property
    def _parts(self) -> tuple[Trigger, ...]:
        return self.parts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.parts))})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, _Many) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash((type(self), self.parts))

    def faults(self, path: str) -> Iterable[Fault]:
        if not self.parts:
            yield Fault(path, self, "at least one trigger", f"write {type(self).__name__}(AfterCount(1))")
        yield from super().faults(path)


class AnyOf(_Many):
    """When any part is ready; done when any part that fired is.

    Law: `AnyOf(t)` fires just when `t` does.
    """

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        parts = self._ready_parts(o, slots, moment)
        return Ready(o.some(*(p.fires for p in parts)), o.some(*(p.on_time for p in parts)))

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        ready = self._ready_parts(o, slots, moment)
        return self._part_fired(o, slots, moment, {place: r.fires for place, r in enumerate(ready)})

    def done(self, o: Algebra, slots: Slots) -> Term:
        return o.some(*self._done_parts(o, slots))

    @property
    def finishes(self) -> bool:
        return any(part.finishes for part in self.parts)

    @property
    def finishes_only_on_time(self) -> bool:
        return all(part.finishes_only_on_time for part in self.parts)

    @property
    def fires_on_nothing(self) -> bool:
        return any(part.fires_on_nothing for part in self.parts)


class AllOf(_Many):
    """When every part is ready or done; done when every part is.

    Law: `AllOf(t)` fires just when `t` does.
    """

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        parts, done = self._ready_parts(o, slots, moment), self._done_parts(o, slots)
        met = [o.some(part.fires, end) for part, end in zip(parts, done, strict=True)]
        fires = o.every(o.some(*(part.fires for part in parts)), *met)
        return Ready(fires, o.every(fires, o.some(*(part.on_time for part in parts))))

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        always = o.literal(True, "boolean")
        return self._part_fired(o, slots, moment, {place: always for place in range(len(self.parts))})

    def done(self, o: Algebra, slots: Slots) -> Term:
        return o.every(*self._done_parts(o, slots))

    @property
    def finishes(self) -> bool:
        return all(part.finishes for part in self.parts)

    @property
    def finishes_only_on_time(self) -> bool:
        return not self.finishes or any(part.finishes_only_on_time for part in self.parts)

    @property
    def fires_on_nothing(self) -> bool:
        return bool(self.parts) and all(part.fires_on_nothing for part in self.parts)


class Sequence(_Many):
    """One part after the other: the next is asked once the one before is done; done when the last is."""

    def slots(self) -> dict[str, bool | int]:
        return super().slots() | {"at": 0}

    def _current(self, o: Algebra, slots: Slots) -> list[Term]:
        return [o.equal(slots["at"], o.literal(place, "bigint")) for place in range(len(self.parts))]

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        turns = list(
            zip(self._current(o, slots), self._ready_parts(o, slots, moment), strict=True)
        )
        return Ready(
            o.some(*(o.every(turn, part.fires) for turn, part in turns)),
            o.some(*(o.every(turn, part.on_time) for turn, part in turns)),
        )

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        current = self._current(o, slots)
        after = self._part_fired(o, slots, moment, dict(enumerate(current)))
        done = self._done_parts(o, after)
        moves = o.some(*(o.every(turn, end) for turn, end in zip(current, done, strict=True)))
        step = o.choose(moves, o.literal(1, "bigint"), o.literal(0, "bigint"))
        return after | {"at": o.add(slots["at"], step, "bigint")}

    def done(self, o: Algebra, slots: Slots) -> Term:
        return o.at_least(slots["at"], o.literal(len(self.parts), "bigint"))

    @property
    def finishes(self) -> bool:
        return all(part.finishes for part in self.parts)

    @property
    def finishes_only_on_time(self) -> bool:
        return not self.finishes or any(part.finishes_only_on_time for part in self.parts)

    @property
    def fires_on_nothing(self) -> bool:
        return any(part.fires_on_nothing for part in self.parts)

    def faults(self, path: str) -> Iterable[Fault]:
        yield from super().faults(path)
        for place, part in enumerate(self.parts[:-1]):
            if isinstance(part, Trigger) and not part.finishes:
                yield Fault(
                    f"{path}[{place + 1}]",
                    self.parts[place + 1],
                    "a trigger that gets its turn",
                    f"it can never fire, for {part!r} before it never ends: put an Until around that one",
                )


@dataclass(frozen=True)
class Repeat(_Composite):
    """The part over and over: it starts anew each time it is done. Never done."""

    part: Trigger

    @property
    def _parts(self) -> tuple[Trigger, ...]:
        return (self.part,)

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        return self._ready_parts(o, slots, moment)[0]

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        after = self._part_fired(o, slots, moment, {0: o.literal(True, "boolean")})
        done = self._done_parts(o, after)[0]
        start = self.slots()
        return {
            name: o.choose(done, o.literal(start[name], _slot_type(start[name])), value)
            for name, value in after.items()
        }

    def faults(self, path: str) -> Iterable[Fault]:
        yield from super().faults(path)
        if isinstance(self.part, Trigger) and self.part.fires_on_nothing:
            yield Fault(
                path,
                self,
                "a trigger that waits for records",
                "it would fire in every epoch once the watermark has passed: leave out Repeat, or write "
                "Sequence(AtWatermark(), Repeat(AfterCount(1)))",
            )


@dataclass(frozen=True)
class Until(_Composite):
    """The part until `stop` is ready, which fires once more and ends it; done when either is."""

    part: Trigger
    stop: Trigger

    @property
    def _parts(self) -> tuple[Trigger, ...]:
        return (self.part, self.stop)

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        part, stop = self._ready_parts(o, slots, moment)
        return Ready(o.some(part.fires, stop.fires), o.some(part.on_time, stop.on_time))

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        part, stop = self._ready_parts(o, slots, moment)
        return self._part_fired(o, slots, moment, {0: part.fires, 1: stop.fires})

    def done(self, o: Algebra, slots: Slots) -> Term:
        return o.some(*self._done_parts(o, slots))

    @property
    def finishes(self) -> bool:
        return self.part.finishes or self.stop.finishes

    @property
    def finishes_only_on_time(self) -> bool:
        return self.part.finishes_only_on_time and self.stop.finishes_only_on_time

    @property
    def fires_on_nothing(self) -> bool:
        return self.part.fires_on_nothing or self.stop.fires_on_nothing


def AfterWatermark(early: Trigger | None = None, late: Trigger | None = None) -> Trigger:
    """Early panes until the watermark passes the window, one on time, then late panes (Dataflow Model, 2.3).

    `early` and `late` are repeated by themselves. It is shorthand:

    >>> AfterWatermark() == AtWatermark()
    True
    >>> AfterWatermark(late=AfterCount(1))
    Sequence(AtWatermark(), Repeat(part=AfterCount(count=1)))
    """
    on_time: Trigger = AtWatermark() if early is None else Until(_repeated(early), AtWatermark())
    return on_time if late is None else Sequence(on_time, _repeated(late))


def _repeated(part: Trigger) -> Trigger:
    return Repeat(part) if isinstance(part, Trigger) and part.finishes else part


def _slot_type(start: bool | int) -> str:
    return "boolean" if isinstance(start, bool) else "bigint"


def slot_types(trigger: Trigger) -> dict[str, str]:
    """The column type of each of the trigger's slots.

    >>> slot_types(Repeat(AfterCount(2)))
    {'0_done': 'boolean'}
    """
    return {name: _slot_type(start) for name, start in trigger.slots().items()}


def _positive(path: str, name: str, value: object, example: str) -> Iterable[Fault]:
    if not isinstance(value, timedelta) or value <= timedelta(0):
        yield Fault(f"{path}.{name}", value, "a duration of more than zero", f"write for example {example}")
