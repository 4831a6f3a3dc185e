"""Composite triggers. Triggers decide when in processing time a window's pane fires (Dataflow Model, 2.3 and 3.3).

The modules `trigger` and `punctuation` define the simple triggers, from which the triggers in this module are composed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import Fault
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.triggers.composite import Composite, Many, any_part, every_part
from tailrace.model.triggers.trigger import AfterCount, AtWatermark, Moment, Ready, Slots, Trigger, slot_type


class AnyOf(Many):
    """A trigger that fires when any of its parts is ready, and that is done when any of its parts is done.

    Law: `AnyOf(t)` fires exactly when the trigger `t` fires.
    """

    finishes, finishes_only_on_time = any_part("finishes"), every_part("finishes_only_on_time")

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        parts, going = self.ready_parts(o, slots, moment), o.no(self.done(o, slots))
        fires, on_time = (o.some(*(part[which] for part in parts)) for which in (0, 1))
        return Ready(o.every(going, fires), o.every(going, on_time))

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        ready = self.ready_parts(o, slots, moment)
        return self.part_fired(o, slots, moment, {place: r.fires for place, r in enumerate(ready)})

    def done(self, o: Algebra, slots: Slots) -> Term:
        return o.some(*self.done_parts(o, slots))


class AllOf(Many):
    """A trigger that fires when each of its parts is ready or done, and at least one part is ready.

    An `AllOf` is done when all of its parts are done. Law: `AllOf(t)` fires exactly when the trigger `t` fires.
    """

    finishes = every_part("finishes")

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        parts, done = self.ready_parts(o, slots, moment), self.done_parts(o, slots)
        met = [o.some(part.fires, end) for part, end in zip(parts, done, strict=True)]
        fires = o.every(o.some(*(part.fires for part in parts)), *met)
        return Ready(fires, o.every(fires, o.some(*(part.on_time for part in parts))))

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        always = o.literal(True, "boolean")
        return self.part_fired(o, slots, moment, dict.fromkeys(range(len(self.parts)), always))

    def done(self, o: Algebra, slots: Slots) -> Term:
        return o.every(*self.done_parts(o, slots))

    @property
    def finishes_only_on_time(self) -> bool:
        return not self.finishes or any(part.finishes_only_on_time for part in self.parts)

    @property
    def fires_on_nothing(self) -> bool:
        return self.ready_on_nothing and any(part.fires_on_nothing for part in self.parts)

    @property
    def ready_on_nothing(self) -> bool:
        return bool(self.parts) and all(part.ready_on_nothing for part in self.parts)


class Sequence(Many):
    """A trigger that evaluates one part at a time: the next part gets its turn when the current part is done.

    The sequence is done when its last part is done.
    """

    finishes = every_part("finishes")

    def slots(self) -> dict[str, bool | int]:
        return super().slots() | {"at": 0}

    def arrived(self, o: Algebra, slots: Slots, measures: Mapping[str, Term]) -> dict[str, Term]:
        return self.part_arrived(o, slots, measures, dict(enumerate(self._current(o, slots))))

    def _current(self, o: Algebra, slots: Slots) -> list[Term]:
        return [o.equal(slots["at"], o.literal(place, "bigint")) for place in range(len(self.parts))]

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        turns = list(zip(self._current(o, slots), self.ready_parts(o, slots, moment), strict=True))
        return Ready(
            o.some(*(o.every(turn, part.fires) for turn, part in turns)),
            o.some(*(o.every(turn, part.on_time) for turn, part in turns)),
        )

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        current = self._current(o, slots)
        after = self._in_turn(o, slots, self.part_fired(o, slots, moment, dict(enumerate(current))))
        done = self.done_parts(o, after)
        moves = o.some(*(o.every(turn, end) for turn, end in zip(current, done, strict=True)))
        step = o.choose(moves, o.literal(1, "bigint"), o.literal(0, "bigint"))
        return after | {"at": o.add(slots["at"], step, "bigint")}

    def fired_by_others(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        return self._in_turn(o, slots, super().fired_by_others(o, slots, moment))

    def _in_turn(self, o: Algebra, slots: Slots, after: Slots) -> dict[str, Term]:
        """Return the slots after a pane; only the slots of the current part change."""
        for place, (turn, part) in enumerate(zip(self._current(o, slots), self.parts, strict=True)):
            names = [f"{place}_{name}" for name in part.slots()]
            after = {**after, **{name: o.choose(turn, after[name], slots[name]) for name in names}}
        return dict(after)

    def done(self, o: Algebra, slots: Slots) -> Term:
        return o.at_least(slots["at"], o.literal(len(self.parts), "bigint"))

    @property
    def finishes_only_on_time(self) -> bool:
        return not self.finishes or any(part.finishes_only_on_time for part in self.parts)

    def own_faults(self, path: str) -> Iterable[Fault]:
        for place, part in enumerate(self.parts[:-1]):
            if not part.finishes:
                remedy = f"it can never fire, for {part!r} before it never ends: put an Until around that one"
                yield Fault(f"{path}[{place + 1}]", self.parts[place + 1], "a trigger that gets its turn", remedy)


@dataclass(frozen=True)
class Repeat(Composite):
    """A trigger that fires whenever its part fires, and that is never done.

    Whenever the part is done, the part starts over.
    """

    part: Trigger

    @property
    def of(self) -> tuple[Trigger, ...]:
        return (self.part,)

    @property
    def fires_at_once(self) -> bool:
        return self.part == AfterCount(1) or self.part.fires_at_once

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        return self.ready_parts(o, slots, moment)[0]

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        after = self.part_fired(o, slots, moment, {0: o.literal(True, "boolean")})
        done = self.done_parts(o, after)[0]
        start = self.slots()
        return {
            name: o.choose(done, o.literal(start[name], slot_type(start[name])), value) for name, value in after.items()
        }

    @property
    def places(self) -> tuple[str, ...]:
        return (".part",)

    def own_faults(self, path: str) -> Iterable[Fault]:
        if self.part.finishes and self.part.fires_on_nothing:
            restless = "it would be on time again and again with nothing new"
            remedy = f"{restless}: leave out Repeat, or write Sequence(AtWatermark(), Repeat(AfterCount(1)))"
            yield Fault(path, self, "a trigger that waits for records", remedy)


@dataclass(frozen=True)
class Until(Composite):
    """A trigger that fires whenever `part` or `stop` is ready, and that is done when `part` or `stop` is done.

    So if `stop` is done after its first pane, the `Until` ends when `stop` fires.

    `stop` counts and measures all records since the `Until` started, including records that are already in panes. An
    `Until` within a `Sequence` or `Repeat` starts when it gets its turn; any other `Until` starts with its window (rule
    M6). So the `Until` ends in the epoch of the record that makes `stop` ready, no matter how the records are divided
    into epochs.
    """

    part: Trigger
    stop: Trigger

    finishes, finishes_only_on_time = any_part("finishes"), every_part("finishes_only_on_time")
    fires_on_nothing, ready_on_nothing = any_part("fires_on_nothing"), any_part("ready_on_nothing")

    @property
    def of(self) -> tuple[Trigger, ...]:
        return (self.part, self.stop)

    def slots(self) -> dict[str, bool | int]:
        return super().slots() | self._fired_before

    @cached_property
    def _fired_before(self) -> dict[str, int]:
        """The slots for the records that `stop` counts although they are in panes, as a dict from names to initial
        values.

        The slots store the number of these records, the arrival time of the first record, and the sums of the measures.
        Only the slots that `stop` needs are included.
        """
        own = {"count": 0} if self.stop.counts else {}
        if self.stop.counts or self.stop.delays():
            own["since"] = END_OF_TIME
        return own | {f"total_{name}": 0 for name in self.stop.measures()}

    def _seen_by_stop(self, o: Algebra, slots: Slots, moment: Moment) -> Moment:
        """Return the `Moment` that is passed to `stop`, in which records that are already in panes count as fresh."""
        seen, before = self._seen_by(1, self.stop, moment), self._fired_before
        if "count" in before:
            seen = seen._replace(fresh=o.add(slots["count"], seen.fresh, "bigint"))
        if "since" in before:
            first = self._first(o, slots, moment)
            none = o.at_least(first, o.literal(END_OF_TIME, "bigint"))
            seen = seen._replace(waiting_since=o.choose(none, o.literal(None, "bigint"), first))
        totals = {name: o.add(slots[f"total_{name}"], one, "bigint") for name, one in seen.measures.items()}
        return seen._replace(measures=totals)

    def _first(self, o: Algebra, slots: Slots, moment: Moment) -> Term:
        """Return the arrival time, as processing time, of the first record that `stop` counts.

        Returns the end of time if there is no such record.
        """
        since = moment.waiting_since
        return o.least(slots["since"], o.choose(o.missing(since), o.literal(END_OF_TIME, "bigint"), since))

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        part, stop = self.ready_parts(o, slots, moment)
        going = o.no(self.done(o, slots))
        return Ready(o.every(going, o.some(part.fires, stop.fires)), o.every(going, o.some(part.on_time, stop.on_time)))

    def ready_parts(self, o: Algebra, slots: Slots, moment: Moment) -> list[Ready]:
        (_, part, of_part), (_, stop, of_stop) = self._split(slots)
        return [
            part.ready(o, of_part, self._seen_by(0, part, moment)),
            stop.ready(o, of_stop, self._seen_by_stop(o, slots, moment)),
        ]

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        part, stop = self.ready_parts(o, slots, moment)
        return self._after(o, slots, moment, part.fires, stop.fires)

    def fired_by_others(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        never = o.literal(False, "boolean")
        return self._after(o, slots, moment, never, never)

    def _after(self, o: Algebra, slots: Slots, moment: Moment, part: Term, stop: Term) -> dict[str, Term]:
        """Return the slots after a pane; the argument `part` says whether the part fired, and `stop` says whether
        `stop` fired.
        """
        (_, _, of_part), (_, _, of_stop) = self._split(slots)
        after, seen = dict(slots), self._seen_by(0, self.part, moment)
        others = self.part.fired_by_others(o, of_part, seen)
        for name, value in self.part.fired(o, of_part, seen).items():
            after[f"0_{name}"] = o.choose(part, value, others[name])
        # For `stop`, records stay fresh until `stop` itself has fired, so `stop` receives its own counts.
        seen = self._seen_by_stop(o, slots, moment)
        for name, value in self.stop.fired(o, of_stop, seen).items():
            after[f"1_{name}"] = o.choose(stop, value, of_stop[name])
        # After `stop` has fired, it ignores all records that have arrived so far. If `stop` is not done yet, its counts
        # start again at zero.
        now: dict[str, Term] = {f"total_{name}": value for name, value in seen.measures.items()}
        if "count" in self._fired_before:
            now["count"] = seen.fresh
        if "since" in self._fired_before:
            now["since"] = self._first(o, slots, moment)
        starts = {name: o.literal(start, "bigint") for name, start in self._fired_before.items()}
        return after | {name: o.choose(stop, starts[name], now[name]) for name in starts}

    def done(self, o: Algebra, slots: Slots) -> Term:
        return o.some(*self.done_parts(o, slots))

    @property
    def stops(self) -> bool:
        return bool(self._fired_before) or self.part.stops or self.stop.stops

    @property
    def places(self) -> tuple[str, ...]:
        return (".part", ".stop")

    def own_faults(self, path: str) -> Iterable[Fault]:
        if not self.stop.finishes:
            example = "write what ends it without Repeat, for example AtWatermark()"
            remedy = f"it would fire but never end the other: {example}"
            yield Fault(f"{path}.stop", self.stop, "a trigger that is done at some time", remedy)


def AfterWatermark(  # noqa: N802  (it reads as one of the triggers)
    early: Trigger | None = None, late: Trigger | None = None
) -> Trigger:
    """Build a trigger that fires early panes, then a pane when the watermark passes the window's end, then late panes.

    The triggers `early` and `late` fire repeatedly, even if they are not wrapped in `Repeat` (Dataflow Model, 2.3). The
    function is shorthand for a composite trigger:

    >>> AfterWatermark() == AtWatermark()
    True
    >>> AfterWatermark(late=AfterCount(1))
    Sequence(AtWatermark(), Repeat(part=AfterCount(count=1)))
    """
    on_time: Trigger = AtWatermark() if early is None else Until(_repeated(early), AtWatermark())
    return on_time if late is None else Sequence(on_time, _repeated(late))


def _repeated(part: Trigger) -> Trigger:
    return Repeat(part) if isinstance(part, Trigger) and part.finishes else part
