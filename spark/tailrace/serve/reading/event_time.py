"""Divide event time into the columns of a grid. All columns have the same unit, from a minute to a century.

The number of columns on a page is limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment

MOST_COLUMNS = 62
"""The maximum number of columns of a grid: enough for the minutes of an hour or the days of two months."""

UNITS: Mapping[str, int] = {"century": 100, "decade": 10, "year": 1}
"""A mapping from each unit of one year or more to its length in years."""

_LENGTHS = {"month": None, "day": timedelta(days=1), "hour": timedelta(hours=1), "minute": timedelta(minutes=1)}

_LABELS = {"month": "%b", "day": "%-d", "hour": "%H", "minute": "%M"}
_BEGINS = {"month": "%Y", "day": "%b", "hour": "%-d %b"}
_NAMES = {"month": "%B %Y", "day": "%-d %B %Y", "hour": "%-d %B %Y, %H:00", "minute": "%-d %B %Y, %H:%M"}


class RangeError(TailraceError, ValueError):
    """Raised for a range of event time that a page cannot show."""


@dataclass(frozen=True)
class TimeRange:
    """A half-open range of event time, in microseconds."""

    first: int
    last: int

    @classmethod
    def of(cls, first: str, last: str) -> TimeRange:
        """Parse a range from two query parameters of a URL. Raises `RangeError` if the range is invalid or empty."""
        try:
            found = cls(*(instant(_parse(text)) for text in (first, last)))
        except (ValueError, OverflowError):
            raise RangeError(
                f"the range {first[:40]!r} to {last[:40]!r}: expected two instants, such as 2013-03-08T15:00:00Z"
            ) from None
        if found.first >= found.last:
            raise RangeError(f"the range {first[:40]!r} to {last[:40]!r} is empty: expected its start before its end")
        return found

    @property
    def query(self) -> dict[str, str]:
        """The range as query parameters of a URL."""
        return {"from": address_text(self.first), "to": address_text(self.last)}

    def holds(self, other: TimeRange) -> bool:
        """Return True if this range contains all of another range."""
        return self.first <= other.first and other.last <= self.last


def address_text(micros: int) -> str:
    """Format an instant for a URL, in the format that `TimeRange.of` parses."""
    return moment(micros).isoformat().replace("+00:00", "Z")


def _parse(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Column:
    """A column of a grid: the range that it covers, a short label and a full name."""

    range: TimeRange
    label: str
    name: str


def columns_of(unit: str, range: TimeRange) -> list[Column]:
    """Divide a time range into grid columns, each one unit (such as an hour) wide.

    The range is first extended to whole units at both ends.

    >>> [one.label for one in columns_of("hour", TimeRange.of("2013-03-08T22:00Z", "2013-03-09T02:00Z"))]
    ['22', '23', '9 Mar', '01']
    """
    found: list[Column] = []
    at = start_of_unit(unit, moment(range.first))
    while True:
        after = _next(unit, at)
        last = END_OF_TIME if after is None else instant(after)
        found.append(
            Column(TimeRange(max(BEGINNING, instant(at)), last), _label(unit, at, first=not found), _name(unit, at))
        )
        if after is None or last >= range.last or len(found) > MOST_COLUMNS:
            return found
        at = after


def choose_unit(range: TimeRange, step: int = 0) -> str:
    """Choose the shortest unit of time for a grid whose columns must cover a range.

    A unit is possible if the range needs at most `MOST_COLUMNS` columns. `step` is the time between the starts of
    consecutive windows, in microseconds. A unit that is shorter than `step` would leave columns empty, so a longer unit
    is preferred.

    >>> choose_unit(TimeRange.of("2013-01-01", "2013-04-01")), choose_unit(TimeRange.of("2013-03-08", "2013-03-09"))
    ('month', 'hour')
    >>> hour = TimeRange.of("2013-03-08T15:00Z", "2013-03-08T16:00Z")
    >>> choose_unit(hour), choose_unit(hour, step=3_600_000_000)
    ('minute', 'hour')
    """
    units = [*reversed([*_LENGTHS]), *reversed([*UNITS])]
    fits = [unit for unit in units if _room(unit, range)] or ["century"]
    coarse = next((unit for unit in fits if _length(unit) >= step), fits[-1])
    # If the preferred unit would show several windows in a single column, choose the shortest possible unit instead.
    # For example, weekly windows within a month are shown by day, because no unit has the length of a week.
    several = range.last - range.first > step and len(columns_of(coarse, range)) == 1
    return fits[0] if several else coarse


def _room(unit: str, range: TimeRange) -> bool:
    """Return True if a grid has room for all columns of this unit in the range."""
    if (range.last - range.first) / _length(unit) > MOST_COLUMNS:
        return False
    return len(columns_of(unit, range)) <= MOST_COLUMNS


def _length(unit: str) -> int:
    """Return the maximum length of a unit in microseconds; the maximum length of a month is 31 days."""
    length = _LENGTHS.get(unit) or timedelta(days=31 if unit == "month" else 366 * UNITS[unit])
    return length // timedelta(microseconds=1)


def wider(range: TimeRange) -> list[tuple[str, TimeRange]]:
    """List the names and ranges of the years, months, days and other units that contain a range, longest unit first.

    A page links to these ranges.

    >>> [name for name, _ in wider(TimeRange.of("2013-03-08T15:00Z", "2013-03-08T16:00Z"))]
    ['2013', 'March 2013', '8 March 2013', '8 March 2013, 15:00']
    """
    found = []
    for unit in ("century", "decade", "year", *_LENGTHS):
        column = columns_of(unit, TimeRange(range.first, range.first + 1))[0]
        if column.range.holds(range) and unit not in ("century", "decade"):
            found.append((column.name, column.range))
    return found


def start_of_unit(unit: str, at: datetime) -> datetime:
    """Return the start of the unit that contains an instant."""
    if years := UNITS.get(unit):
        return datetime(max(1, at.year // years * years), 1, 1, tzinfo=UTC)
    keep = list(_LENGTHS).index(unit)
    parts = (at.year, at.month, *(at.day, at.hour, at.minute)[:keep])
    return datetime(*parts, *([1] if keep == 0 else []), tzinfo=UTC)  # type: ignore[arg-type, misc]


def _next(unit: str, at: datetime) -> datetime | None:
    """Return the start of the next unit, or None at the end of time."""
    try:
        if years := UNITS.get(unit):
            return at.replace(year=at.year // years * years + years)
        if (long := _LENGTHS[unit]) is not None:
            return at + long
        return at.replace(year=at.year + at.month // 12, month=at.month % 12 + 1)
    except (ValueError, OverflowError):
        return None


def _label(unit: str, at: datetime, *, first: bool = True) -> str:
    """Return the label of the column that starts at `at`, such as the hour or, for the first hour of a day, the date.

    If a larger unit, such as a month, starts at the same time, the label names the larger unit. The exception is the
    first column of a grid (`first`), whose label always names the column's own unit.
    """
    if years := UNITS.get(unit):
        return f"{at.year}" if years == 1 else f"{at.year // years * years}s"
    larger = {"day": "month", "hour": "day", "month": "year"}.get(unit)
    if larger is not None and not first and at == start_of_unit(larger, at):
        return f"{at:{_BEGINS[unit]}}"
    return f"{at:{_LABELS[unit]}}"


def _name(unit: str, at: datetime) -> str:
    return _label(unit, at) if unit in UNITS else f"{at:{_NAMES[unit]}}"


def start_sql(unit: str, micros: str) -> str:
    """Return the DuckDB SQL for the start of the unit that contains an instant; all times are in microseconds."""
    at = f"make_timestamp({micros})"
    if (years := UNITS.get(unit, 1)) > 1:
        return f"epoch_us(make_timestamp(greatest(1, year({at}) // {years} * {years}), 1, 1, 0, 0, 0))"
    return f"epoch_us(date_trunc('{unit}', {at}))"
