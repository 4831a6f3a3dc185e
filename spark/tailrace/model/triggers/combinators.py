"""The algebra of triggers, which say when in processing time a window's pane fires (Dataflow Model, 2.3 and 3.3).

Triggers that stand on their own come from `trigger` and `punctuation`; those defined here are made of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import Fault
from tailrace.model.triggers.composite import Composite, Many, trigger_faults
from tailrace.model.triggers.punctuation import AfterBytes, AfterMatch, AfterPattern
from tailrace.model.triggers.trigger import (
    AfterCount,
    AfterDelay,
    AfterSignal,
    AtPercentile,
    AtWatermark,
    Every,
    Measure,
    Moment,
    Phase,
    Ready,
    Slots,
    Trigger,
    slot_type,
    slot_types,
)

__all__ = [
    "AfterBytes",
    "AfterCount",
    "AfterDelay",
    "AfterMatch",
    "AfterPattern",
    "AfterSignal",
    "AfterWatermark",
    "AllOf",
    "AnyOf",
    "AtPercentile",
    "AtWatermark",
    "Every",
    "Measure",
    "Moment",
    "Phase",
    "Ready",
    "Repeat",
    "Sequence",
    "Slots",
    "Trigger",
    "Until",
    "slot_types",
    "trigger_faults",
]


class AnyOf(Many):
    """Fires when any part is ready; is done when any part that fired is done.

    Law: `AnyOf(t)` fires just when `t` does.
    """

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        parts, going = self.ready_parts(o, slots, moment), o.no(self.done(o, slots))
        fires, on_time = (o.some(*(part[which] for part in parts)) for which in (0, 1))
        return Ready(o.every(going, fires), o.every(going, on_time))

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        ready = self.ready_parts(o, slots, moment)
        return self.part_fired(o, slots, moment, {place: r.fires for place, r in enumerate(ready)})

    def done(self, o: Algebra, slots: Slots) -> Term:
        return o.some(*self.done_parts(o, slots))

    @property
    def finishes(self) -> bool:
        return any(part.finishes for part in self.parts)

    @property
    def finishes_only_on_time(self) -> bool:
        return all(part.finishes_only_on_time for part in self.parts)

    @property
    def fires_on_nothing(self) -> bool:
        return any(part.fires_on_nothing for part in self.parts)


class AllOf(Many):
    """Fires when every part is ready or done; is done when every part is done.

    Law: `AllOf(t)` fires just when `t` does.
    """

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
    def finishes(self) -> bool:
        return all(part.finishes for part in self.parts)

    @property
    def finishes_only_on_time(self) -> bool:
        return not self.finishes or any(part.finishes_only_on_time for part in self.parts)

    @property
    def fires_on_nothing(self) -> bool:
        return bool(self.parts) and all(part.fires_on_nothing for part in self.parts)


class Sequence(Many):
    """Asks its parts one after the other, each once the one before is done; is done when the last part is done."""

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
        after = self.part_fired(o, slots, moment, dict(enumerate(current)))
        done = self.done_parts(o, after)
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

    def own_faults(self, path: str) -> Iterable[Fault]:
        for place, part in enumerate(self.parts[:-1]):
            if not part.finishes:
                yield Fault(
                    f"{path}[{place + 1}]",
                    self.parts[place + 1],
                    "a trigger that gets its turn",
                    f"it can never fire, for {part!r} before it never ends: put an Until around that one",
                )


@dataclass(frozen=True)
class Repeat(Composite):
    """Fires as its part does, over and over: the part starts anew each time it is done. Is never done."""

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
        if self.part.fires_on_nothing:
            yield Fault(
                path,
                self,
                "a trigger that waits for records",
                "it would fire in every epoch once the watermark has passed: leave out Repeat, or write "
                "Sequence(AtWatermark(), Repeat(AfterCount(1)))",
            )


@dataclass(frozen=True)
class Until(Composite):
    """Fires as its part does until `stop` is ready, which fires once more and ends it; is done when either is done."""

    part: Trigger
    stop: Trigger

    @property
    def of(self) -> tuple[Trigger, ...]:
        return (self.part, self.stop)

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        part, stop = self.ready_parts(o, slots, moment)
        going = o.no(self.done(o, slots))
        return Ready(o.every(going, o.some(part.fires, stop.fires)), o.every(going, o.some(part.on_time, stop.on_time)))

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        part, stop = self.ready_parts(o, slots, moment)
        return self.part_fired(o, slots, moment, {0: part.fires, 1: stop.fires})

    def done(self, o: Algebra, slots: Slots) -> Term:
        return o.some(*self.done_parts(o, slots))

    @property
    def finishes(self) -> bool:
        return self.part.finishes or self.stop.finishes

    @property
    def finishes_only_on_time(self) -> bool:
        return self.part.finishes_only_on_time and self.stop.finishes_only_on_time

    @property
    def fires_on_nothing(self) -> bool:
        return self.part.fires_on_nothing or self.stop.fires_on_nothing

    @property
    def places(self) -> tuple[str, ...]:
        return (".part", ".stop")

    def own_faults(self, path: str) -> Iterable[Fault]:
        if not self.stop.finishes:
            yield Fault(
                f"{path}.stop",
                self.stop,
                "a trigger that is done at some time",
                "it would fire but never end the other: write what ends it without Repeat, for example AtWatermark()",
            )


def AfterWatermark(  # noqa: N802  (it reads as one of the triggers)
    early: Trigger | None = None, late: Trigger | None = None
) -> Trigger:
    """Build the trigger of early panes until the watermark passes the window, one on time, then late panes.

    `early` and `late` are repeated without a `Repeat` around them (Dataflow Model, 2.3). It is shorthand:

    >>> AfterWatermark() == AtWatermark()
    True
    >>> AfterWatermark(late=AfterCount(1))
    Sequence(AtWatermark(), Repeat(part=AfterCount(count=1)))
    """
    on_time: Trigger = AtWatermark() if early is None else Until(_repeated(early), AtWatermark())
    return on_time if late is None else Sequence(on_time, _repeated(late))


def _repeated(part: Trigger) -> Trigger:
    return Repeat(part) if isinstance(part, Trigger) and part.finishes else part
