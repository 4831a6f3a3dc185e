"""An epoch of a computation: the reference execution (MillWheel, 4 to 6; rules T2 to T4).

    step(computation, state, bundle, clock) -> state', productions, late, rejected

What was fed back in the epoch before goes key by key to `process_feedback`. A bundle's records are judged, and go to
`process_record`; then the timers that are due go to `process_timer`, in the order of their instants. Whatever a key has
is in its state, and what is in flight to it beside that, so an epoch is one commit of it (MillWheel, 6.2).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_
from types import MappingProxyType
from typing import Any, NamedTuple

from tailrace.model.clock import Clock
from tailrace.model.computation import Computation, ComputationError
from tailrace.model.context import PROCESSING, Context, Timer
from tailrace.model.elementwise import RecordError
from tailrace.model.log import PANE_TIME
from tailrace.model.panes import Key, Rejected
from tailrace.model.time import BEGINNING, instant, moment

Record = Mapping[str, Any]

PLACE = ("_epoch", "_source", "_offset")
"""What a record carries besides its columns: where it came from."""

MOST = 1_000_000
"""So many timers of one key may be due in one epoch: a timer that sets itself again for ever would never end it."""


class KeyState(NamedTuple):
    """What one key has between two epochs: its fields, its pending timers, and the records that wait for their turn.

    Timers are in the order in which they are due, records in that of their event times. A key that has the defaults of
    all fields, no timer and no record is not kept.
    """

    fields: Mapping[str, Any] = MappingProxyType({})
    timers: tuple[Timer, ...] = ()
    waiting: tuple[Record, ...] = ()


NOTHING = KeyState()


class Feedback(NamedTuple):
    """A record that a key fed back, in flight to a key. `at` is its event time, in microseconds.

    `place` is its place among those that the key it came `out_of` fed back in the epoch.
    """

    key: Key
    values: Mapping[str, Any]
    at: int
    epoch: int
    out_of: str
    place: int


@dataclass(frozen=True)
class State:
    """What a computation has between two epochs, and the clock of the last one.

    `in_flight` is what it fed back in that epoch.
    """

    keys: Mapping[Key, KeyState] = field(default_factory=dict)
    clock: Clock | None = None
    in_flight: tuple[Feedback, ...] = ()


class Production(NamedTuple):
    """A record that a computation produced. `at` is its event time, in microseconds.

    `place` is its place among those that the key produced in the epoch: with the key and the epoch it is unique.
    """

    key: Key
    values: Mapping[str, Any]
    at: int
    epoch: int
    place: int


class Late(NamedTuple):
    """A record that came too late for its computation, by so many microseconds behind the watermark."""

    record: Record
    key: Key
    behind: int
    epoch: int


class Work(NamedTuple):
    """What one key did in an epoch: records that were taken, timers that were set, fired, and deleted or set anew.

    `returned` is how many records came round the loop, those that it rejected included.
    """

    taken: int = 0
    set: int = 0
    fired: int = 0
    dropped: int = 0
    returned: int = 0


class Outcome(NamedTuple):
    """What a step gives: the state after it, what was produced, and the records left out; by key what was done."""

    state: State
    productions: list[Production]
    late: list[Late]
    rejected: list[Rejected]
    work: dict[Key, Work]


def step(computation: Computation, state: State, bundle: Iterable[Record], clock: Clock) -> Outcome:
    """Take an epoch's records and the timers that are due at its clock.

    Law: of a computation that is `ordered`, no cut of the records into epochs changes what comes of them.
    Raises `ClockError` if the clock goes back, and `ComputationError` where the computation fails.

    >>> from tailrace.model.visits import clicks, example
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
    return _Step(computation, state, clock.after(state.clock)).run(bundle)


def onward(computation: Computation, state: State) -> int:
    """The watermark of those who read the productions: the low watermark (MillWheel, 4.5 and 5.2; rule T3).

    It is the computation's own less its lateness, or the oldest event time that a pending timer holds or that is in
    flight, if older: nothing that comes out later is earlier.
    """
    assert state.clock is not None
    held = (timer.holds for one in state.keys.values() for timer in one.timers if timer.holds is not None)
    return min([computation.reached(state.clock.watermark), *held, *(one.at for one in state.in_flight)])


def record_of(computation: Computation, production: Production) -> dict[str, Any]:
    """A production as a record of those who read it."""
    made = dict(zip(computation.key, production.key, strict=True)) | dict(production.values)
    place = (production.epoch, source_of(production.key), production.place)
    return made | {PANE_TIME: moment(production.at)} | dict(zip(PLACE, place, strict=True))


def returned_of(computation: Computation, one: Feedback) -> dict[str, Any]:
    """What is in flight as the record that the key takes which it goes to."""
    made = dict(zip(computation.key, one.key, strict=True)) | dict(one.values)
    return made | {PANE_TIME: moment(one.at)} | dict(zip(PLACE, (one.epoch, one.out_of, one.place), strict=True))


def source_of(key: Key) -> str:
    """What stands for a key where a record says which of its source's partitions it came from.

    >>> source_of(("a", 1))
    '["a", "1"]'
    """
    return json.dumps([None if one is None else str(one) for one in key], ensure_ascii=False)


def in_turn(productions: Iterable[Production]) -> list[Production]:
    """The productions of an epoch in the order in which they are claimed: by the key's text, and as it made them."""
    return sorted(productions, key=lambda one: (source_of(one.key), one.place))


def in_order(event_time: str, records: Iterable[Record]) -> list[Record]:
    """Records in the order in which a key takes them: by event time, then by their places in the source."""
    return [record for _, record in _in_order([(instant(record[event_time]), record) for record in records])]


Arrival = tuple[int, Record]
"""A record with its event time in microseconds."""


def _in_order(arrivals: list[Arrival]) -> list[Arrival]:
    if len(arrivals) < 2:
        return arrivals
    return sorted(arrivals, key=lambda one: (one[0], one[1].get("_source") or "", one[1].get("_offset") or 0))


class _Step:
    """One run of `step`."""

    def __init__(self, computation: Computation, state: State, clock: Clock) -> None:
        self.computation, self.state, self.clock = computation, state, clock
        self.before = state.clock.watermark if state.clock else BEGINNING
        self.columns = tuple(computation.log.columns)

    def run(self, bundle: Iterable[Record]) -> Outcome:
        late: list[Late] = []
        arrived = self._judged(bundle, late)
        returned: dict[Key, list[Feedback]] = {}
        for back in self.state.in_flight:
            returned.setdefault(back.key, []).append(back)
        keys, made, work = dict(self.state.keys), list[Production](), dict[Key, Work]()
        rejected, in_flight = list[Rejected](), list[Feedback]()
        for key in {**self.state.keys, **returned, **arrived}:
            held = self.state.keys.get(key, NOTHING)
            if key not in arrived and key not in returned and not self.due(held):
                continue
            one = _OneKey(self, key, held)
            one.run(arrived.get(key, []), returned.get(key, []))
            made += one.productions
            in_flight += one.fed_back
            rejected += one.rejected
            work[key] = one.work
            after = one.after()
            if after is NOTHING:
                keys.pop(key, None)
            else:
                keys[key] = after
        return Outcome(State(keys, self.clock, tuple(in_flight)), made, late, rejected, work)

    def due(self, held: KeyState) -> bool:
        """Whether a key has anything to do without a record."""
        if any(self.fires(timer) for timer in held.timers):
            return True
        return bool(held.waiting) and self.passed(instant(held.waiting[0][self.computation.log.event_time]))

    def fires(self, timer: Timer) -> bool:
        """Whether a timer is due."""
        return timer.time <= (self.clock.processing_time if timer.domain is PROCESSING else self.clock.watermark)

    def passed(self, at: int) -> bool:
        """Whether the watermark has passed a record's event time: none that is earlier is to come."""
        return at < self.clock.watermark

    def _judged(self, bundle: Iterable[Record], late: list[Late]) -> dict[Key, list[Arrival]]:
        """The records by key; what is too late goes to `late` (rules T4, M1)."""
        event_time, columns, reached = self.computation.log.event_time, self.computation.key, self.reached
        arrived: dict[Key, list[Arrival]] = {}
        for record in bundle:
            key, at = tuple([record.get(column) for column in columns]), instant(record[event_time])
            if at < reached:
                late.append(Late(record, key, self.before - at, self.clock.epoch))
            elif key in arrived:
                arrived[key].append((at, record))
            else:
                arrived[key] = [(at, record)]
        return arrived

    @cached_property
    def reached(self) -> int:
        """The earliest event time that was not let go of before the epoch, in microseconds."""
        return self.computation.reached(self.before)


class _OneKey:
    """One key's epoch: what it has changes call by call."""

    def __init__(self, step: _Step, key: Key, held: KeyState) -> None:
        self.step, self.computation, self.key = step, step.computation, key
        self.fields: Mapping[str, Any] = {**self.computation.defaults, **held.fields}
        self.timers = {timer.name: timer for timer in held.timers}
        at = self.computation.log.event_time
        self.waiting: list[Arrival] = [(instant(record[at]), record) for record in held.waiting]
        self.productions: list[Production] = []
        self.fed_back: list[Feedback] = []
        self.rejected: list[Rejected] = []
        self.taken = self.set = self.fired = self.dropped = self.returned = 0

    def run(self, arrived: list[Arrival], returned: list[Feedback]) -> None:
        for back in sorted(returned, key=lambda one: (one.at, one.out_of, one.place)):
            self._return(back)
        if self.computation.ordered:
            self.waiting = _in_order([*self.waiting, *arrived])
        else:
            for one in _in_order(arrived):
                self._take(one, self.step.before)
        left = 0
        while True:
            timer = self._next_timer()
            come = self._next_waiting(left)
            if timer is not None and (come is None or timer.domain is PROCESSING or timer.time <= come[0]):
                self._fire(timer)
            elif come is not None:
                left += 1
                self._take(come, self.step.clock.watermark)
            else:
                break
        del self.waiting[:left]

    @property
    def work(self) -> Work:
        """What the key did so far."""
        return Work(self.taken, self.set, self.fired, self.dropped, self.returned)

    def after(self) -> KeyState:
        """What the key has after the epoch: `NOTHING` itself where that is nothing."""
        if not self.timers and not self.waiting and self.fields == self.computation.defaults:
            return NOTHING
        timers = sorted(self.timers.values(), key=_turn) if len(self.timers) > 1 else self.timers.values()
        return KeyState(self.fields, tuple(timers), tuple([record for _, record in self.waiting]))

    def _next_timer(self) -> Timer | None:
        """The timer that fires next, None where none is due."""
        if not self.timers:
            return None
        due = [timer for timer in self.timers.values() if self.step.fires(timer)]
        return min(due, key=_turn) if due else None

    def _next_waiting(self, place: int) -> Arrival | None:
        """The record at a place among those that wait, None where the watermark has not passed it."""
        if place >= len(self.waiting) or not self.step.passed(self.waiting[place][0]):
            return None
        return self.waiting[place]

    def _take(self, come: Arrival, watermark: int) -> None:
        at, record = come
        shown = {name: record.get(name) for name in self.step.columns}
        context = self._context(self._floor(at), at, watermark)
        if self._shown("process_record", context, shown, record):
            self.taken += 1

    def _return(self, back: Feedback) -> None:
        record = returned_of(self.computation, back)
        shown = {name: value for name, value in record.items() if name not in PLACE}
        context = self._context(self._floor(back.at), back.at, self.step.before)
        self._shown("process_feedback", context, shown, record, returned=True)
        self.returned += 1

    def _shown(self, hook: str, context: Context, shown: Record, record: Record, *, returned: bool = False) -> bool:
        """Have a method take a record; gives whether it did not reject it."""
        try:
            getattr(self.computation, hook)(context, shown)
            kept = self._checked(context)
        except RecordError as error:
            self.rejected.append(Rejected(record, str(error), self.step.clock.epoch, returned=returned))
            return False
        except Exception as error:
            raise self._failed(hook, f"the record {shown!r:.300}", error) from error
        self._keep(context, kept)
        return True

    def _fire(self, timer: Timer) -> None:
        if self.fired >= MOST:
            raise ComputationError(
                f"{self.computation.name}: {MOST:,} timers of key {self.key} were due in epoch "
                f"{self.step.clock.epoch}: expected a timer that sets itself again to have an end, for at the end of "
                "the input all of them are due; set it only while there is something to wait for"
            )
        del self.timers[timer.name]
        floor = self.step.reached if timer.holds is None else timer.holds
        default = max(timer.time, floor) if timer.holds is None else timer.holds
        context = self._context(self._floor(floor), default, self.step.clock.watermark)
        try:
            self.computation.process_timer(context, timer)
            kept = self._checked(context)
        except Exception as error:
            raise self._failed("process_timer", f"timer {timer.name!r} of {timer.at.isoformat()}", error) from error
        self._keep(context, kept)
        self.fired += 1

    def _floor(self, at: int) -> int:
        """The earliest event time that a call may produce at: its own, or one that a pending timer holds."""
        for timer in self.timers.values():
            if timer.holds is not None and timer.holds < at:
                at = timer.holds
        return at

    def _context(self, floor: int, default: int, watermark: int) -> Context:
        now = self.step.clock.processing_time
        return Context(self.computation, self.key, self.fields, self.timers, floor, default, watermark, now)

    def _checked(self, context: Context) -> dict[str, Any]:
        """The fields after a call; a list may have been changed where it was."""
        held = context.state._held
        for name in self.computation.lists:
            value, before = held[name], self.fields[name]
            if value and not (before and len(value) == len(before) and all(map(is_, value, before))):
                held[name] = self.computation.stored(name, value)
        return held

    def _keep(self, context: Context, kept: dict[str, Any]) -> None:
        epoch = self.step.clock.epoch
        self.fields, self.timers = kept, context._timers
        for given in context._given:
            self.productions.append(Production(self.key, given.values, given.at, epoch, len(self.productions)))
        for back in context._fed_back:
            out_of, place = source_of(self.key), len(self.fed_back)
            self.fed_back.append(Feedback(back.key, back.values, back.at, epoch, out_of, place))
        self.set += context._set
        self.dropped += context._dropped

    def _failed(self, hook: str, what: str, error: Exception) -> ComputationError:
        if isinstance(error, ComputationError):
            return ComputationError(f"{error} (in {hook}, key {self.key}, {what})")
        return ComputationError(
            f"{self.computation.name}: {hook} raised {type(error).__name__}: {error} (key {self.key}, {what}): nothing "
            "of the epoch is committed; mend the code, or raise RecordError to reject a record"
        )


def _turn(timer: Timer) -> tuple[bool, int, str]:
    """The order in which due timers fire: processing time first, for the watermark advances after it (rule T4)."""
    return (timer.domain is not PROCESSING, timer.time, timer.name)
