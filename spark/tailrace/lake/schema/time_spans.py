"""Choose the span of time that a partition of a table holds, from the definition.

A span is as short as an epoch allows: the records of an epoch are of about one time, their windows end within one
window's length of it, and so an epoch's rows lie in one span or two. A shorter span would have each epoch write more
files, and a longer one would have a reader of a day read more.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.model.base.time import days, duration
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions
from tailrace.model.logs.log import Log
from tailrace.model.logs.watermark_strategies import BoundedDisorder
from tailrace.model.windows.windows import Windowing

_SPANS = (("day", duration(days(1))), ("month", duration(days(31))), ("year", duration(days(366))))
"""The spans that a partition may hold, in microseconds: each is for times that lie less than so far apart."""


_SHORTEST = {"hour": 1 / 24, "day": 1, "month": 28, "year": 365}
"""The days that a span has at least."""


def span_terms(column: str, reach: int | None) -> tuple[str, ...]:
    """Return the partitioning by a column whose values in one epoch lie up to `reach` microseconds apart.

    None, for values that may lie any time apart, gives no partitioning.

    >>> [span_terms("at", reach) for reach in (0, duration(days(1)), duration(days(400)), None)]
    [('day(at)',), ('month(at)',), (), ()]
    """
    return next(((f"{span}({column})",) for span, most in _SPANS if reach is not None and reach < most), ())


def spans_between(span: str, first: int, last: int) -> int:
    """Return the most spans of a kind that instants lie in, from the first to the last, in microseconds.

    >>> spans_between("day", 0, 1), spans_between("day", 0, duration(days(2))), spans_between("month", 0, 1)
    (2, 3, 2)
    """
    return 2 + (last - first - 1) // duration(days(_SHORTEST[span]))


def reach_of_windows(where: Windowing) -> int | None:
    """Return how far the ends of an instant's windows lie apart, in microseconds; None where nobody can tell.

    Of a session that is its gap: a longer session grew from windows that ended before.

    >>> from tailrace.model.windows.windows import Fixed, Global, Sessions
    >>> reach_of_windows(Fixed(days(2))) == 2 * reach_of_windows(Sessions(days(1))), reach_of_windows(Global())
    (True, None)
    """
    return where.longest if where.longest is not None or not where.merges else where.reach or None


def reach_of_log(log: Log) -> int | None:
    """Return how far the event times of an epoch of a log lie apart, in microseconds; None where nobody can tell."""
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
    """Return the greatest of some reaches; None where one of them is not known."""
    found = list(reaches)
    return None if None in found else max(one or 0 for one in found)
