"""An analysis of a custom trigger at definition time, which evaluates the trigger in many situations.

A trigger is a state machine whose state is a few named slots. The situations differ in the number of fresh records, in
whether the watermark has passed the end of the window, in whether a period has ended, and in the values of the
measures. The analysis evaluates the trigger in these situations, first with the initial slots, and then with each new
state of the slots, up to a maximum number of states. A custom trigger is refused at definition time if the trigger can
never fire, if it fires endlessly without new records, if it fires although it is done, or if it changes the names or
types of its slots. The built-in triggers need no analysis, because they declare their properties.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.errors import Fault
from tailrace.model.triggers.trigger import Moment, Phase, Trigger, slot_type

MOST = 500
"""The maximum number of different slot states that the analysis explores."""

_END, _HOUR, _MANY = 1_000_000_000, 3_600_000_000, 1_000_000_000
_NOW = 1_000_000 * _HOUR

Slots = dict[str, Any]


def explored_faults(path: str, trigger: Trigger) -> Iterable[Fault]:
    """Yield the faults that are found by evaluating a custom trigger in many situations."""
    try:
        yield from _Explored(path, trigger).faults()
    except Exception as error:
        expected = "a trigger whose rules are terms of the algebra: o.at_least(moment.fresh, o.literal(2, 'bigint'))"
        yield Fault(path, trigger, expected, f"asked, it failed with {type(error).__name__}: {error}")


class _Explored:
    """The exploration of a custom trigger: its possible slot states, and what the trigger returns in each state."""

    def __init__(self, path: str, trigger: Trigger) -> None:
        self.path, self.trigger, self.o = path, trigger, Scalars()
        self.start: Slots = dict(trigger.slots())
        self.measures, self.signals = tuple(trigger.measures()), trigger.signals()

    def faults(self) -> Iterator[Fault]:
        types = {name: slot_type(start) for name, start in self.start.items()}
        fires = False
        for slots in self._states():
            strange = {name for name in {*slots, *types} if slot_type(slots.get(name, 0.5)) != types.get(name)}
            if strange:
                names = ", ".join(sorted(types)) or "there is none"
                yield self._fault(f"the slots that it starts with, and no other ({names})", "give them all in `fired`")
                return
            done = bool(self.trigger.done(self.o, slots))
            for moment in self._moments():
                ready = self.trigger.ready(self.o, slots, moment)
                if ready.fires and done:
                    yield self._fault(
                        "a trigger that is done to be ready no more", "let `ready` look at what `done` does"
                    )
                    return
                fires = fires or bool(ready.fires)
            if done and not self.trigger.finishes:
                yield self._fault("a trigger that is never done, as `finishes` says", "let `finishes` give True")
                return
        if not fires:
            yield self._fault("a trigger that fires at some time", "asked at all moments that matter, it never did")
        elif self._restless():
            remedy = "remember in a slot that it has fired, or leave `on_time` to what happens once"
            yield self._fault("a trigger that waits for records: it fires again and again with nothing new", remedy)

    def _states(self) -> Iterator[Slots]:
        """Yield the states that the slots can take when records arrive and panes fire, at most `MOST` states."""
        seen: set[tuple[tuple[str, Any], ...]] = set()
        left = [self.start]
        while left and len(seen) < MOST:
            slots = left.pop()
            key = tuple(sorted(slots.items()))
            if key in seen:
                continue
            seen.add(key)
            yield slots
            for moment in self._moments():
                left.append(dict(self.trigger.arrived(self.o, slots, moment.measures)))
                if self.trigger.ready(self.o, slots, moment).fires:
                    left.append(dict(self.trigger.fired(self.o, slots, moment)))

    def _moments(self) -> Iterator[Moment]:
        for phase, fresh, passed, step, much, came in product(
            Phase, (0, 1, _MANY), (False, True), (0, 1, _HOUR), (0, 1, _MANY), (False, True)
        ):
            if (much and not self.measures) or (came and not self.signals):
                continue
            yield self._moment(phase, fresh, passed, step, much, came)

    def _moment(self, phase: Phase, fresh: int, passed: bool, step: int, much: int, came: bool) -> Moment:
        since, watermark = None if fresh == 0 else _NOW - 1000 * _HOUR, _END if passed else _END - 1
        measures, signals = dict.fromkeys(self.measures, min(much, fresh)), dict.fromkeys(self.signals, came)
        return Moment(phase, fresh, since, _END, watermark, _NOW, _NOW - step, measures, {}, signals)

    def _restless(self) -> bool:
        """Return True if, after the watermark has passed a window, the trigger fires in every epoch, even without new
        records.
        """
        moment = self._moment(Phase.WATERMARK, 0, True, 0, 0, False)
        for slots in self._states():
            at, still = slots, 0
            for _ in range(8):
                ready = self.trigger.ready(self.o, at, moment)
                if not (ready.fires and ready.on_time):
                    break
                at, still = dict(self.trigger.fired(self.o, at, moment)), still + 1
            if still == 8:
                return True
        return False

    def _fault(self, expected: str, remedy: str) -> Fault:
        return Fault(self.path, self.trigger, expected, remedy)
