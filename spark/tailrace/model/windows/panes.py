"""What comes out: panes, the record of every answer a window has given (Dataflow Model, 2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from tailrace.model.windows.windows import Window

Key = tuple[Any, ...]
"""The values of a definition's key columns, in their order."""


class Accumulation(Enum):
    """How the panes of one window relate to each other (Dataflow Model, 2.3).

    DISCARDING: a pane holds what came since the pane before. ACCUMULATING: a pane holds everything so far.
    RETRACTING: the same, and the pane before is taken back first.
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
    """When a window's answer happened, for a later stage: the timestamp combiner (Dataflow Model, 2.2).

    END_OF_WINDOW: at its last microsecond. EARLIEST and LATEST: with the first or last of its records; a later stage's
    watermark then waits for windows that have not fired (rule T3).
    """

    END_OF_WINDOW = "end_of_window"
    EARLIEST = "earliest"
    LATEST = "latest"


END_OF_WINDOW = Timestamp.END_OF_WINDOW
EARLIEST = Timestamp.EARLIEST
LATEST = Timestamp.LATEST


class Version(NamedTuple):
    """What orders the panes of one key and window (rule V1)."""

    generation: int
    epoch: int
    index: int  # type: ignore[assignment]  # of the pane; nobody looks for an item of a version


@dataclass(frozen=True)
class Pane:
    """One answer of one key and window, or the taking back of one.

    `values` are the named results: of what came since the pane before when discarding, else of everything so far.
    `answer` is always of everything so far. A retraction takes back the window's whole answer, which it repeats.
    `watermark` and `processing_time` are the clock's when it fired, in microseconds.
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
    """When the answer happened, in microseconds; the window's end but for one, where it is left out."""
    parts: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The accumulator that `values` are the results of."""


@dataclass(frozen=True)
class Late:
    """A record that came too late for one of its windows: expired, or its trigger was done (rules M1, M4).

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
    """A record that one of the definition's steps could not take, and why; `returned` is one that was fed back."""

    record: Mapping[str, Any]
    reason: str
    epoch: int
    returned: bool = False


Answers = dict[tuple[Key, Window], Mapping[str, Any]]
"""The current answer of every key and window: what table `p` holds."""


def answers(panes: Iterable[Pane]) -> Answers:
    """The current answers after these panes: of each key and window the highest version, unless it was taken back.

    Of a retraction and a pane with the same version the pane is the later. The order of the input does not matter.
    """
    latest: dict[tuple[Key, Window], Pane] = {}
    for pane in panes:
        place = (pane.key, pane.window)
        held = latest.get(place)
        if held is None or (held.version, not held.retraction) < (pane.version, not pane.retraction):
            latest[place] = pane
    return {place: pane.answer for place, pane in latest.items() if not pane.retraction}
