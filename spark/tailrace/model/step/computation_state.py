"""The state of a computation between two epochs, and the results of an epoch (MillWheel, 4 to 6)."""

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
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.model.windows.panes import Key, Rejected

Record = Mapping[str, Any]


class KeyState(NamedTuple):
    """The state of a key between two epochs: its fields, its pending timers, and the records that wait for their turn.

    Timers are in the order in which they are due, records in the order of their event times. A key whose fields all
    have their defaults, with no timer and no record, is not kept.
    """

    fields: Mapping[str, Any] = MappingProxyType({})
    timers: tuple[Timer, ...] = ()
    waiting: tuple[Record, ...] = ()


NOTHING = KeyState()


class Feedback(NamedTuple):
    """A record that a key fed back, in flight to a key. `at` is its event time, in microseconds.

    `out_of` is the sending key as text (`source_of`), `place` the record's place among those that this key fed back in
    the epoch.
    """

    key: Key
    values: Mapping[str, Any]
    at: int
    epoch: int
    out_of: str
    place: int


@dataclass(frozen=True)
class KeysState:
    """The state of a computation between two epochs, and the clock of the last epoch.

    `in_flight` are the records that the computation fed back in that epoch.
    """

    keys: Mapping[Key, KeyState] = field(default_factory=dict)
    clock: Clock | None = None
    in_flight: tuple[Feedback, ...] = ()


class Production(NamedTuple):
    """A record that a computation produced. `at` is its event time, in microseconds.

    `place` is the record's place among those that the key produced in the epoch: key, epoch and place are unique.
    """

    key: Key
    values: Mapping[str, Any]
    at: int
    epoch: int
    place: int


class LateInput(NamedTuple):
    """A record that came too late for its computation: `behind` the watermark by so many microseconds."""

    record: Record
    key: Key
    behind: int
    epoch: int


class Work(NamedTuple):
    """The counts of a key's work in an epoch: records taken; timers set, fired, and deleted or set again (`dropped`).

    `returned` counts the records that came back as feedback, rejected ones included.
    """

    taken: int
    set: int
    fired: int
    dropped: int
    returned: int


class KeysOutcome(NamedTuple):
    """The result of a step: the state after it, the productions, the records left out, and the work of each key."""

    state: KeysState
    productions: list[Production]
    late: list[LateInput]
    rejected: list[Rejected]
    work: dict[Key, Work]


def record_of(computation: Computation, production: Production) -> dict[str, Any]:
    """Turn a production into the record that its readers get."""
    made = dict(zip(computation.key, production.key, strict=True)) | dict(production.values)
    place = (production.epoch, source_of(production.key), production.place)
    return made | {PANE_TIME: moment(production.at)} | dict(zip(PLACE, place, strict=True))


def returned_of(computation: Computation, one: Feedback) -> dict[str, Any]:
    """Turn a record in flight into the record that the receiving key takes."""
    made = dict(zip(computation.key, one.key, strict=True)) | dict(one.values)
    return made | {PANE_TIME: moment(one.at)} | dict(zip(PLACE, (one.epoch, one.out_of, one.place), strict=True))


def source_of(key: Key) -> str:
    """Write a key as the text that stands in its records for a partition of the source (`_source`).

    >>> source_of(("a", 1))
    '["a", "1"]'
    """
    # This is the text of `json.dumps`, which would make an encoder for each key.
    return f"[{', '.join(['null' if one is None else encode_basestring(str(one)) for one in key])}]"


def in_turn(productions: Iterable[Production]) -> list[Production]:
    """Sort an epoch's productions into the order in which they are claimed: by the key's text, then by place."""
    return sorted(productions, key=lambda one: (source_of(one.key), one.place))
