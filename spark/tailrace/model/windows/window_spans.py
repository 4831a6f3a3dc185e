"""Functions that find the windows in a range of event time from the windowing alone, without reading data (rule V5).

A window belongs to a range if its timestamp, the window's last microsecond, is in the range. Instants are in
microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.windows.calendars import Calendar
from tailrace.model.windows.windows import Fixed, Global, Sessions, Sliding, Window, Windowing

T = TypeVar("T")


def window_at(where: Windowing, at: int) -> Window | None:
    """Return the window that contains an instant, if there is exactly one such window.

    Returns None if more than one window may contain the instant, or if the window also depends on the record.

    >>> from tailrace.model.base.time import hours
    >>> window_at(Fixed(hours(1)), 5), window_at(Sliding(hours(2), every=hours(1)), 5)
    (Window(start=0, end=3600000000), None)
    """
    if not isinstance(where, Global | Calendar) and not (type(where) is Fixed and where.phase is None):
        return None
    (found,) = where.assign(at)
    return Window(max(BEGINNING, found.start), min(END_OF_TIME, found.end))


def windows_between(where: Windowing, first: int, last: int) -> bool:
    """Return True if the timestamp of at least one window may be in the range `[first, last)`.

    >>> from tailrace.model.base.time import hours
    >>> windows_between(Fixed(hours(1)), 5, 3_600_000_000), windows_between(Fixed(hours(1)), 5, 3_599_999_999)
    (True, False)
    """
    if first >= last:
        return False
    found = window_at(where, first)
    return found is None or found.end <= last


def windows_holding(where: Windowing, first: int, last: int) -> tuple[int, int]:
    """Return the two bounds of a range that contains the timestamps of all windows that may contain a time in `[first,
    last)`.

    If windows merge, the range extends to the end of time, because the length of the windows depends on the data.

    >>> from tailrace.model.base.time import hours
    >>> windows_holding(Fixed(hours(1)), 5, 6)
    (0, 3600000000)
    >>> windows_holding(Global(), 5, 6) == (END_OF_TIME - 1, END_OF_TIME)
    True
    """
    if isinstance(where, Global):
        return END_OF_TIME - 1, END_OF_TIME
    begin, end = window_at(where, first), window_at(where, last - 1)
    if begin is not None and end is not None:
        return begin.start, end.end
    if isinstance(where, Sessions):
        return first, END_OF_TIME
    if where.longest is None or where.merges:
        return BEGINNING, END_OF_TIME
    before = 0 if isinstance(where, Fixed | Sliding) else where.longest
    return max(BEGINNING, first - before), min(END_OF_TIME, last + where.longest)


def touching_groups(items: Iterable[T], span: Callable[[T], tuple[int, int]]) -> Iterator[list[T]]:
    """Group items whose half-open spans overlap or touch, directly or through other items.

    The items and the groups are sorted by span.

    >>> list(touching_groups([(7, 9), (0, 5), (5, 6), (2, 4)], lambda one: one))
    [[(0, 5), (2, 4), (5, 6)], [(7, 9)]]
    """
    group, end = list[T](), BEGINNING
    for one in sorted(items, key=span):
        first, last = span(one)
        if group and first > end:
            yield group
            group, end = [], last
        group.append(one)
        end = max(end, last)
    if group:
        yield group
