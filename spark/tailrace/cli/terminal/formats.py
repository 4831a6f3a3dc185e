"""Parse and format instants, durations, numbers and rates on the command line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from tailrace.cli.terminal.usage import UsageError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.model.base.time import text as instant_text
from tailrace.model.windows.panes import Key
from tailrace.model.windows.windows import Window

if TYPE_CHECKING:
    from tailrace.settings import Settings


def parse_instant(text: str, option: str) -> int:
    """Parse the value of an option, an ISO date or instant, to microseconds; the default time zone is UTC.

    Raises `UsageError` if the value has another form.

    >>> parse_instant("1970-01-01T01:00+01:00", "--from"), parse_instant("1970-01-02", "--from")
    (0, 86400000000)
    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: expected a date or an instant, for example 2013-03-08 or 2013-03-08T15:00Z"
        ) from None
    return instant(at if at.tzinfo else at.replace(tzinfo=UTC))


def time_text(micros: int | None) -> str:
    """Return an instant as text, in its shortest exact form; None becomes a dash.

    >>> time_text(0), time_text(1_500_000), time_text(END_OF_TIME), time_text(None)
    ('1970-01-01T00:00Z', '1970-01-01T00:00:01.500Z', 'end of time', '–')
    """
    if micros is None:
        return "–"
    if micros <= BEGINNING or micros >= END_OF_TIME:
        return "beginning" if micros <= BEGINNING else "end of time"
    at = moment(micros)
    fraction = f".{at.microsecond:06d}" if at.microsecond % 1000 else f".{at.microsecond // 1000:03d}"
    seconds = f":{at.second:02d}" if at.second or at.microsecond else ""
    return f"{at:%Y-%m-%dT%H:%M}{seconds}{fraction if at.microsecond else ''}Z"


def short_times(instants: Iterable[int | None]) -> tuple[str, Callable[[int | None], str]]:
    """Return the day or year that all instants share, and a function that formats an instant without the shared part.

    >>> day, said = short_times([0, 3_600_000_000, None, END_OF_TIME])
    >>> day, said(3_600_000_000), said(None), said(END_OF_TIME)
    ('1970-01-01', '01:00', '–', 'end of time')
    >>> short_times([0, 86_400_000_000])[1](86_400_000_000)
    '01-02 00:00'
    """
    texts = [text for text in map(time_text, instants) if text.endswith("Z")]
    for cut in (11, 5):
        if len({text[:cut] for text in texts}) == 1:
            return texts[0][: cut - 1], partial(_without, cut)
    return "", time_text


def _without(cut: int, micros: int | None) -> str:
    """Return an instant as text without its first `cut` characters, and with a space between day and time."""
    text = time_text(micros)
    return text[cut:-1].replace("T", " ") if text.endswith("Z") else text


def bounds(window: Window, write: Callable[[int], str] = time_text) -> str:
    """Return the start and end of a window as text; if both are on the same day, the day is written once.

    `write` is the function that formats an instant.

    >>> bounds(Window(0, 3_600_000_000))
    '[1970-01-01T00:00Z, 01:00Z)'
    >>> bounds(Window(0, 3_600_000_000), short_times([0, 86_400_000_000])[1])
    '[01-01 00:00, 01:00)'
    """
    start, end = time_text(window.start), time_text(window.end)
    same_day = len(end) == len(start) and end[:11] == start[:11] and end[10:11] == "T"
    last = write(window.end)
    return f"[{write(window.start)}, {re.split('[T ]', last)[-1] if same_day else last})"


def span(length: timedelta | float) -> str:
    """Format a duration in its two largest units. A number is taken as seconds.

    >>> span(0.42), span(75), span(timedelta(hours=26, minutes=3)), span(3600)
    ('0.42 s', '1 min 15 s', '1 d 2 h', '1 h')
    """
    seconds = length.total_seconds() if isinstance(length, timedelta) else float(length)
    if seconds < 0:
        return "-" + span(-seconds)
    if seconds < 10:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + " s"
    left, parts = round(seconds), list[str]()
    for name, unit in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, unit)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def quantity(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun, in the singular or plural.

    >>> quantity(1, "epoch"), quantity(12345, "record"), quantity(0, "retry", "retries")
    ('1 epoch', '12,345 records', '0 retries')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def rate(count: int, seconds: float) -> str:
    """Return a rate per second as text, rounded to three significant digits, or to two if the rate is below ten.

    If no time has passed, the text is a dash.

    >>> rate(12345, 10), rate(3, 10), rate(5, 0)
    ('1,230', '0.3', '–')
    """
    if seconds <= 0:
        return "–"
    value = count / seconds
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 10 else f"{value:.2g}"


def key_text(key: Key) -> str:
    """Return the parts of a key as text, separated by slashes. The empty key becomes "all".

    >>> key_text(("EWR", None)), key_text(())
    ('EWR/null', 'all')
    """
    return "/".join("null" if part is None else str(part) for part in key) or "all"


def value_text(value: Any) -> str:
    """Return the value of a column as text. None becomes a dash.

    >>> value_text(1234567), value_text(0.123456789), value_text(True), value_text(None)
    ('1,234,567', '0.123457', 'True', '–')
    >>> value_text([{"sku": "x", "key": b"\\x00", "at": datetime(1970, 1, 1, tzinfo=UTC)}, None])
    '[{"sku": "x", "key": "00", "at": "1970-01-01T00:00:00Z"}, null]'
    """
    if value is None:
        return "–"
    if isinstance(value, dict | list):
        return nested_text(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, datetime):
        return instant_text(instant(value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def nested_text(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return a nested value as JSON text in one line; values that JSON lacks are texts (`json_text`)."""
    return strict_json(value, default=json_text)


def strict_json(value: Any, default: Callable[[Any], Any], indent: int | None = None) -> str:
    """Return a value as JSON text, in which NaN and the infinities are texts, because JSON has no such numbers.

    >>> strict_json({"a": [1.5, float("nan"), float("-inf")]}, default=json_text)
    '{"a": [1.5, "NaN", "-Infinity"]}'
    """
    try:
        return json.dumps(value, default=default, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=default, ensure_ascii=False, indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def json_text(value: Any) -> str:
    """Return the text in JSON of a value that JSON lacks: of an instant, a date, bytes or a decimal.

    >>> json_text(b"\\x00\\xff"), json_text(datetime(1970, 1, 1, tzinfo=UTC))
    ('00ff', '1970-01-01T00:00:00Z')
    """
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)


def not_streamed(settings: Settings, definition: str) -> str:
    """Return the message that no stream of a definition has filled the lake yet, with the lake and the command."""
    where = f"{settings.warehouse}{settings.unplaced}"
    return f"no stream has run yet in {where}: tailrace stream {shlex.quote(definition)} --from DIR"
