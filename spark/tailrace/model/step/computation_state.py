"""The state of a computation between two epochs, and the result of an epoch (MillWheel, 4 to 6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import Any, NamedTuple

from tailrace.model.base.clock import Clock
from tailrace.model.base.time import moment
from tailrace.model.definition.computation import Computation, Timer
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.model.windows.panes import Key, Rejected

Record = Mapping[str, Any]


class KeyState(NamedTuple):
    """The state of a key between two epochs: fields, pending timers, and records that wait for the watermark.

    Timers are in the order in which they fire, and waiting records are sorted by event time. A key's state is stored
    only if the key has a timer, a waiting record, or a field whose value is not the default.
    """

    fields: Mapping[str, Any] = MappingProxyType({})
    timers: tuple[Timer, ...] = ()
    waiting: tuple[Record, ...] = ()


NOTHING = KeyState()


class Feedback(NamedTuple):
    """A record that one key has sent back into the computation and that its target key has not yet received.

    `at` is the event time of the record, in microseconds.

    `out_of` is the key that sent the record, as text (`source_of`). `place` is the record's position among all records
    that the sending key fed back in the same epoch.
    """

    key: Key
    values: Mapping[str, Any]
    at: int
    epoch: int
    out_of: str
    place: int


@dataclass(frozen=True)
class KeysState:
    """The states of all keys of a computation between two epochs, and the clock of the last epoch.

    `in_flight` contains the records that the computation fed back in the last epoch.
    """

    keys: Mapping[Key, KeyState] = field(default_factory=dict)
    clock: Clock | None = None
    in_flight: tuple[Feedback, ...] = ()


class Production(NamedTuple):
    """A record that a computation produced. `at` is the event time of the record, in microseconds.

    `place` is the record's position among all records that the same key produced in the same epoch. The combination of
    key, epoch and `place` is unique.
    """

    key: Key
    values: Mapping[str, Any]
    at: int
    epoch: int
    place: int


class LateInput(NamedTuple):
    """A record that arrived too late for its computation.

    `behind` is the number of microseconds by which the record was behind the watermark.
    """

    record: Record
    key: Key
    behind: int
    epoch: int


class Work(NamedTuple):
    """The work done for one key in an epoch: the numbers of records that were processed, and of timers that were set,
    fired or dropped.

    `dropped` counts the timers that were deleted, and the timers that a new timer of the same name replaced. `returned`
    counts the records that the computation had fed back to this key, including rejected records.
    """

    taken: int
    set: int
    fired: int
    dropped: int
    returned: int


class KeysOutcome(NamedTuple):
    """The result of a step: the new state, the productions, late and rejected records, and each key's work."""

    state: KeysState
    productions: list[Production]
    late: list[LateInput]
    rejected: list[Rejected]
    work: dict[Key, Work]


def record_of(computation: Computation, production: Production) -> dict[str, Any]:
    """Convert a production to the record that the readers of the computation receive."""
    made = dict(zip(computation.key, production.key, strict=True)) | dict(production.values)
    place = (production.epoch, source_of(production.key), production.place)
    return made | {PANE_TIME: moment(production.at)} | dict(zip(PLACE, place, strict=True))


def returned_of(computation: Computation, one: Feedback) -> dict[str, Any]:
    """Convert a `Feedback` into the record that its target key processes."""
    made = dict(zip(computation.key, one.key, strict=True)) | dict(one.values)
    return made | {PANE_TIME: moment(one.at)} | dict(zip(PLACE, (one.epoch, one.out_of, one.place), strict=True))


def source_of(key: Key) -> str:
    """Return a key as text. Records that the key produces have this text as their source partition (`_source`).

    >>> source_of(("a", 1))
    '["a", "1"]'
    """
    # `json.dumps` would return the same text, but it is slower, because it would create a new encoder for each key.
    return f"[{', '.join(['null' if one is None else encode_basestring(str(one)) for one in key])}]"


def in_turn(productions: Iterable[Production]) -> list[Production]:
    """Sort an epoch's productions into the order in which their ids are claimed in the registry: by key, then by
    `place`.

    Keys are compared as text.
    """
    return sorted(productions, key=lambda one: (source_of(one.key), one.place))
