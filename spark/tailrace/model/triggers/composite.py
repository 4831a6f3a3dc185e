"""The base class of composite triggers: it combines the slots of the parts, and finds the faults of the parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from tailrace.model.base.algebra import Algebra, Term
from tailrace.model.base.errors import Fault
from tailrace.model.triggers.analysis import explored_faults
from tailrace.model.triggers.trigger import Measure, Moment, PositionalParts, Ready, Slots, Trigger, is_own


def trigger_faults(path: str, trigger: object) -> Iterable[Fault]:
    """Find the faults of an object that a definition uses as its trigger."""
    if isinstance(trigger, Trigger):
        return [*trigger.faults(path), *(explored_faults(path, trigger) if is_own(trigger) else ())]
    return [Fault(path, trigger, "a trigger", "write for example AfterCount(1)")]


def any_part(fact: str) -> Any:
    """Create a property for composite triggers that is true if the property named `fact` is true for at least one
    part.
    """
    return property(lambda trigger: any(getattr(part, fact) for part in trigger.of))


def every_part(fact: str) -> Any:
    """Create a property for composite triggers that is true if the property named `fact` is true for all parts."""
    return property(lambda trigger: all(getattr(part, fact) for part in trigger.of))


class Composite(Trigger):
    """The base class of triggers that are composed of other triggers.

    The slots of a composite trigger are the slots of its parts. The name of a slot is the position of the part,
    followed by the slot's name in the part.
    """

    looks_at_watermark, counts, stops = any_part("looks_at_watermark"), any_part("counts"), any_part("stops")

    @property
    def of(self) -> tuple[Trigger, ...]:
        raise NotImplementedError

    @property
    def places(self) -> tuple[str, ...]:
        """The path of each part within this trigger, such as `[0]` for the first part; faults are reported with these
        paths.
        """
        return tuple(f"[{place}]" for place in range(len(self.of)))

    def slots(self) -> dict[str, bool | int]:
        return {f"{place}_{name}": start for place, part in enumerate(self.of) for name, start in part.slots().items()}

    def measures(self) -> dict[str, Measure]:
        return {f"{place}_{name}": one for place, part in enumerate(self.of) for name, one in part.measures().items()}

    def signals(self) -> frozenset[str]:
        return frozenset(name for part in self.of for name in part.signals())

    def periods(self) -> frozenset[tuple[int, int]]:
        return frozenset(one for part in self.of for one in part.periods())

    def delays(self) -> frozenset[int]:
        return frozenset(one for part in self.of for one in part.delays())

    def arrived(self, o: Algebra, slots: Slots, measures: Mapping[str, Term]) -> dict[str, Term]:
        return self.part_arrived(o, slots, measures, None)

    def part_arrived(
        self, o: Algebra, slots: Slots, measures: Mapping[str, Term], only: Mapping[int, Term] | None
    ) -> dict[str, Term]:
        """Return the slots after the records of a bundle have arrived.

        `only` maps the position of each part to a condition; the slots of a part change only if its condition is true.
        If `only` is None, the slots of all parts change.
        """
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
        """A tuple per part: the part's position, the part itself, and the names of its slots in the part and in this
        trigger.
        """
        return [
            (place, part, [(name, f"{place}_{name}") for name in part.slots()]) for place, part in enumerate(self.of)
        ]

    def _seen_by(self, place: int, part: Trigger, moment: Moment) -> Moment:
        """Return a copy of `moment` that contains only the measures of one part."""
        if not moment.measures:
            return moment
        return moment._replace(measures={name: moment.measures[f"{place}_{name}"] for name in part.measures()})

    def part_fired(self, o: Algebra, slots: Slots, moment: Moment, only: Mapping[int, Term]) -> dict[str, Term]:
        """Return the slots after a pane that only some parts fired: the parts whose condition in `only` is true."""
        after = dict(slots)
        for place, part, own in self._split(slots):
            seen = self._seen_by(place, part, moment)
            others = part.fired_by_others(o, own, seen)
            for name, value in part.fired(o, own, seen).items():
                after[f"{place}_{name}"] = o.choose(only[place], value, others[name])
        return after

    def fired_by_others(self, o: Algebra, slots: Slots, moment: Moment) -> dict[str, Term]:
        return self.part_fired(o, slots, moment, dict.fromkeys(range(len(self.of)), o.literal(False, "boolean")))

    def ready_parts(self, o: Algebra, slots: Slots, moment: Moment) -> list[Ready]:
        return [part.ready(o, own, self._seen_by(place, part, moment)) for place, part, own in self._split(slots)]

    def done_parts(self, o: Algebra, slots: Slots) -> list[Term]:
        return [part.done(o, own) for _, part, own in self._split(slots)]

    def faults(self, path: str) -> Iterable[Fault]:
        sound = True
        for place, part in zip(self.places, self.of, strict=True):
            for fault in trigger_faults(path + place, part):
                sound = False
                yield fault
        if sound:
            yield from self.own_faults(path)

    def column_faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        for place, part in zip(self.places, self.of, strict=True):
            yield from part.column_faults(path + place, types)

    def percentile_faults(self, path: str, known: Iterable[int]) -> Iterable[Fault]:
        known = tuple(known)
        for place, part in zip(self.places, self.of, strict=True):
            yield from part.percentile_faults(path + place, known)

    def own_faults(self, path: str) -> Iterable[Fault]:
        """Find the faults that result from combining the parts. The method is called only if no part has a fault of its
        own.
        """
        return ()


class Many(PositionalParts[Trigger], Composite):
    """A composite trigger of one or more parts, which are passed as positional arguments."""

    fires_on_nothing, ready_on_nothing = any_part("fires_on_nothing"), any_part("ready_on_nothing")

    @property
    def of(self) -> tuple[Trigger, ...]:
        return self.parts

    def faults(self, path: str) -> Iterable[Fault]:
        if not self.parts:
            yield Fault(path, self, "at least one trigger", f"write {type(self).__name__}(AfterCount(1))")
        yield from super().faults(path)
