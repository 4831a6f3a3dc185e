"""An epoch of a computation: the reference execution (MillWheel, 4 to 6; rules T2 to T4).

    step(computation, state, bundle, clock) -> state', productions, late, rejected

What was fed back in the epoch before goes key by key to `process_feedback`. A bundle's records are judged, and go to
`process_record`; then the timers that are due go to `process_timer`, in the order of their instants. Whatever a key has
is in its state, and what is in flight to it beside that, so an epoch is one commit of it (MillWheel, 6.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.model.definition.computation import Computation
from tailrace.model.step.computation_state import NOTHING, Feedback, Late, Outcome, Record, State, Work
from tailrace.model.step.one_key import Arrival, Epoch, Given, OneKey
from tailrace.model.windows.panes import Key


def step(computation: Computation, state: State, bundle: Iterable[Record], clock: Clock) -> Outcome:
    """Take an epoch's records and the timers that are due at its clock.

    Law: of a computation that is `ordered`, no cut of the records into epochs changes what comes of them.
    Raises `ClockError` if the clock goes back, and `ComputationError` where the computation fails.

    >>> from tailrace.model.samples.visits import clicks, example
    >>> visits, records = example(ordered=True), clicks("a 0, a 5, b 7, a 40")
    >>> def told(cuts):
    ...     state, said = State(), []
    ...     for epoch, (bundle, watermark) in enumerate(cuts):
    ...         state, productions, *_ = step(visits, state, bundle, Clock(epoch, watermark * 10**6, 0))
    ...         said += [(one.key[0], one.values["clicks"], one.at // 10**6) for one in productions]
    ...     return said
    >>> told([(records, 100)])
    [('a', 2, 0), ('a', 1, 40), ('b', 1, 7)]
    >>> sorted(told([(records[2:], 0), (records[:2], 0), ([], 41), ([], 100)])) == sorted(told([(records, 100)]))
    True
    """
    columns, event_time = computation.key, computation.log.event_time
    arrivals = ((tuple([one.get(name) for name in columns]), instant(one[event_time]), one) for one in bundle)
    return taken(computation, state, arrivals, clock)


def taken(computation: Computation, state: State, arrivals: Iterable[tuple[Key, int, Given]], clock: Clock) -> Outcome:
    """Take an epoch's records, of which whoever hands them over has the keys and the event times already."""
    return _Step(computation, state, clock.after(state.clock)).run(arrivals)


def onward(computation: Computation, state: State) -> int:
    """The watermark of those who read the productions: the low watermark (MillWheel, 4.5 and 5.2; rule T3).

    It is the computation's own less its lateness, or the oldest event time that a pending timer holds or that is in
    flight, if older: nothing that comes out later is earlier.
    """
    assert state.clock is not None
    held = (timer.holds for one in state.keys.values() for timer in one.timers if timer.holds is not None)
    return min([computation.reached(state.clock.watermark), *held, *(one.at for one in state.in_flight)])


NONE: Any = ()
"""What comes to a key that nothing comes to."""


class _Step:
    """One run of `step`."""

    def __init__(self, computation: Computation, state: State, clock: Clock) -> None:
        self.state, self.epoch = state, Epoch(computation, state.clock, clock)

    def run(self, arrivals: Iterable[tuple[Key, int, Given]]) -> Outcome:
        late: list[Late] = []
        arrived = self._judged(arrivals, late)
        returned: dict[Key, list[Feedback]] = {}
        for back in self.state.in_flight:
            returned.setdefault(back.key, []).append(back)
        epoch, before = self.epoch, self.state.keys
        keys, work = dict(before), dict[Key, Work]()
        for key in {**before, **returned, **arrived}:
            held = before.get(key, NOTHING)
            if key not in arrived and key not in returned and not epoch.due(held):
                continue
            one = OneKey(epoch, key, held)
            one.run(arrived.get(key, NONE), returned.get(key, NONE))
            work[key] = one.work
            left = one.after()
            if left is NOTHING:
                keys.pop(key, None)
            else:
                keys[key] = left
        after = State(keys, epoch.clock, tuple(epoch.fed_back))
        return Outcome(after, epoch.productions, late, epoch.rejected, work)

    def _judged(self, arrivals: Iterable[tuple[Key, int, Given]], late: list[Late]) -> dict[Key, list[Arrival]]:
        """The records by key; what is too late goes to `late` (rules T4, M1)."""
        epoch, reached = self.epoch, self.epoch.reached
        arrived: dict[Key, list[Arrival]] = {}
        for key, at, given in arrivals:
            if at < reached:
                late.append(Late(epoch.record(given), key, epoch.before - at, epoch.number))
            elif key in arrived:
                arrived[key].append((at, given))
            else:
                arrived[key] = [(at, given)]
        return arrived
