"""The processing of one key in one epoch: calls of the user's code for the key's feedback, records and timers (rule
T4).

A record is passed together with its event time in microseconds, so that the event time is converted only once. An
engine passes a record as a tuple, and the tuple is converted to a mapping only for the user's code or for the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import is_
from typing import Any, TypeAlias

from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import failure
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.definition.computation import PROCESSING, Computation, ComputationError, Context, Timer
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.model.step.computation_state import (
    NOTHING,
    Feedback,
    KeyState,
    Production,
    Record,
    Work,
    returned_of,
    source_of,
)
from tailrace.model.windows.panes import Key, Rejected

MOST = 1_000_000
"""The maximum number of timer firings per key and epoch; a further firing raises an error.

Without this limit, a timer that always sets itself again would fire endlessly.
"""

AnyRecord: TypeAlias = "Record | tuple[Any, ...]"
"""A record as a mapping or as a tuple. The tuple contains the values of the log's columns, in order, and then the
record's epoch, source partition and offset (`PLACE`).
"""

Arrival: TypeAlias = tuple[int, AnyRecord]
"""A pair of an event time in microseconds and the record that has this event time."""


def turn_of(arrival: Arrival) -> tuple[int, str, int]:
    """Return the sort key of a record: the record's event time, and then its position in the source."""
    at, record = arrival
    if isinstance(record, tuple):
        return at, record[-2] or "", record[-1] or 0
    return at, record.get("_source") or "", record.get("_offset") or 0


class Epoch:
    """The clock and the settings of an epoch, which all keys share, and the results, to which all keys contribute.

    If `stops` is False, a timer whose code fails is rejected. If `stops` is True, such a timer makes the whole epoch
    fail.
    """

    def __init__(self, computation: Computation, before: Clock | None, clock: Clock, *, stops: bool = False) -> None:
        self.computation, self.clock, self.stops = computation, clock, stops
        self.before = before.watermark if before else BEGINNING
        self.number, self.watermark, self.now = clock.epoch, clock.watermark, clock.processing_time
        self.event_time, self.ordered = computation.log.event_time, computation.ordered
        self.columns = tuple(computation.record_columns)
        self.names = (*self.columns, *PLACE)
        self.defaults, self.lists = computation.defaults, computation.lists
        self.productions: list[Production] = []
        self.fed_back: list[Feedback] = []
        self.rejected: list[Rejected] = []

    @cached_property
    def earliest(self) -> int:
        """The earliest event time that is not too late in this epoch, in microseconds."""
        return self.computation.reached(self.before)

    def due(self, held: KeyState) -> bool:
        """Return True if a key must be processed even without a new record, because a timer or a waiting record is
        due.
        """
        if any(self.fires(timer) for timer in held.timers):
            return True
        return bool(held.waiting) and self.passed(instant(held.waiting[0][self.event_time]))

    def fires(self, timer: Timer) -> bool:
        """Return True if a timer is due."""
        return timer.time <= (self.now if timer.domain is PROCESSING else self.watermark)

    def passed(self, at: int) -> bool:
        """Return True if the watermark has passed a record's event time, so that no earlier record is expected."""
        return at < self.watermark

    def record(self, record: AnyRecord) -> Record:
        """Return a record as a mapping that also contains the record's position in the source."""
        return dict(zip(self.names, record, strict=True)) if isinstance(record, tuple) else record

    def user_record(self, record: AnyRecord) -> dict[str, Any]:
        """Return a record as a new mapping from the log's columns to values; the user's code receives this mapping."""
        if isinstance(record, tuple):
            # The tuple also contains the record's position in the source, which is left out here.
            return dict(zip(self.columns, record, strict=False))
        return {name: record.get(name) for name in self.columns}


class OneKey:
    """The state of one key during an epoch: its fields, timers and waiting records, which the user's code may
    change.
    """

    __slots__ = (
        "_failed_timers", "_made", "_sent", "computation", "dropped", "epoch", "fields", "fired", "key", "returned",
        "set", "taken", "timers", "waiting",
    )  # fmt: skip

    def __init__(self, epoch: Epoch, key: Key, held: KeyState) -> None:
        self.epoch, self.computation, self.key = epoch, epoch.computation, key
        self.fields: Mapping[str, Any] = {**epoch.defaults, **held.fields}
        self.timers = {timer.name: timer for timer in held.timers}
        at = epoch.event_time
        self.waiting: list[Arrival] = [(instant(one[at]), one) for one in held.waiting] if held.waiting else []
        self._made = self._sent = self._failed_timers = 0
        self.taken = self.set = self.fired = self.dropped = self.returned = 0

    def run(self, arrived: Sequence[Arrival], returned: Sequence[Feedback]) -> None:
        """Process the records that were fed back, then the new records, and then the timers that are due."""
        if returned:
            for back in sorted(returned, key=lambda one: (one.at, one.out_of, one.place)):
                self._return(back)
        if len(arrived) > 1:
            arrived = sorted(arrived, key=turn_of)
        if not self.epoch.ordered:
            for arrival in arrived:
                self._take(arrival, self.epoch.before)
        elif arrived:
            self.waiting = sorted([*self.waiting, *arrived], key=turn_of)
        if self.waiting:
            self._take_turns()
        else:
            while self.timers and (timer := self._next_timer()) is not None:
                self._fire(timer)

    def _take_turns(self) -> None:
        """Fire the due timers and process the waiting records, in the order of their times.

        If a timer and a record have the same time, the timer fires first. Processing-time timers fire before all
        records.
        """
        left = 0
        while True:
            timer = self._next_timer()
            come = self._next_waiting(left)
            if timer is not None and (come is None or timer.domain is PROCESSING or timer.time <= come[0]):
                self._fire(timer)
            elif come is not None:
                left += 1
                self._take(come, self.epoch.watermark)
            else:
                break
        del self.waiting[:left]

    @property
    def work(self) -> Work:
        """The counts of the work that has been done for the key so far."""
        return Work(self.taken, self.set, self.fired, self.dropped, self.returned)

    def after(self) -> KeyState:
        """Return the key's state after the epoch, or the constant `NOTHING` if the state need not be stored."""
        timers = self.timers
        if not timers and not self.waiting and self.fields == self.epoch.defaults:
            return NOTHING
        pending = sorted(timers.values(), key=_turn) if len(timers) > 1 else timers.values()
        waiting = tuple([self.epoch.record(given) for _, given in self.waiting]) if self.waiting else ()
        return KeyState(self.fields, tuple(pending), waiting)

    def _next_timer(self) -> Timer | None:
        """Return the timer that fires next, or None if no timer is due."""
        now, watermark = self.epoch.now, self.epoch.watermark
        found: Timer | None = None
        for timer in self.timers.values():
            if timer.time <= (now if timer.domain is PROCESSING else watermark) and (
                found is None or _turn(timer) < _turn(found)
            ):
                found = timer
        return found

    def _next_waiting(self, place: int) -> Arrival | None:
        """Return the waiting record at the index `place`, if the watermark has passed the record's event time.

        Returns None if there is no record at this index, or if the watermark has not passed the record's event time.
        """
        if place >= len(self.waiting) or not self.epoch.passed(self.waiting[place][0]):
            return None
        return self.waiting[place]

    def _take(self, come: Arrival, watermark: int) -> None:
        at, row = come
        error = self._call(
            self.computation.process_record, self._context(at, at, watermark), self.epoch.user_record(row)
        )
        if error is None:
            self.taken += 1
        else:
            self.epoch.rejected.append(Rejected(self.epoch.record(row), failure(error), self.epoch.number))

    def _return(self, back: Feedback) -> None:
        record = returned_of(self.computation, back)
        columns = {name: value for name, value in record.items() if name not in PLACE}
        context = self._context(back.at, back.at, self.epoch.before)
        self.returned += 1
        error = self._call(self.computation.process_feedback, context, columns)
        if error is not None:
            self.epoch.rejected.append(Rejected(record, failure(error), self.epoch.number, returned=True))

    def _fire(self, timer: Timer) -> None:
        if self.fired >= MOST:
            raise ComputationError(
                f"{self.computation.name}: {MOST:,} timers of key {self.key} were due in epoch "
                f"{self.epoch.number}: expected a timer that sets itself again to have an end, for at the end of "
                "the input all of them are due; set it only while there is something to wait for"
            )
        del self.timers[timer.name]
        self.fired += 1
        floor = self.epoch.earliest if timer.holds is None else timer.holds
        default = max(timer.time, floor) if timer.holds is None else timer.holds
        context = self._context(floor, default, self.epoch.watermark)
        error = self._call(self.computation.process_timer, context, timer)
        if error is not None and self.epoch.stops:
            raise self._failed(timer, error) from error
        if error is not None:
            self._reject_timer(timer, error)

    def _reject_timer(self, timer: Timer, error: Exception) -> None:
        """Reject a timer whose code failed: remove the timer, and discard all other changes that the failed call made
        (rule X7).
        """
        names, number = self.computation.key, self.epoch.number
        record = dict(zip(names, self.key, strict=True)) | {PANE_TIME: timer.at}
        # A timer is not a record of the log, so the rejection has no landing epoch.
        record |= dict(zip(PLACE, (None, source_of(self.key), self._failed_timers), strict=True))
        reason = f"timer {timer.name!r}: {failure(error)}"
        self.epoch.rejected.append(Rejected(record, reason, number, timer=True))
        self._failed_timers += 1

    def _context(self, at: int, default: int, watermark: int) -> Context:
        """Create the context for a call of the user's code.

        The call may produce records whose event time is `at` or later. If a pending timer may produce records with an
        earlier event time (`Timer.holds`), this earlier event time is the limit.
        """
        for timer in self.timers.values():
            if timer.holds is not None and timer.holds < at:
                at = timer.holds
        return Context(self.computation, self.key, self.fields, self.timers, at, default, watermark, self.epoch.now)

    def _call(self, method: Callable[[Context, Any], None], context: Context, argument: Any) -> Exception | None:
        """Call the user's code, and keep the effects of the call. If the code fails, return the error instead.

        The lists of the state are checked after the call, because the code may have changed them in place.
        """
        try:
            method(context, argument)
            held = context.state.__dict__
            for name in self.epoch.lists:
                value = held[name]
                if value:
                    before = self.fields[name]
                    if not (before and len(value) == len(before) and all(map(is_, value, before))):
                        held[name] = self.computation.stored(name, value)
        except Exception as error:
            return error
        self.fields, self.timers = held, context._timers
        self.set += context._set
        self.dropped += context._dropped
        if context._produced:
            key, number, made = self.key, self.epoch.number, self.epoch.productions
            for values, at in context._produced:
                made.append(Production(key, values, at, number, self._made))
                self._made += 1
        if context._fed_back:
            number, out_of, sent = self.epoch.number, source_of(self.key), self.epoch.fed_back
            for back in context._fed_back:
                sent.append(Feedback(back.key, back.values, back.at, number, out_of, self._sent))
                self._sent += 1
        return None

    def _failed(self, timer: Timer, error: Exception) -> ComputationError:
        of = f"key {self.key}, timer {timer.name!r} of {timer.at.isoformat()}"
        if isinstance(error, ComputationError):
            return ComputationError(f"{error} (in process_timer, {of})")
        return ComputationError(
            f"{self.computation.name}: process_timer raised {type(error).__name__}: {error} ({of}): nothing of the "
            "epoch is committed, as TAILRACE_POISON=stop says; mend the code, or leave the setting out: the firing is "
            "then rejected with this reason, and the stream goes on"
        )


def _turn(timer: Timer) -> tuple[bool, int, str]:
    """Return the sort key of a due timer.

    Processing-time timers come first, because within an epoch, processing time advances before the watermark (rule T4).
    """
    return (timer.domain is not PROCESSING, timer.time, timer.name)
