"""The reference execution of one epoch of a computation (MillWheel, 4 to 6; rules T2 to T4).

    step(computation, state, bundle, clock) -> state', productions, late, rejected

Keys are processed one after the other. For each key, `process_feedback` first receives the records that were fed back
to the key in the preceding epoch. Next, `process_record` receives the key's records in the bundle, except records that
are too late. Last, `process_timer` receives the timers that are due, in the order of their times. Between two epochs,
only two things are stored for a key: its state, and the records in flight to it. The state and the records in flight
are committed together at the end of an epoch (MillWheel, 6.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.record_steps import Place
from tailrace.model.step.computation_state import NOTHING, Feedback, KeysOutcome, KeysState, LateInput, Record, Work
from tailrace.model.step.one_key import AnyRecord, Arrival, Epoch, OneKey
from tailrace.model.windows.panes import Key, Rejected

NONE: Any = ()
"""The empty input of a key that receives no records, or to which no records were fed back."""


KeyedRecord: TypeAlias = tuple[Key, int, AnyRecord]
"""A record together with its key and its event time in microseconds, in this order: key, event time, record."""


def step(computation: Computation, state: KeysState, bundle: Iterable[Record], clock: Clock) -> KeysOutcome:
    """Process an epoch's records, and the timers that are due according to the epoch's clock.

    Law: for an `ordered` computation, the productions do not depend on how the records are cut into epochs. Raises
    `ClockError` if the clock goes back, and `ComputationError` if the timers of a key fire endlessly.

    >>> from tailrace.model.samples.visits import clicks, example
    >>> visits, records = example(ordered=True), clicks("a 0, a 5, b 7, a 40")
    >>> def told(cuts):
    ...     state, said = KeysState(), []
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


def taken(
    computation: Computation, state: KeysState, arrivals: Iterable[KeyedRecord], clock: Clock, *, stops: bool = False
) -> KeysOutcome:
    """Process an epoch's records; each record is passed together with its key and its event time in microseconds.

    If the user's code fails for a timer, the timer is rejected, in the same way as a record for which the code fails.
    If `stops` is True, a failure for a timer raises `ComputationError` instead.
    """
    epoch, before = Epoch(computation, state.clock, clock.after(state.clock), stops=stops), state.keys
    late: list[LateInput] = []
    arrived = _arrivals_by_key(epoch, arrivals, late)
    returned: dict[Key, list[Feedback]] = {}
    for back in state.in_flight:
        returned.setdefault(back.key, []).append(back)
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
    after = KeysState(keys, epoch.clock, tuple(epoch.fed_back))
    return KeysOutcome(after, epoch.productions, late, epoch.rejected, work)


def _arrivals_by_key(epoch: Epoch, arrivals: Iterable[KeyedRecord], late: list[LateInput]) -> dict[Key, list[Arrival]]:
    """Group the records by key, except late records, which are appended to the list `late` (rules T4, M1)."""
    earliest = epoch.earliest
    arrived: dict[Key, list[Arrival]] = {}
    if epoch.computation.set_aside:
        arrivals = _without_set_aside(epoch, arrivals)
    for key, at, record in arrivals:
        if at < earliest:
            late.append(LateInput(epoch.record(record), key, epoch.before - at, epoch.number))
        elif key in arrived:
            arrived[key].append((at, record))
        else:
            arrived[key] = [(at, record)]
    return arrived


def _without_set_aside(epoch: Epoch, arrivals: Iterable[KeyedRecord]) -> Iterator[KeyedRecord]:
    """Reject the records that a stream has set aside because epochs that contain them fail; yield all other records
    (rule X7).
    """
    reasons = epoch.computation.set_aside
    for key, at, given in arrivals:
        place = Place(*given[-3:]) if isinstance(given, tuple) else Place.of(given)
        if (reason := reasons.get(place)) is None:
            yield key, at, given
        else:
            epoch.rejected.append(Rejected(epoch.record(given), reason, epoch.number))


def onward(computation: Computation, state: KeysState) -> int:
    """Return the watermark that the computation passes to its readers, in microseconds (MillWheel, 4.5 and 5.2; rule
    T3).

    The watermark for readers is the minimum of three instants: the computation's watermark minus its allowed lateness,
    the earliest event time at which a pending timer may produce a record (`Timer.holds`), and the earliest event time
    of a record in flight. Every later production has an event time at or after this watermark.
    """
    assert state.clock is not None
    held = (timer.holds for one in state.keys.values() for timer in one.timers if timer.holds is not None)
    return min([computation.reached(state.clock.watermark), *held, *(one.at for one in state.in_flight)])
