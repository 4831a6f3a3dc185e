"""Panes, the output of windows: the record of every answer that a window has given (Dataflow Model, 2.3)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from tailrace.model.windows.windows import Window

Key = tuple[Any, ...]
"""The values of a definition's key columns, in their order."""


class Accumulation(Enum):
    """The way in which the panes of one window relate to each other (Dataflow Model, 2.3).

    DISCARDING: a pane holds the records since the pane before. ACCUMULATING: a pane holds all records so far.
    RETRACTING: a pane holds everything so far, and the pane before is taken back first.
    """

    DISCARDING = "discarding"
    ACCUMULATING = "accumulating"
    RETRACTING = "retracting"


DISCARDING = Accumulation.DISCARDING
ACCUMULATING = Accumulation.ACCUMULATING
RETRACTING = Accumulation.RETRACTING


class Timing(Enum):
    """A pane's place against the watermark: before it, with it, after it, or by a backfill."""

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"
    CORRECTION = "correction"


class Timestamp(Enum):
    """The event time that a window's answer has in a later stage: the timestamp combiner (Dataflow Model, 2.2).

    END_OF_WINDOW: the window's last microsecond. EARLIEST and LATEST: the event time of its first or last record; a
    later stage's watermark then waits for windows that have not fired (rule T3).
    """

    END_OF_WINDOW = "end_of_window"
    EARLIEST = "earliest"
    LATEST = "latest"


END_OF_WINDOW = Timestamp.END_OF_WINDOW
EARLIEST = Timestamp.EARLIEST
LATEST = Timestamp.LATEST


class Version(NamedTuple):
    """The version of a pane: versions order the panes of one key and window (rule V1)."""

    generation: int
    epoch: int
    index: int  # type: ignore[assignment]  # the pane's; nobody calls `tuple.index` of a version


@dataclass(frozen=True)
class Pane:
    """An answer of one key and window, or the retraction of one.

    `values` are the named results: of the records since the pane before when discarding, else of all records.
    `answer` is always of everything so far. A retraction takes back the window's whole answer, which it repeats.
    `watermark` and `processing_time` are the clock's when the pane fired, in microseconds.
    """

    key: Key
    window: Window
    values: Mapping[str, Any]
    answer: Mapping[str, Any]
    timing: Timing
    retraction: bool
    version: Version
    watermark: int
    processing_time: int
    writer: str = "stream"
    timestamp: int | None = None
    """The answer's event time, in microseconds; None stands for the window's last microsecond."""
    parts: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The accumulator from which `values` are computed."""
    is_last: bool | None = None
    """Whether no pane of the window comes after it: the window closes in its epoch, or its trigger has finished.

    None of a retraction and of a correction, as a backfill may correct a window once more.
    """
    open: bool = False
    """Whether a backfill wrote it of a window that the stream could reach; later stages read it with the next epoch."""


@dataclass(frozen=True)
class Late:
    """A record that came too late for one of its windows: it had expired, or its trigger was done (rules M1, M4).

    `behind` says how far the watermark was past the window's end, in microseconds.
    """

    record: Mapping[str, Any]
    key: Key
    window: Window
    behind: int
    reason: str
    epoch: int


@dataclass(frozen=True)
class Rejected:
    """A record that a step of the definition could not take, and why; `returned` is true of one that was fed back.

    With `timer` it is a timer of a computation: the record has the key, and when the timer was due.
    """

    record: Mapping[str, Any]
    reason: str
    epoch: int
    returned: bool = False
    timer: bool = False


def settled_indexes(panes: Iterable[tuple[Hashable, str, bool]]) -> Iterator[int | None]:
    """Yield each pane's place among those of its window that are not early; None for an early one and a retraction.

    A pane is given by its place (key, window and generation), its timing, and whether it is a retraction, in order.

    >>> fired = [("w", "early", False), ("w", "on_time", False), ("w", "late", True), ("w", "late", False)]
    >>> list(settled_indexes(fired))
    [None, 0, None, 1]
    """
    counts: dict[Hashable, int] = {}
    for place, timing, retraction in panes:
        if retraction or timing == Timing.EARLY.value:
            yield None
        else:
            counts[place] = counts.get(place, -1) + 1
            yield counts[place]


Answers = dict[tuple[Key, Window], Mapping[str, Any]]
"""The current answer of every key and window: the contents of the answers table."""


def answers(panes: Iterable[Pane]) -> Answers:
    """Find the current answers after these panes: the highest version of each key and window, unless it was retracted.

    Of a retraction and a pane with the same version the pane is the later. The order of the input does not matter.
    """
    latest: dict[tuple[Key, Window], Pane] = {}
    for pane in panes:
        place = (pane.key, pane.window)
        held = latest.get(place)
        if held is None or (held.version, not held.retraction) < (pane.version, not pane.retraction):
            latest[place] = pane
    return {place: pane.answer for place, pane in latest.items() if not pane.retraction}
