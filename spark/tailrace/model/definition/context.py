"""The context in which a computation's code processes a record or a timer: the key's state, its timers, and the output.

A method of the computation changes the key's state and timers through its context. These changes take effect only when
the method returns without an error. So if the method fails and the record is rejected, the key's state and timers stay
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias

from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment, text
from tailrace.model.base.values import of_value
from tailrace.model.logs.log import Log
from tailrace.model.windows.panes import Key


class ComputationError(TailraceError, RuntimeError):
    """The error for a computation whose code failed or used its context in an invalid way.

    If a method of the computation raises a `ComputationError`, the record or timer is rejected. If a `ComputationError`
    is raised elsewhere, the epoch fails, and nothing of the epoch is committed.
    """


class Domain(Enum):
    """The clock that triggers a timer: the watermark, or the processing time of the epochs (MillWheel, 4.6)."""

    EVENT = "event"
    PROCESSING = "processing"


Fits: TypeAlias = Callable[[Any], Any]
"""A function that converts a value to a column's type."""


class Code(Protocol):
    """The members of `Computation` that a context uses: declarations, and functions that convert values."""

    @property
    def name(self) -> str: ...

    @property
    def log(self) -> Log: ...

    @property
    def key(self) -> tuple[str, ...]: ...

    @property
    def loops(self) -> bool: ...

    @property
    def defaults(self) -> Mapping[str, Any]: ...

    @property
    def lists(self) -> tuple[str, ...]: ...

    @property
    def going_out(self) -> Sequence[tuple[str, Fits]]: ...

    @property
    def going_back(self) -> Sequence[tuple[str, Fits]]: ...

    def stored(self, name: str, given: Any) -> Any: ...


EVENT = Domain.EVENT
PROCESSING = Domain.PROCESSING


class Timer(NamedTuple):
    """A timer of a key, identified by its name. `time` and `holds` are in microseconds.

    `holds` is the earliest event time that a record produced by the timer may have. While the timer is pending, the
    watermark that the computation passes to its readers does not pass this event time (rule T3). If `holds` is None,
    the timer does not hold back this watermark.
    """

    name: str
    time: int
    domain: Domain
    holds: int | None

    @property
    def at(self) -> datetime:
        """The time at which the timer is due."""
        return moment(self.time)


class Values:
    """An object whose attributes are the fields of a key's state.

    >>> from tailrace.model.samples.visits import example
    >>> values = Values(example(), example().defaults)
    >>> values.clicks += 1
    >>> values.clicks
    1
    """

    __slots__ = ("__dict__", "_computation")

    _computation: Code

    def __init__(self, computation: Code, held: Mapping[str, Any]) -> None:
        copied = dict(held)
        for name in computation.lists:
            if copied[name] is not None:
                # Copy the list, because the computation's code may change the list in place.
                copied[name] = list(copied[name])
        _set_computation(self, computation)
        # Store the fields in `__dict__`: an attribute there is found without the slower call of `__getattr__`.
        _set_fields(self, copied)

    def __getattr__(self, name: str) -> Any:
        raise self._unknown(name)

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        if name not in fields:
            raise self._unknown(name)
        fields[name] = self._computation.stored(name, value)

    def clear(self) -> None:
        """Reset every field to its default."""
        fields = self.__dict__
        for name, default in self._computation.defaults.items():
            fields[name] = self._computation.stored(name, default)

    def __dir__(self) -> list[str]:
        return [*self.__dict__, "clear"]

    def _unknown(self, name: str) -> ComputationError:
        known = ", ".join(self.__dict__) or "none"
        return ComputationError(f"{self._computation.name}: state.{name}: expected a declared field ({known})")


_set_computation: Any = Values.__dict__["_computation"].__set__
_set_fields: Any = Values.__dict__["__dict__"].__set__
"""The setters of the two slots of `Values`: `_computation` (the computation's code) and `__dict__` (the state's
fields).
"""


class FedBack(NamedTuple):
    """A record that a computation fed back: the target key, the columns, and the event time in microseconds."""

    key: Key
    values: Mapping[str, Any]
    at: int


class Context:
    """The context of one call of a computation's method: the key, the key's state and timers, and the outputs of the
    call.

    `floor` is the earliest event time that a record produced by the call may have. `default` is the event time of a
    production for which the call specifies no event time. `floor` and `default` are in microseconds. `held` contains
    the current value of every field of the key's state.
    """

    __slots__ = (
        "_computation", "_default", "_dropped", "_fed_back", "_floor", "_now", "_produced", "_set", "_timers",
        "_watermark", "key", "state",
    )  # fmt: skip

    def __init__(
        self,
        computation: Code,
        key: Key,
        held: Mapping[str, Any],
        timers: Mapping[str, Timer],
        floor: int,
        default: int,
        watermark: int,
        now: int,
    ) -> None:
        self.key = key
        self.state = Values(computation, held)
        self._computation, self._floor, self._default = computation, floor, default
        self._watermark, self._now = watermark, now
        self._timers = dict(timers)
        self._produced: list[tuple[Mapping[str, Any], int]] = []
        self._fed_back: list[FedBack] = []
        self._set = self._dropped = 0

    @property
    def watermark(self) -> datetime:
        """The watermark that the computation's code may read. The watermark depends on how the input is divided into
        epochs.

        Normally, while a record is processed, `watermark` is the watermark at the start of the epoch. In two cases,
        `watermark` is instead the watermark at the end of the current epoch: while a timer is processed, and while a
        record of an `ordered` computation is processed.
        """
        return moment(self._watermark)

    @property
    def processing_time(self) -> datetime:
        """The epoch's processing time."""
        return moment(self._now)

    def produce(self, record: Mapping[str, Any] | None = None, event_time: datetime | int | None = None) -> None:
        """Output a record with the columns of the computation's `produces`; the key is added to the record.

        If `event_time` is left out, the production has the event time of the current record. While a timer is
        processed, the default is the timer's `holds` time, or the timer's due time if `holds` is None. Raises
        `ComputationError` if `event_time` is earlier than a lower limit. While a record is processed, the lower limit
        is the record's event time; while a timer is processed, the lower limit is the timer's `holds` time. If the
        timer has no `holds` time, the lower limit is the earliest event time that is not too late. If another pending
        timer of the key has an even earlier `holds` time, the lower limit is that earlier time (MillWheel, 4.5).
        """
        values = self._typed("produced", "produces", self._computation.going_out, record)
        self._produced.append((values, self._at("produced", event_time)))

    def feed_back(
        self, key: object, record: Mapping[str, Any] | None = None, event_time: datetime | int | None = None
    ) -> None:
        """Feed a record back to this key or to another key: `process_feedback` receives the record in the next epoch.

        `key` is a tuple, or a single value if the key has one column. `record` has the columns of `feedback`.
        `event_time` has the same meaning as in `produce`. Raises `ComputationError` if a column or the key does not
        match its declaration, or if the event time is too early.
        """
        computation, name = self._computation, self._computation.name
        if not computation.loops:
            raise ComputationError(f"{name}: fed a record back: expected process_feedback, which is to take it")
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) != len(computation.key):
            expected = ", ".join(computation.key) or "none: feed back to ()"
            raise ComputationError(f"{name}: fed back to key {key!r:.200}: expected a value for each of {expected}")
        columns = computation.log.columns
        to = tuple(
            self._value("fed back to", part, value, columns[part])
            for part, value in zip(computation.key, parts, strict=True)
        )
        values = self._typed("fed back", "feedback", computation.going_back, record)
        self._fed_back.append(FedBack(to, values, self._at("fed back", event_time)))

    def _typed(
        self, did: str, declared: str, fits: Sequence[tuple[str, Fits]], record: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Convert a record's columns to their declared types."""
        values: Mapping[str, Any] = record or {}
        types: Mapping[str, str] = getattr(self._computation, declared)
        if not values.keys() <= types.keys():
            unknown = sorted(set(values) - set(types))
            raise ComputationError(
                f"{self._computation.name}: {did} {', '.join(unknown)}: expected the columns "
                f"{', '.join(types) or '(none)'}; declare it in {declared}"
            )
        try:
            return {column: fit(values.get(column)) for column, fit in fits}
        except (ValueError, TypeError, ArithmeticError):
            # This code runs only after a failure, because converting column by column is slower. The error message then
            # names the column whose value does not fit.
            return {column: self._value(did, column, values.get(column), type_) for column, type_ in types.items()}

    def _value(self, did: str, column: str, value: Any, type_: str) -> Any:
        try:
            return None if value is None else of_value(value, type_)
        except (ValueError, TypeError, ArithmeticError):
            raise ComputationError(
                f"{self._computation.name}: {did} {column} = {value!r:.200}: expected {type_}"
            ) from None

    def _at(self, did: str, event_time: datetime | int | None) -> int:
        """Return an output record's event time in microseconds. Raises `ComputationError` if the time is too early."""
        at = self._default if event_time is None else instant(event_time)
        if not self._floor <= at <= END_OF_TIME:
            raise ComputationError(
                f"{self._computation.name}: {did} a record of {text(at)}: expected no earlier than {text(self._floor)},"
                " for those who read it may be past that; set a timer with holds= to be able to"
            )
        return at

    def set_timer(
        self, name: str, at: datetime | int, domain: Domain = EVENT, *, holds: datetime | int | None = None
    ) -> None:
        """Set a timer of the key.

        `process_timer` is called once, when the watermark or the processing time (`domain`) reaches `at`. The new timer
        replaces an earlier timer of the same name. `holds` is the earliest event time that a record produced by the
        timer may have. While the timer is pending, the watermark that the computation passes to its readers does not
        pass this event time. If you leave out `holds`, the `holds` time of an event-time timer is `at`, and a
        processing-time timer does not hold back the watermark (MillWheel, 4.5, 4.6 and 5.2). Raises `ComputationError`
        if `holds` is so early that the readers' watermark may already have passed it.
        """
        if not isinstance(name, str) or not name:
            raise ComputationError(f"{self._computation.name}: timer {name!r}: expected a name, for example 'end'")
        time = instant(at)
        if not BEGINNING <= time <= END_OF_TIME:
            time = min(max(time, BEGINNING), END_OF_TIME)
        held = None if holds is None else instant(holds)
        if held is not None and held < self._floor:
            raise ComputationError(
                f"{self._computation.name}: timer {name!r} holds {text(held)}: expected no earlier than "
                f"{text(self._floor)}, for those who read may be past that"
            )
        if held is None and domain is EVENT:
            held = max(time, self._floor)
        if name in self._timers:
            self._dropped += 1
        self._timers[name] = Timer(name, time, domain, held)
        self._set += 1

    def delete_timer(self, name: str) -> bool:
        """Delete a timer of the key. Return True if the key had a timer of this name."""
        found = self._timers.pop(name, None) is not None
        self._dropped += found
        return found

    def timer(self, name: str) -> Timer | None:
        """Return the pending timer of this name, or None if the key has no such timer."""
        return self._timers.get(name)
