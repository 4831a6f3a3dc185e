"""Choose the span of time (day, month or year) by which a table is partitioned; the choice depends on the definition.

The chosen span is as short as possible, but so long that the rows of one epoch are in only one or two spans. The
records of an epoch have similar event times, and their windows end within one window's length of these times. With a
shorter span, each epoch would write more files. With a longer span, a reader of one day would have to read more rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.model.base.time import days, duration
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions
from tailrace.model.logs.log import Log
from tailrace.model.logs.watermark_strategies import BoundedDisorder
from tailrace.model.windows.windows import Windowing

_SPANS = (("day", duration(days(1))), ("month", duration(days(31))), ("year", duration(days(366))))
"""The spans by which a table can be partitioned, from short to long, each with its maximum length in microseconds.

A span is used if the times in one epoch are less than the span's maximum length apart.
"""


_SHORTEST = {"hour": 1 / 24, "day": 1, "month": 28, "year": 365}
"""The minimum length of each span of time, in days."""


def span_terms(column: str, reach: int | None) -> tuple[str, ...]:
    """Return partitioning terms for a time column whose values in one epoch are at most `reach` microseconds apart.

    If `reach` is None, the values in one epoch may be any time apart, and the result is empty: no partitioning.

    >>> [span_terms("at", reach) for reach in (0, duration(days(1)), duration(days(400)), None)]
    [('day(at)',), ('month(at)',), (), ()]
    """
    return next(((f"{span}({column})",) for span, most in _SPANS if reach is not None and reach < most), ())


def spans_between(span: str, first: int, last: int) -> int:
    """Return the maximum number of spans, such as days, over which the instants from `first` to `last` may be spread.

    Both bounds are in microseconds and are included.

    >>> spans_between("day", 0, 1), spans_between("day", 0, duration(days(2))), spans_between("month", 0, 1)
    (2, 3, 2)
    """
    return 2 + (last - first - 1) // duration(days(_SHORTEST[span]))


def reach_of_windows(where: Windowing) -> int | None:
    """Return the maximum distance between the end times of the windows that contain one instant, in microseconds.

    Returns None if the maximum is unknown. For sessions, the result is the gap: a session that is longer than the gap
    has grown from sessions that ended earlier.

    >>> from tailrace.model.windows.windows import Fixed, Global, Sessions
    >>> reach_of_windows(Fixed(days(2))) == 2 * reach_of_windows(Sessions(days(1))), reach_of_windows(Global())
    (True, None)
    """
    return where.longest if where.longest is not None or not where.merges else where.reach or None


def reach_of_log(log: Log) -> int | None:
    """Return the maximum distance between event times in one epoch of a log, in microseconds; None if it is unknown."""
    if isinstance(log, Panes):
        return reach_of_windows(log.of.where)
    if isinstance(log, Productions):
        return _farthest(reach_of_log(part) for part in log.of.log.parts)
    if isinstance(log, Arrivals):
        return 0
    if len(log.parts) > 1:
        return _farthest(map(reach_of_log, log.parts))
    return duration(log.strategy.behind) if isinstance(log.strategy, BoundedDisorder) else 0


def _farthest(reaches: Iterable[int | None]) -> int | None:
    """Return the largest of the given distances, or None if any of the distances is None."""
    found = list(reaches)
    return None if None in found else max(one or 0 for one in found)
