"""What a computation has between two epochs, and what comes out of one (MillWheel, 4 to 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import Any, NamedTuple

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import moment
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.context import Timer
from tailrace.model.definition.log import PANE_TIME, PLACE
from tailrace.model.windows.panes import Key, Rejected

Record = Mapping[str, Any]


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
    # What `json.dumps` gives; it would make an encoder for each.
    return f"[{', '.join(['null' if one is None else encode_basestring(str(one)) for one in key])}]"


def in_turn(productions: Iterable[Production]) -> list[Production]:
    """The productions of an epoch in the order in which they are claimed: by the key's text, and as it made them."""
    return sorted(productions, key=lambda one: (source_of(one.key), one.place))
