"""Panes, which are the outputs of windows: a window emits a pane for each of its answers (Dataflow Model, 2.3)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from tailrace.model.windows.windows import Window

Key = tuple[Any, ...]
"""The values of a definition's key columns, in the order of the columns."""


class Accumulation(Enum):
    """The way in which the panes of one window relate to each other (Dataflow Model, 2.3).

    DISCARDING: a pane covers the records since the previous pane. ACCUMULATING: a pane covers all records so far.
    RETRACTING: a pane covers all records so far, and the previous pane is retracted first.
    """

    DISCARDING = "discarding"
    ACCUMULATING = "accumulating"
    RETRACTING = "retracting"


DISCARDING = Accumulation.DISCARDING
"""For `how`: a pane has only what came since the pane before it."""

ACCUMULATING = Accumulation.ACCUMULATING
"""For `how`: a pane has all that came so far, in place of the pane before it."""

RETRACTING = Accumulation.RETRACTING
"""For `how`: a pane has all that came so far, and the pane before it is retracted."""


class Timing(Enum):
    """The timing of a pane: early, on time or late relative to the watermark, or a correction by a backfill.

    An early pane fires before the watermark reaches the window's end, an on-time pane fires when the watermark reaches
    the window's end, and a late pane fires afterwards.
    """

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"
    CORRECTION = "correction"


class Timestamp(Enum):
    """The choice of the event time that a window's answer has as a record of a later stage (Dataflow Model, 2.2).

    END_OF_WINDOW: the window's last microsecond. EARLIEST and LATEST: the event time of the window's first or last
    record. With EARLIEST or LATEST, the later stage's watermark waits for windows that have not fired yet (rule T3).
    """

    END_OF_WINDOW = "end_of_window"
    EARLIEST = "earliest"
    LATEST = "latest"


END_OF_WINDOW = Timestamp.END_OF_WINDOW
"""For `timestamp`: the time of a pane is the last microsecond of its window."""

EARLIEST = Timestamp.EARLIEST
"""For `timestamp`: the time of a pane is that of its first record in event time."""

LATEST = Timestamp.LATEST
"""For `timestamp`: the time of a pane is that of its last record in event time."""


class Version(NamedTuple):
    """The version of a pane. Panes with the same key and window are ordered by their versions (rule V1)."""

    generation: int
    epoch: int
    index: int  # type: ignore[assignment]  # the pane's; nobody calls `tuple.index` of a version


@dataclass(frozen=True)
class Pane:
    """An answer for one key and window, or the retraction of an answer.

    `values` maps the names of the results to their values. If the pipeline's accumulation is DISCARDING, these results
    cover only the records since the previous pane. For other accumulations, these results cover all records so far.
    `answer` always contains the results for all records so far. A retraction removes the window's whole answer, and
    contains a copy of the removed answer. `watermark` and `processing_time` are the watermark and the processing time,
    in microseconds, at which the pane fired.
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
    """The event time of the answer in microseconds; None means the window's last microsecond."""
    parts: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The accumulator from which `values` are computed."""
    is_last: bool | None = None
    """Whether this is the last pane of the window, because the window closes in this epoch or its trigger has finished.

    `is_last` is None for a retraction. `is_last` is also None for a pane that a backfill wrote, because another
    backfill may correct the window again.
    """
    open: bool = False
    """Whether a backfill wrote this pane as the correction of a window that was still open in the stream.

    A later stage reads the panes with `open=True` in its next epoch.
    """


@dataclass(frozen=True)
class Late:
    """A record that is too late for one of its windows.

    The window has already closed, or the window's trigger has already finished (rules M1, M4).

    `behind` is the time, in microseconds, by which the watermark was past the window's end.
    """

    record: Mapping[str, Any]
    key: Key
    window: Window
    behind: int
    reason: str
    epoch: int


@dataclass(frozen=True)
class Rejected:
    """A record that a step of the definition could not process, and the reason for the rejection.

    `returned` is True for a record that was fed back. If `timer` is True, a timer of a computation was rejected;
    `record` then contains the key, and the time at which the timer was due.
    """

    record: Mapping[str, Any]
    reason: str
    epoch: int
    returned: bool = False
    timer: bool = False


def settled_indexes(panes: Iterable[tuple[Hashable, str, bool]]) -> Iterator[int | None]:
    """Yield the index of each pane among the panes of its window; early panes and retractions are not counted.

    The index of an early pane or a retraction is None.

    `panes` has one tuple for each pane, in the order of the panes. A tuple has three items: one value that identifies
    the pane's key, window and generation; the pane's timing; and whether the pane is a retraction.

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
"""The current answer for each key and window. The answers table contains the same answers."""


def answers(panes: Iterable[Pane]) -> Answers:
    """Compute the current answer of each key and window from panes: the answer with the highest version.

    If a retraction has the highest version, the key and window have no current answer. If a retraction and a pane have
    the same version, the pane takes precedence. The order of `panes` does not matter.
    """
    latest: dict[tuple[Key, Window], Pane] = {}
    for pane in panes:
        place = (pane.key, pane.window)
        held = latest.get(place)
        if held is None or (held.version, not held.retraction) < (pane.version, not pane.retraction):
            latest[place] = pane
    return {place: pane.answer for place, pane in latest.items() if not pane.retraction}
