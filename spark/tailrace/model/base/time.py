"""Instants and durations: inside the model, they are integers in microseconds, and instants are UTC (rule T1)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from tailrace.model.base.errors import Fault

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The moment from which instants are counted."""

_MICROSECOND = timedelta(microseconds=1)

BEGINNING = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // _MICROSECOND
"""The instant before all events: the initial watermark, and the start of the global window."""

END_OF_TIME = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - EPOCH) // _MICROSECOND
"""The instant after all events: the watermark of an input that has ended, and the end of the global window."""

_DAY = 86_400_000_000
FIRST_DAY, LAST_DAY = BEGINNING // _DAY, END_OF_TIME // _DAY
"""The first day of the year 1 and the last day of the year 9999, in days since 1970."""

BEYOND = "lies outside the years 1 to 9999"
"""The reason for rejecting an instant or a date that no table can hold."""


def seconds(count: float) -> timedelta:
    """Return a duration of `count` seconds."""
    return timedelta(seconds=count)


def minutes(count: float) -> timedelta:
    """Return a duration of `count` minutes.

    >>> minutes(60) == hours(1)
    True
    """
    return timedelta(minutes=count)


def hours(count: float) -> timedelta:
    """Return a duration of `count` hours."""
    return timedelta(hours=count)


def days(count: float) -> timedelta:
    """Return a duration of `count` days of 24 hours."""
    return timedelta(days=count)


def waits(value: object) -> bool:
    """Return True if a value is a duration, and the duration is not negative."""
    return isinstance(value, timedelta) and value >= timedelta(0)


def duration(length: timedelta) -> int:
    """Convert a duration to microseconds.

    >>> duration(seconds(1.5))
    1500000
    """
    return length // _MICROSECOND


def instant(moment: datetime | int) -> int:
    """Convert an instant to microseconds since 1970; an integer is returned unchanged.

    Raises `ValueError` for a `datetime` without a time zone, because such a `datetime` does not define an instant.

    >>> instant(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone: write it with one, for example +00:00")
    since = moment - EPOCH
    # Dividing by the constant `_MICROSECOND` would return the same result but take twice as long.
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def moment(micros: int) -> datetime:
    """Convert microseconds since 1970 to a `datetime` in UTC. The function `moment` is the inverse of `instant`.

    >>> instant(moment(1_357_000_000_123_456))
    1357000000123456
    """
    return EPOCH + micros * _MICROSECOND


def text(micros: int) -> str:
    """Return an instant as text for users; the beginning and the end of time are returned as words.

    >>> text(0), text(END_OF_TIME), text(BEGINNING)
    ('1970-01-01T00:00:00Z', 'end of time', 'beginning')
    """
    if micros <= BEGINNING:
        return "beginning"
    if micros >= END_OF_TIME:
        return "end of time"
    return moment(micros).isoformat().replace("+00:00", "Z")


def duration_faults(path: str, value: object, example: str) -> Iterable[Fault]:
    """Yield a fault if a value is not a positive duration; the fault shows `example` as a valid value."""
    if not isinstance(value, timedelta) or value <= timedelta(0):
        yield Fault(path, value, "a duration of more than zero", f"write for example {example}")


def offset_faults(path: str, value: object) -> Iterable[Fault]:
    """Yield a fault if an offset from 1970 is not a duration."""
    if not isinstance(value, timedelta):
        yield Fault(path, value, "a duration", "write for example offset=minutes(5), or leave it out")


def length(micros: int) -> str:
    """Return a length of time, given in microseconds, as text. The unit is the largest unit that divides the length
    without a remainder.

    >>> length(10_800_000_000), length(5_400_000_000), length(0)
    ('3 hours', '90 minutes', '0 seconds')
    """
    for name, unit in _UNITS:
        if micros and micros % unit == 0:
            return f"{micros // unit} {name[:-1] if micros == unit else name}"
    return f"{micros / 1e6:.10g} seconds"


_UNITS = (("days", 86_400_000_000), ("hours", 3_600_000_000), ("minutes", 60_000_000), ("seconds", 1_000_000))
