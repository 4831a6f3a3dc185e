"""When in processing time a window's pane is emitted: the algebra of triggers (Dataflow Model, 2.3 and 3.3).

A trigger made of others keeps their slots beside each other; the ones that stand on their own come from `trigger` and
`punctuation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tailrace.model.algebra import Algebra, Term
from tailrace.model.errors import Fault
from tailrace.model.exploring import explored_faults
from tailrace.model.punctuation import AfterBytes, AfterMatch, AfterPattern
from tailrace.model.trigger import (
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


def trigger_faults(path: str, trigger: object) -> Iterable[Fault]:
    """What is wrong with what stands where a trigger should."""
    if isinstance(trigger, Trigger):
        own = not type(trigger).__module__.startswith("tailrace.model.")
        return [*trigger.faults(path), *(explored_faults(path, trigger) if own else ())]
    return [Fault(path, trigger, "a trigger", "write for example AfterCount(1)")]


class _Composite(Trigger):
    """A trigger made of others, whose slots are theirs with the part's place before the name."""

    @property
    def _parts(self) -> tuple[Trigger, ...]:
        raise NotImplementedError

    @property
    def _places(self) -> tuple[str, ...]:
        """What a fault calls each part, after the trigger's own path."""
        return tuple(f"[{place}]" for place in range(len(self._parts)))

    @property
    def looks_at_watermark(self) -> bool:
        return any(part.looks_at_watermark for part in self._parts)

    def slots(self) -> dict[str, bool | int]:
        return {
            f"{place}_{name}": start for place, part in enumerate(self._parts) for name, start in part.slots().items()
        }

    def measures(self) -> dict[str, Measure]:
        return {
            f"{place}_{name}": one for place, part in enumerate(self._parts) for name, one in part.measures().items()
        }

    def signals(self) -> frozenset[str]:
        return frozenset(name for part in self._parts for name in part.signals())

    def arrived(self, o: Algebra, slots: Slots, measures: Mapping[str, Term]) -> dict[str, Term]:
        return self._part_arrived(o, slots, measures, None)

    def _part_arrived(
        self, o: Algebra, slots: Slots, measures: Mapping[str, Term], only: Mapping[int, Term] | None
    ) -> dict[str, Term]:
        """The parts' slots after a bundle, of those whose turn it is."""
        after = dict(slots)
        for place, part, own in self._split(slots):
            seen = {name: measures[f"{place}_{name}"] for name in part.measures()}
            for name, value in part.arrived(o, own, seen).items():
                after[f"{place}_{name}"] = value if only is None else o.choose(only[place], value, own[name])
        return after

    def _split(self, slots: Slots) -> Iterator[tuple[int, Trigger, Slots]]:
        for place, part, names in self._own_slots:
            yield place, part, {name: slots[column] for name, column in names}

    @cached_property
    def _own_slots(self) -> list[tuple[int, Trigger, list[tuple[str, str]]]]:
        """Each part with the names of its slots, and what they are called here."""
        return [
            (place, part, [(name, f"{place}_{name}") for name in part.slots()])
            for place, part in enumerate(self._parts)
        ]

    def _seen_by(self, place: int, part: Trigger, moment: Moment) -> Moment:
        """The moment with the part's own measures."""
        if not moment.measures:
            return moment
        return moment._replace(measures={name: moment.measures[f"{place}_{name}"] for name in part.measures()})

    def _part_fired(self, o: Algebra, slots: Slots, moment: Moment, only: Mapping[int, Term]) -> dict[str, Term]:
        """The parts' slots, each as after a pane where its condition in `only` holds."""
        after = dict(slots)
        for place, part, own in self._split(slots):
            for name, value in part.fired(o, own, self._seen_by(place, part, moment)).items():
                after[f"{place}_{name}"] = o.choose(only[place], value, own[name])
        return after

    def _ready_parts(self, o: Algebra, slots: Slots, moment: Moment) -> list[Ready]:
        return [part.ready(o, own, self._seen_by(place, part, moment)) for place, part, own in self._split(slots)]

    def _done_parts(self, o: Algebra, slots: Slots) -> list[Term]:
        return [part.done(o, own) for _, part, own in self._split(slots)]

    def faults(self, path: str) -> Iterable[Fault]:
        sound = True
        for place, part in zip(self._places, self._parts, strict=True):
            for fault in trigger_faults(path + place, part):
                sound = False
                yield fault
        if sound:
            yield from self._own_faults(path)

    def column_faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        for place, part in zip(self._places, self._parts, strict=True):
            yield from part.column_faults(path + place, types)

    def percentile_faults(self, path: str, known: Iterable[int]) -> Iterable[Fault]:
        known = tuple(known)
        for place, part in zip(self._places, self._parts, strict=True):
            yield from part.percentile_faults(path + place, known)

    def _own_faults(self, path: str) -> Iterable[Fault]:
        """What is wrong with how its parts, each of them sound, go together."""
        return ()


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
        parts, going = self._ready_parts(o, slots, moment), o.no(self.done(o, slots))
        fires, on_time = (o.some(*(part[which] for part in parts)) for which in (0, 1))
        return Ready(o.every(going, fires), o.every(going, on_time))

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
        return self._part_fired(o, slots, moment, dict.fromkeys(range(len(self.parts)), always))

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

    def arrived(self, o: Algebra, slots: Slots, measures: Mapping[str, Term]) -> dict[str, Term]:
        return self._part_arrived(o, slots, measures, dict(enumerate(self._current(o, slots))))

    def _current(self, o: Algebra, slots: Slots) -> list[Term]:
        return [o.equal(slots["at"], o.literal(place, "bigint")) for place in range(len(self.parts))]

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        turns = list(zip(self._current(o, slots), self._ready_parts(o, slots, moment), strict=True))
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

    def _own_faults(self, path: str) -> Iterable[Fault]:
        for place, part in enumerate(self.parts[:-1]):
            if not part.finishes:
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

    @property
    def fires_at_once(self) -> bool:
        return self.part == AfterCount(1) or self.part.fires_at_once

    def ready(self, o: Algebra, slots: Slots, moment: Moment) -> Ready:
        return self._ready_parts(o, slots, moment)[0]

    def fired(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        after = self._part_fired(o, slots, moment, {0: o.literal(True, "boolean")})
        done = self._done_parts(o, after)[0]
        start = self.slots()
        return {
            name: o.choose(done, o.literal(start[name], slot_type(start[name])), value) for name, value in after.items()
        }

    @property
    def _places(self) -> tuple[str, ...]:
        return (".part",)

    def _own_faults(self, path: str) -> Iterable[Fault]:
        if self.part.fires_on_nothing:
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
        going = o.no(self.done(o, slots))
        return Ready(o.every(going, o.some(part.fires, stop.fires)), o.every(going, o.some(part.on_time, stop.on_time)))

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

    @property
    def _places(self) -> tuple[str, ...]:
        return (".part", ".stop")

    def _own_faults(self, path: str) -> Iterable[Fault]:
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
