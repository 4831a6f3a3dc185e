"""Calendar windows: days, weeks and longer periods, according to the local time of a time zone.

In the paper, any function of the event time can define windows (Dataflow Model, 1.2 and 2.2). For example, a bill may
depend on the customer's local day, which has 23 or 25 hours when the clocks change. Time zones have the names of the
IANA database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from tailrace.model.base.errors import Fault
from tailrace.model.base.time import BEGINNING, END_OF_TIME, days, duration, instant, moment
from tailrace.model.windows.windows import NOTHING, Window, Windowing

Unit = Literal["day", "week", "month", "quarter", "year"]

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_LONGEST: dict[Unit, int] = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
UNITS: tuple[Unit, ...] = tuple(_LONGEST)
_CYCLE = duration(days(146_097))
"""The length of 400 years in microseconds; dates, days of the week and clock changes repeat after this time."""

_FIRST, _LAST = BEGINNING + duration(days(400)), END_OF_TIME - duration(days(400))
"""The first and the last instant for which all windows and local times are certainly within the range of `datetime`."""

_CHANGE = days(2)
"""An upper bound on the time by which the clocks of a zone were ever set back. In a few zones, they were once set back
by a day, so that the same date occurred twice.
"""


@dataclass(frozen=True)
class Calendar(Windowing):
    """The days, weeks (from Monday), months, quarters or years of a time zone, in the local time of the zone.

    Law: every instant is in exactly one window. Each window starts at midnight or, if the clocks skip midnight, at the
    first instant after the skip.

    >>> from tailrace.model.base.time import text
    >>> noon = datetime.fromisoformat("2024-03-31T12:00:00+00:00")
    >>> [str(window) for window in Calendar("day", zone="Europe/Berlin").assign(instant(noon))]
    ['[2024-03-30T23:00:00Z, 2024-03-31T22:00:00Z)']
    """

    unit: Unit
    zone: str = "UTC"

    @property
    def longest(self) -> int | None:
        return duration(days(_LONGEST[self.unit]) + _CHANGE)

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        moved = _CYCLE if at < _FIRST else -_CYCLE if at >= _LAST else 0
        local = moment(at + moved).astimezone(self._zone).replace(tzinfo=None, fold=0)
        start = _floor(local, self.unit)
        first, last = self._instant(start), self._instant(_next(start, self.unit))
        return [Window(first - moved, last - moved)]

    def faults(self, path: str) -> Iterable[Fault]:
        if self.unit not in UNITS:
            yield Fault(f"{path}.unit", self.unit, f"one of {', '.join(UNITS)}", 'write Calendar("day")')
        zone: object = self.zone
        if not isinstance(zone, str) or zone not in available_timezones():
            expected = "the name of a time zone in the IANA database"
            yield Fault(f"{path}.zone", zone, expected, 'write for example zone="Europe/Berlin"')

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.zone)

    def _instant(self, local: datetime) -> int:
        # If a local time occurs twice, the result is the first of the two instants. If the clocks skip the local time,
        # the result is the instant of the skip.
        return instant(local.replace(tzinfo=self._zone))


def _floor(local: datetime, unit: Unit) -> datetime:
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "day":
        return midnight
    if unit == "week":
        return midnight - timedelta(days=midnight.weekday())
    months = _MONTHS[unit]
    return midnight.replace(month=(midnight.month - 1) // months * months + 1, day=1)


def _next(start: datetime, unit: Unit) -> datetime:
    if unit in ("day", "week"):
        return start + timedelta(days=_LONGEST[unit])
    months = start.year * 12 + start.month - 1 + _MONTHS[unit]
    return start.replace(year=months // 12, month=months % 12 + 1)
