"""Windowings, which define where in event time results are computed (Dataflow Model, 2.2).

A windowing assigns records to windows, and determines which windows are merged. Windows are half-open intervals,
`[start, end)`, in microseconds (rule T1). The windows of a record depend on that record alone; merging depends only on
the windows of one key. Of the built-in windowings, only `Fixed` with a phase uses columns of a record other than the
event time. The options of the built-in windowings are data, so each windowing can be translated, for example to SQL.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.model.base.errors import Fault
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration, duration_faults, offset_faults, text


class Window(NamedTuple):
    """A half-open span of event time, in microseconds."""

    start: int
    end: int

    @property
    def timestamp(self) -> int:
        """The instant that represents the window in event time: the window's last microsecond (rule T1)."""
        return self.end - 1

    def overlaps(self, other: Window) -> bool:
        """Return True if two windows share an instant; windows that only touch do not overlap (rule M2).

        >>> [Window(2, 4).overlaps(other) for other in (Window(0, 2), Window(0, 3), Window(3, 6), Window(4, 6))]
        [False, True, True, False]
        """
        return self.start < other.end and other.start < self.end

    def __str__(self) -> str:
        return f"[{text(self.start)}, {text(self.end)})"


NOTHING: Mapping[str, Any] = MappingProxyType({})
"""An empty record, which is passed to windowings that use only the event time."""


class Windowing:
    """The base class of windowings, which assign records to windows and may merge windows that overlap."""

    # Type checkers see the members below as read-only properties. So a windowing may define them as attributes, options
    # or properties.
    if TYPE_CHECKING:

        @property
        def columns(self) -> tuple[str, ...] | None:
            """The columns that the windowing reads, in addition to the event time; None if it may read all columns.

            A custom windowing that declares its columns receives only these columns of a record.
            """
            return None

        @property
        def merges(self) -> bool:
            """Whether overlapping windows of one key merge into one window."""
            return False

        @property
        def longest(self) -> int | None:
            """The maximum length of a window in microseconds; None if there is no known maximum."""
            return None

        @property
        def reach(self) -> int:
            """The maximum time, in microseconds, for which a window can still change after it has closed.

            The reach is zero unless windows merge. If windows merge, the window of a record that is not too late may
            overlap a window that has already closed.
            """
            return 0

    else:
        columns, merges, longest, reach = None, False, None, 0

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        """Return the windows of a record with event time `at`, ordered by start."""
        raise NotImplementedError

    def gathered(self, windows: Iterable[Window]) -> Mapping[Window, list[Window]]:
        """Merge the windows of one key.

        Returns a dict that maps each merged window to the list of its original windows. The merged windows are ordered
        by start.

        Laws: the order of the input does not matter, and merging the result again returns the same result.
        """
        return gathered(windows)

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the windowing's options."""
        return ()


def windows_within_time(where: Windowing, at: int, record: Mapping[str, Any]) -> list[Window]:
    """Return the windows of a record, cut at the beginning and the end of time so that tables can store them (rule T1).

    >>> from tailrace.model.base.time import days
    >>> [END_OF_TIME - window.end for window in windows_within_time(Fixed(days(7)), END_OF_TIME - 1, {})]
    [0]
    """
    return [Window(max(start, BEGINNING), min(end, END_OF_TIME)) for start, end in where.assign(at, record)]


@dataclass(frozen=True)
class Global(Windowing):
    """A single window for all of event time (Dataflow Model, figures 6 to 9).

    >>> Global().assign(0) == [Window(BEGINNING, END_OF_TIME)]
    True
    """

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        return [Window(BEGINNING, END_OF_TIME)]


@dataclass(frozen=True)
class Fixed(Windowing):
    """Adjacent windows of the same size; the windows are aligned to 1970 plus `offset` (figures 10 to 13).

    `phase` names a key column; the windows of each key are also shifted by a time that depends on the key's value in
    this column. So the windows of different keys end at different times, which spreads the work of completing windows
    over time (Dataflow Model, 1.2).

    Law: every instant is in exactly one window.

    >>> from tailrace.model.base.time import minutes
    >>> [(w.start // 60_000_000, w.end // 60_000_000) for w in Fixed(minutes(2)).assign(180_000_000)]
    [(2, 4)]
    """

    size: timedelta
    offset: timedelta = timedelta(0)
    phase: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.phase is None else (self.phase,)

    @property
    def longest(self) -> int | None:
        return duration(self.size)

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        size = duration(self.size)
        phase = 0 if self.phase is None else phase_of(record.get(self.phase))
        start = at - (at - duration(self.offset) - phase) % size
        return [Window(start, start + size)]

    def faults(self, path: str) -> Iterable[Fault]:
        yield from duration_faults(f"{path}.size", self.size, "Fixed(minutes(10))")
        yield from offset_faults(f"{path}.offset", self.offset)
        if self.phase is not None and not isinstance(self.phase, str):
            yield Fault(f"{path}.phase", self.phase, "the name of a column of the key", "leave it out")


@dataclass(frozen=True)
class Sliding(Windowing):
    """Windows of the same size that may overlap; a new window starts in each period (`every`).

    Each record is in about size / period windows. If the period is longer than the size, there are gaps between
    windows, and a record in a gap is in no window.

    Law: a window contains exactly the records whose event times are at or after the window's start and before its end.

    >>> from tailrace.model.base.time import seconds
    >>> [(w.start, w.end) for w in Sliding(seconds(4), every=seconds(2)).assign(5_000_000)]
    [(2000000, 6000000), (4000000, 8000000)]
    """

    size: timedelta
    every: timedelta
    offset: timedelta = timedelta(0)

    @property
    def longest(self) -> int | None:
        return duration(self.size)

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        size, every = duration(self.size), duration(self.every)
        last = at - (at - duration(self.offset)) % every
        count = max(0, -(-(size - (at - last)) // every))
        return [Window(start, start + size) for start in range(last - (count - 1) * every, last + 1, every)]

    def faults(self, path: str) -> Iterable[Fault]:
        yield from duration_faults(f"{path}.size", self.size, "Sliding(hours(1), every=minutes(10))")
        yield from duration_faults(f"{path}.every", self.every, "Sliding(hours(1), every=minutes(10))")
        yield from offset_faults(f"{path}.offset", self.offset)


@dataclass(frozen=True)
class Sessions(Windowing):
    """Periods of activity of one key.

    A session ends when the key has had no record for the length of the gap (figure 14). At first, each record has its
    own window, which starts at the record's event time and is as long as the gap. Windows that overlap are merged;
    windows that only touch are not merged (rule M2).

    >>> from tailrace.model.base.time import seconds
    >>> one = Sessions(seconds(1))
    >>> merge(one.assign(0) + one.assign(500_000) + one.assign(1_500_000))
    [Window(start=0, end=1500000), Window(start=1500000, end=2500000)]
    """

    gap: timedelta

    merges = True

    @property
    def reach(self) -> int:
        return duration(self.gap)

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        return [Window(at, at + duration(self.gap))]

    def faults(self, path: str) -> Iterable[Fault]:
        yield from duration_faults(f"{path}.gap", self.gap, "Sessions(minutes(30))")


PHASE_TYPES = ("string", "boolean", "int", "bigint", "date")
"""The column types that a phase can use, because values of these types have the same text in every execution."""

PHASE_STEP = 1_000_003
"""The factor by which a 32-bit checksum is multiplied to get the time, in microseconds, by which windows are shifted.

The maximum shift is 136 years, which is longer than any window.
"""


def phase_of(value: object) -> int:
    """Return the time in microseconds by which a phase value shifts windows, before reduction modulo the window size.

    The time is computed from a checksum of the value's text, so it never changes and is the same in every execution.

    >>> phase_of("a") == phase_of("a") != phase_of("b"), phase_of(None)
    (True, 0)
    """
    written = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return zlib.crc32(written.encode()) * PHASE_STEP


def merge(windows: Iterable[Window]) -> list[Window]:
    """Merge windows that overlap, directly or through other windows (Dataflow Model, 2.2.2).

    Returns the merged windows, ordered by start. Laws: the order of the input does not matter, and merging the result
    again returns the same result.

    >>> merge([Window(4, 6), Window(0, 3), Window(2, 4)])
    [Window(start=0, end=4), Window(start=4, end=6)]
    """
    return list(gathered(windows))


def gathered(windows: Iterable[Window]) -> dict[Window, list[Window]]:
    """Merge windows that overlap, and return which windows were merged.

    Returns a dict that maps each merged window to the list of its original windows. The merged windows are ordered by
    start.

    >>> gathered([Window(4, 6), Window(0, 3), Window(2, 4)])[Window(0, 4)]
    [Window(start=0, end=3), Window(start=2, end=4)]
    """
    spans: list[tuple[Window, list[Window]]] = []
    for window in sorted(windows):
        if spans and spans[-1][0].overlaps(window):
            span, members = spans[-1]
            members.append(window)
            spans[-1] = (Window(span.start, max(span.end, window.end)), members)
        else:
            spans.append((window, [window]))
    return dict(spans)
