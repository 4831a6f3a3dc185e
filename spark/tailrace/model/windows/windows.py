"""Windowings, which say where in event time: the windows of a record, and which windows merge (Dataflow Model, 2.2).

Windows are half open, `[start, end)`, in microseconds (rule T1). Assignment looks at one record alone, merging at one
key's windows alone. Of the built-in kinds only `Fixed` with a phase looks at more of a record than its event time. All
built-in kinds hold their options as data, so that each execution can compile them.
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
        """The instant that stands for the window: its last microsecond (rule T1)."""
        return self.end - 1

    def overlaps(self, other: Window) -> bool:
        """Tell whether two windows share an instant. Windows that just touch do not (rule M2).

        >>> [Window(2, 4).overlaps(other) for other in (Window(0, 2), Window(0, 3), Window(3, 6), Window(4, 6))]
        [False, True, True, False]
        """
        return self.start < other.end and other.start < self.end

    def __str__(self) -> str:
        return f"[{text(self.start)}, {text(self.end)})"


NOTHING: Mapping[str, Any] = MappingProxyType({})
"""An empty record, for windowings that look at the event time alone."""


class Windowing:
    """The base of windowings, which put records into windows that stay apart, or merge just where they overlap."""

    # Type checkers see read-only properties, so that a kind may have an attribute or an option instead, or compute it.
    if TYPE_CHECKING:

        @property
        def columns(self) -> tuple[str, ...]:
            """The log's columns that the windowing looks at besides the event time."""
            return ()

        @property
        def merges(self) -> bool:
            """Whether windows of one key that overlap become one."""
            return False

        @property
        def longest(self) -> int | None:
            """The greatest length of a window, in microseconds; None where that depends on the records."""
            return None

        @property
        def reach(self) -> int:
            """The time after a window closes in which a record that is not too late can reach it, in microseconds.

            Only windows that merge have a reach: a record in time may overlap a window that closed before it came.
            """
            return 0

    else:
        columns, merges, longest, reach = (), False, None, 0

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        """Return the windows of a record with event time `at`, by start."""
        raise NotImplementedError

    def gathered(self, windows: Iterable[Window]) -> Mapping[Window, list[Window]]:
        """Merge the windows of one key; return the merged windows by start, each with those it came from.

        Laws: the order of the input does not matter, and merging again changes nothing.
        """
        return gathered(windows)

    def faults(self, path: str) -> Iterable[Fault]:
        """Find the faults of the windowing's options."""
        return ()


def windows_within_time(where: Windowing, at: int, record: Mapping[str, Any]) -> list[Window]:
    """Assign a record to windows that are cut at the ends of time, beyond which no table can show an instant (T1).

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
    """Windows of one size, end to end, aligned to 1970 plus `offset` (figures 10 to 13).

    `phase` names a column of the key by whose value the windows are moved further: unaligned windows, which spread the
    load of completing them over time (Dataflow Model, 1.2).

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
    """Windows of one size, which start one period (`every`) apart, so that each record is in size / period of them.

    With a period above the size there are gaps: a record in a gap is in no window.

    Law: a window holds exactly the records of its span.

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
    """Spans of activity of one key, ended by a gap without a record (figure 14).

    Each record starts as a window of one gap; windows that overlap merge, windows that just touch do not (rule M2).

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
"""The column types whose values are written alike in every execution, so that a phase can be made of them."""

PHASE_STEP = 1_000_003
"""The factor that spreads a checksum of 32 bits over 136 years of microseconds: more than any window."""


def phase_of(value: object) -> int:
    """Compute how far the windows of a key with this value are moved, in microseconds, before reduction by their size.

    It is a checksum of the value as text, and so the same in every execution and in every year.

    >>> phase_of("a") == phase_of("a") != phase_of("b"), phase_of(None)
    (True, 0)
    """
    written = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return zlib.crc32(written.encode()) * PHASE_STEP


def merge(windows: Iterable[Window]) -> list[Window]:
    """Merge windows that overlap, directly or through others, into spans, by start (Dataflow Model, 2.2.2).

    Laws: the order of the input does not matter, and merging again changes nothing.

    >>> merge([Window(4, 6), Window(0, 3), Window(2, 4)])
    [Window(start=0, end=4), Window(start=4, end=6)]
    """
    return list(gathered(windows))


def gathered(windows: Iterable[Window]) -> dict[Window, list[Window]]:
    """Merge windows that overlap into spans, by start, each with the windows that it came from.

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
