"""MillWheel's computations: custom code for each key, with persistent state and timers (MillWheel, 4 and 5).

A computation is a class with the methods `process_record` and `process_timer`. These two methods may use only the
`Context`: the key's state, the key's timers, and the output. The function `step` in the module `computation_step`
defines how a computation processes an epoch. A computation with `process_feedback` has a loop: the records that the
computation feeds back in one epoch are input of the computation's next epoch. The state that is committed after each
epoch includes the records that are still in the loop. Asynchronous snapshots of dataflow graphs with cycles use the
same method.

A method of the computation changes the key's state and timers through its context. These changes take effect only when
the method returns without an error. So if the method fails and the record is rejected, the key's state and timers stay
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from functools import cache, cached_property, partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from tailrace.model.base.errors import Fault, TailraceError, raise_faults, unknown_column
from tailrace.model.base.names import RESERVED, key_faults, name_faults, reserved
from tailrace.model.base.several import Several
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration, instant, moment, text, waits
from tailrace.model.base.types import element_type, is_plain, stored_faults
from tailrace.model.base.values import fitter, of_value
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.fingerprint import digest, of_log
from tailrace.model.definition.key_batch import EVENT as EVENT
from tailrace.model.definition.key_batch import PROCESSING as PROCESSING
from tailrace.model.definition.key_batch import Batch
from tailrace.model.definition.key_batch import Domain as Domain
from tailrace.model.definition.once import Once
from tailrace.model.definition.record_steps import NONE_SET_ASIDE, Reasons
from tailrace.model.definition.source_text import written
from tailrace.model.logs.derived_logs import Arrivals, Productions, Union, taken_back
from tailrace.model.logs.log import PANE_TIME, Log, missing_log
from tailrace.model.windows.panes import Key

OWN = frozenset(
    {"state", "timers", "waiting", "taken", "timers_set", "timers_fired", "timers_dropped", "feedback", "returned"}
)
"""The names of the columns that a computation's ledger has in addition to the columns that all ledgers have."""


class ComputationError(TailraceError, RuntimeError):
    """The error for a computation whose code failed or used its context in an invalid way.

    If a method of the computation raises a `ComputationError`, the record or timer is rejected. If a `ComputationError`
    is raised elsewhere, the epoch fails, and nothing of the epoch is committed.
    """


Fits: TypeAlias = Callable[[Any], Any]
"""A function that converts a value to a column's type."""


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

    _computation: Computation

    def __init__(self, computation: Computation, held: Mapping[str, Any]) -> None:
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
        computation: Computation,
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


class NotKeptError(TailraceError, ValueError):
    """The error for an attempt to read a computation's productions from its ledger although they are not stored there.

    With `productions="weak"`, the ledger does not store the productions.
    """


@dataclass(frozen=True)
class Field:
    """A field of a key's state: its type (a column type, or `array<...>` of a column type) and its default value."""

    type: str
    default: Any = None


@dataclass(frozen=True, kw_only=True)
class Computation(Definition):
    """The base class of computations: implement `process_record`, and `process_timer` if you set timers.

    `state` declares the fields of a key's state. `produces` declares the output columns other than the key and
    `event_time`. If the class has options, make it a frozen dataclass: the options are part of the computation's
    identity. The code of the class is not part of the identity, so give the computation another name when you change
    the code. The code must return the same output for the same input on every call, because an epoch may be processed
    more than once.

    `process_record` receives all columns of the log, so all columns are part of the computation's identity. `reads`
    names the columns that the code needs in addition to the key and the event time. The code then receives no other
    columns, and the computation does not change if the log gets more columns.

    `key` names the key columns; if `key` is empty, all records have the same key. A record is too late if its event
    time is behind the watermark by more than `allowed_lateness`. With `ordered`, records wait in the state until the
    watermark has passed them. The waiting records are then processed in the order of their event times, together with
    the timers. So with `ordered`, the output does not depend on the order in which records arrive, or on how the
    records are divided into epochs. Without `ordered`, records are processed in the epoch in which they arrive, in the
    order of their event times.

    `feedback` declares the columns of the records that a computation with `process_feedback` sends through its loop.
    The target key and `event_time` are not declared in `feedback`. Records that are fed back in one epoch are in flight
    until the next epoch. The next epoch processes the records in flight before newly arrived records. The ledger stores
    the records in flight in the same commit as the states of the keys that sent them. So the ledger is consistent after
    every epoch. Records that are fed back are never late. The watermark that the computation passes to its readers
    waits for the records in flight.

    `productions` says whether the ledger keeps the productions, that is, the records that the computation outputs. With
    "strong", the ledger stores the productions of an epoch in the same commit as the state after that epoch. With
    "weak", productions are passed only to the definitions that read them. If a definition that reads the productions
    has to catch up, the productions are recomputed (MillWheel, 6.1.2 and 6.1.3).

    With `once`, the computation claims each production in a registry before readers receive the production. Several
    computations may share the registry. If another computation has already claimed the production, the ledger records
    the production as `claimed`, and no reader receives it (`model.definition.once`).
    """

    kind_name, recomputable, state_name = "computation", False, "keys"

    name: str
    log: Log
    key: Several[str] = Several()
    allowed_lateness: timedelta = timedelta(0)
    ordered: bool = False
    productions: Literal["strong", "weak"] = "strong"
    once: Once | None = None

    set_aside: ClassVar[Reasons] = NONE_SET_ASIDE
    """The records that the computation rejects because they were set aside: every epoch that contained them failed
    (rule X7).
    """

    state: ClassVar[Mapping[str, Field | str]] = {}
    produces: ClassVar[Mapping[str, str]] = {}
    feedback: ClassVar[Mapping[str, str]] = {}
    reads: ClassVar[str | tuple[str, ...] | None] = None

    def __post_init__(self) -> None:
        raise_faults(self.name, computation_faults(self))

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        """Process a record of the key; `record` maps the log's columns, or the columns in `reads`, to their values.

        If the method raises an error, the record is rejected, the error is stored as the reason for the rejection, and
        the key's state and timers stay unchanged. For a `RecordError`, the stored reason is exactly the error's
        message.
        """
        raise NotImplementedError

    def process_timer(self, context: Context, timer: Timer) -> None:
        """Process a due timer of the key.

        If the method raises an error, the timer is rejected like a record: the timer is removed, and the rest of the
        key's state stays unchanged.
        """
        raise NotImplementedError

    def process_feedback(self, context: Context, record: Mapping[str, Any]) -> None:
        """Process a record that the previous epoch fed back to the key.

        `record` has the key, the columns of `feedback`, and `event_time`. If the method raises an error, the record is
        rejected as in `process_record`.
        """
        raise NotImplementedError

    def process_batch(self, batch: Batch) -> None:
        """Process an epoch's records of many keys at once, over columns.

        The method is optional. Its outcome must be the one that `process_record` has for the same records, which
        `tailrace.testing.same_by_batch` checks. The engines call it where an epoch has many records; the reference
        execution, and epochs of few records, call `process_record`. If the method raises an error, the batch has no
        effect, and `process_record` processes the records.
        """
        raise NotImplementedError

    def process_timers(self, batch: Batch) -> None:
        """Process a due timer of each of many keys at once, over columns; `batch.due` has the timers.

        The method is optional, and is to `process_timer` what `process_batch` is to `process_record`. If a key has
        several due timers, the method is called again for the next one.
        """
        raise NotImplementedError

    @property
    def batches(self) -> bool:
        """Whether the computation can process records by columns."""
        return type(self).process_batch is not Computation.process_batch

    @property
    def batches_timers(self) -> bool:
        """Whether the computation can process timers by columns."""
        return type(self).process_timers is not Computation.process_timers

    @property
    def loops(self) -> bool:
        """Whether the computation has a loop: its code may feed records back to the computation itself."""
        return type(self).process_feedback is not Computation.process_feedback

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """The declared fields of a key's state."""
        declared = {name: Field(one) if isinstance(one, str) else one for name, one in type(self).state.items()}
        return MappingProxyType({n: Field(one.type, value_of(one.default, one.type)) for n, one in declared.items()})

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The default value of each field of the state."""
        return {name: one.default for name, one in self.fields.items()}

    @cached_property
    def lists(self) -> tuple[str, ...]:
        """The names of the state fields whose values are lists. The computation's code may change these lists in
        place.
        """
        return tuple([name for name, one in self.fields.items() if element_type(one.type)])

    @property
    def produced(self) -> Productions[Computation]:
        """The computation's productions, as a log that other definitions can read."""
        columns = {name: self.log.columns[name] for name in self.key} | dict(type(self).produces)
        return Productions(name=self.name, columns=columns | {PANE_TIME: "timestamp"}, event_time=PANE_TIME, of=self)

    @cached_property
    def lateness(self) -> int:
        """The allowed lateness in microseconds."""
        return duration(self.allowed_lateness)

    def reached(self, watermark: int) -> int:
        """Return the earliest event time, in microseconds, at which a record is not too late for this watermark.

        The event time of a production may be earlier than the returned time in two cases only: a pending timer of the
        production's key has an earlier `holds` time, or a record that was fed back has an earlier event time.
        """
        if watermark >= END_OF_TIME:
            return END_OF_TIME
        return max(BEGINNING, watermark - self.lateness)

    @cached_property
    def going_out(self) -> tuple[tuple[str, Fits], ...]:
        """For each column of the productions, a pair: the column's name, and a function that converts a value to the
        column's type.
        """
        return tuple((name, fitter(type_)) for name, type_ in type(self).produces.items())

    @cached_property
    def going_back(self) -> tuple[tuple[str, Fits], ...]:
        """For each column of fed-back records, a pair: the column's name, and a function that converts a value to the
        column's type.
        """
        return tuple((name, fitter(type_)) for name, type_ in type(self).feedback.items())

    @cached_property
    def _storing(self) -> Mapping[str, Fits]:
        return {name: _conversion(one.type) for name, one in self.fields.items()}

    def stored(self, name: str, value: Any) -> Any:
        """Convert a value to the type of a field of the state. Raises `ComputationError` if the value does not fit."""
        try:
            return self._storing[name](value)
        except (ValueError, TypeError, ArithmeticError):
            type_ = self.fields[name].type
            raise ComputationError(f"{self.name}: state.{name} = {value!r:.200}: expected {type_}") from None

    @property
    def fingerprint(self) -> str:
        """A digest of everything that determines the computation's meaning; compare `Pipeline.fingerprint`."""
        return self._digest(self.used)

    @property
    def former_fingerprint(self) -> str:
        return self._digest(None)

    @cached_property
    def used(self) -> frozenset[str]:
        return frozenset(self.record_columns)

    @cached_property
    def record_columns(self) -> Mapping[str, str]:
        """The columns of the records that `process_record` receives, with their types.

        The columns are the columns that `reads` declares, the key and the event time.
        """
        declared = type(self).reads
        if declared is None:
            return self.log.columns
        read = {*((declared,) if isinstance(declared, str) else declared), *self.key, self.log.event_time}
        return {name: type_ for name, type_ in self.log.columns.items() if name in read}

    def _digest(self, used: Collection[str] | None) -> str:
        found = of_log(self.log, used)
        follows = self.log.disorder if self.log.watermark is None else written(self.log.watermark)
        log: tuple[object, ...] = (self.log.event_time, follows)
        if isinstance(self.log, Productions | Union):
            log = (found["reads"], found["of"])
        base = {field.name for field in fields(Computation)}
        options = [(field.name, written(getattr(self, field.name))) for field in fields(self) if field.name not in base]
        meaning: tuple[object, ...] = (
            (type(self).__qualname__, options),
            found["columns"],
            log,
            (self.key, sorted((name, field.type, repr(field.default)) for name, field in self.fields.items())),
            sorted(type(self).produces.items()),
            (self.allowed_lateness, self.ordered, self.productions),
        )
        if self.loops:
            meaning = (*meaning, sorted(type(self).feedback.items()))
        if self.once is not None:
            meaning = (*meaning, written(self.once))
        if "required" in found:
            meaning = (*meaning, ("required", found["required"]))
        return digest(meaning)


def value_of(value: Any, type: str) -> Any:
    """Convert a value to a field's type.

    Raises `ValueError`, `TypeError` or `ArithmeticError` if the value does not fit.

    >>> value_of([1, None], "array<bigint>"), value_of(None, "string")
    ([1, None], None)
    """
    return _conversion(type)(value)


@cache
def _conversion(type: str) -> Fits:
    """Return a function that converts a value to a field's type. The function raises an error if the value does not
    fit.
    """
    inner = element_type(type)
    return partial(_listed, fitter(inner)) if inner else fitter(type)


def _listed(each: Fits, values: Any) -> Any:
    if values is None:
        return None
    if not isinstance(values, list) and isinstance(values, str | Mapping):
        raise TypeError
    return [each(value) for value in values]


def computation_faults(computation: Computation) -> Iterable[Fault]:
    """Find all faults of a computation."""
    yield from name_faults("name", computation.name)
    kind, log = type(computation), computation.log
    value: object = log
    if not isinstance(value, Log):
        yield missing_log(value, "log=earlier.produced")
        return
    if value.takes_back:
        yield taken_back("log", log, f"read the log that {log.name} reads")
    if isinstance(value, Arrivals):
        yield value.refused("log")
    for option in ("process_record",) if kind.process_record is Computation.process_record else ():
        yield Fault(option, None, "a method of the class", "write def process_record(self, context, record)")
    yield from key_faults(computation.key, log.columns, RESERVED | OWN)
    for name in (kind.reads,) if isinstance(kind.reads, str) else kind.reads or ():
        if name not in log.columns:
            yield unknown_column("reads", name, log.columns)
    yield from _state_faults(kind.state)
    for name, type_ in kind.produces.items():
        path = f"produces[{name!r}]"
        yield from name_faults(path, name)
        if name in RESERVED | OWN or "__" in str(name):
            yield reserved(path, name)
        if name in computation.key:
            yield Fault(path, name, "a name that the key does not have", "leave it out: the key goes with a record")
        yield from stored_faults(path, type_)
    yield from _loop_faults(computation)
    yield from _batch_faults(computation)
    if not waits(computation.allowed_lateness):
        found = computation.allowed_lateness
        yield Fault("allowed_lateness", found, "a duration of zero or more", "write hours(3)")
    elif computation.ordered and computation.allowed_lateness:
        expected = "no lateness where records come in order, for a late one would not"
        remedy = "leave it out, and let the log wait: disorder=hours(1)"
        yield Fault("allowed_lateness", str(computation.allowed_lateness), expected, remedy)
    if computation.productions not in ("strong", "weak"):
        yield Fault("productions", computation.productions, '"strong" or "weak"', 'leave it out for "strong"')
    if computation.once is not None:
        yield from _once_faults(computation, computation.once)


def _once_faults(computation: Computation, once: object) -> Iterable[Fault]:
    if not isinstance(once, Once):
        yield Fault(
            "once", once, "a registry, and the column that is the id", 'write once=Once("joined", by="click_id")'
        )
        return
    columns = {name: computation.log.columns[name] for name in computation.key if name in computation.log.columns}
    yield from once.faults("once", columns | dict(type(computation).produces))
    if computation.productions == "weak":
        expected = "strong productions, for what is claimed has to be kept with the state that it comes from"
        yield Fault("productions", "weak", expected, "leave productions or once out")


def _batch_faults(computation: Computation) -> Iterable[Fault]:
    if computation.batches_timers and not computation.batches:
        yield Fault("process_batch", None, "a method of the class where process_timers is one", "write process_batch")
    if not computation.batches:
        return
    if computation.ordered:
        remedy = "leave ordered or process_batch out"
        yield Fault("process_batch", "ordered", "no order by event time, in which records and timers alternate", remedy)
    if computation.loops:
        remedy = "leave process_feedback or process_batch out"
        yield Fault("process_batch", "process_feedback", "no loop, which goes from record to record", remedy)


def _loop_faults(computation: Computation) -> Iterable[Fault]:
    columns = type(computation).feedback
    if columns and not computation.loops:
        remedy = "write def process_feedback(self, context, record), or leave feedback out"
        yield Fault("process_feedback", None, "a method of the class that takes what is fed back", remedy)
    for name, type_ in columns.items():
        path = f"feedback[{name!r}]"
        yield from name_faults(path, name)
        if name in computation.key or name == PANE_TIME:
            yield Fault(path, name, "a name that the key and the event time do not have", "rename it")
        yield from stored_faults(path, type_)
    if computation.loops and computation.ordered:
        remedy = "leave ordered out: what is fed back comes an epoch later, whatever its event time"
        yield Fault("ordered", True, "no order by event time where records are fed back", remedy)


def _state_faults(state: Mapping[str, Field | str]) -> Iterable[Fault]:
    for name, declared in state.items():
        path, field = f"state[{name!r}]", Field(declared) if isinstance(declared, str) else declared
        yield from name_faults(path, name)
        if name == "clear":
            yield Fault(path, name, "a name other than that of context.state.clear()", "rename it, for example cleared")
        if not isinstance(field, Field) or not isinstance(field.type, str):
            yield Fault(path, declared, "a type, or a Field", 'write for example Field("bigint", 0)')
            continue
        if not is_plain(element_type(field.type) or field.type):
            yield Fault(path, field.type, "a column type, or array<...> of one", 'write for example "array<bigint>"')
            continue
        try:
            value_of(field.default, field.type)
        except (ValueError, TypeError, ArithmeticError):
            yield Fault(f"{path}.default", field.default, f"a value of type {field.type}", "leave it out for none")
