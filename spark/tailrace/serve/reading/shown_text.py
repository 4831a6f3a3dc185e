"""Format table values for a page: cut long values, and replace characters that hide or reverse other text.

Templates escape all values. This module handles three problems that escaping does not solve: very long texts, invisible
characters, and characters that change the direction of the surrounding text.
"""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.plots.plot import format_value

CUT = 160
"""The maximum number of characters that a page shows of a value."""

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""The Unicode categories of characters that pages show as code points, such as control and format characters."""


def value_text(value: object, most: int = CUT) -> str:
    """Format a value for a page, with at most `most` characters.

    >>> value_text("a" * 1_000_000)[-3:], value_text("a\\u202eb"), value_text(None), value_text(12345)
    ('aa…', 'a⟨U+202E⟩b', '–', '12,345')
    """
    if isinstance(value, bytes):
        value = value[: most + 1].hex(" ")
    text = value if isinstance(value, str) else _short(value)
    whole, text = len(text) <= most, text[:most]
    seen = "".join(f"⟨U+{ord(one):04X}⟩" if unicodedata.category(one) in _HIDDEN else one for one in text)
    return seen if whole else f"{seen}…"


def _short(value: object) -> str:
    if isinstance(value, datetime):
        return instant_text(instant(value if value.tzinfo else value.replace(tzinfo=UTC)))
    return format_value(value)


def instant_text(micros: int | None) -> str:
    """Format an instant in UTC with its full precision, or None as a dash.

    >>> instant_text(0), instant_text(1_500_000), instant_text(END_OF_TIME), instant_text(None)
    ('1970-01-01 00:00', '1970-01-01 00:00:01.500000', 'end of time', '–')
    """
    if micros is None:
        return "–"
    if micros <= BEGINNING or micros >= END_OF_TIME:
        return "beginning of time" if micros <= BEGINNING else "end of time"
    at = moment(micros)
    text = at.replace(tzinfo=None).isoformat(" ")
    return text.removesuffix(":00") if not at.second and not at.microsecond else text


def second_text(micros: int | None) -> str:
    """Format an instant in UTC for an overview, rounded down to whole seconds.

    >>> second_text(1_500_000), second_text(BEGINNING), second_text(END_OF_TIME)
    ('1970-01-01 00:00:01', 'beginning of time', 'end of time')
    """
    if micros is None or not BEGINNING < micros < END_OF_TIME:
        return instant_text(micros)
    return instant_text(micros - micros % 1_000_000)


def window_text(start: int, end: int) -> str:
    """Format a window as its start and end; the date appears only once if the start and the end are on the same day.

    >>> window_text(0, 3_600_000_000), window_text(0, 86_400_000_000)
    ('1970-01-01 00:00 – 01:00', '1970-01-01 00:00 – 1970-01-02 00:00')
    """
    first, last = instant_text(start), instant_text(end)
    if first[:11] == last[:11] and last[4:5] == "-":
        last = last[11:]
    return f"{first} – {last}"


def span_text(micros: int) -> str:
    """Format a duration in its two largest units, or as decimal seconds if it is shorter than ten seconds.

    >>> span_text(93_600_000_000), span_text(90_000_000), span_text(1_500_000), span_text(0)
    ('1 d 2 h', '1 min 30 s', '1.5 s', '0 s')
    """
    if micros < 10_000_000:
        return f"{micros / 1e6:.3g} s"
    left, parts = micros // 1_000_000, list[str]()
    for name, unit in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count} {name}")
        if len(parts) == 2 or (parts and not count):
            break
    return " ".join(parts)


def count_text(count: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun, in the singular or the plural.

    >>> count_text(1, "window"), count_text(12345, "window")
    ('1 window', '12,345 windows')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def compact(count: int) -> str:
    """Format a count in at most five characters; zero becomes an empty text.

    >>> compact(0), compact(999), compact(12_345), compact(1_000_000)
    ('', '999', '12k', '1.0M')
    """
    if not count:
        return ""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.1f}{unit}" if count < 10 * size else f"{count // size}{unit}"
    return str(count)
