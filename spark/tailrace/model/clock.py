"""The clock of an epoch, and how a watermark follows the data (MillWheel, low watermarks; rules T2 and T3)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tailrace.model.errors import ClockError
from tailrace.model.time import BEGINNING, END_OF_TIME, duration, text


@dataclass(frozen=True)
class Clock:
    """An epoch's number, the watermark it ends with, and its processing time; the last two in microseconds.

    `signals` are the names of the signals from outside that came with it.
    """

    epoch: int
    watermark: int
    processing_time: int
    signals: tuple[str, ...] = ()

    def after(self, before: Clock | None) -> Clock:
        """This clock, checked to follow `before`. Raises `ClockError` if anything went back (rule T3)."""
        if before is not None:
            for name in ("epoch", "watermark", "processing_time"):
                was, now = getattr(before, name), getattr(self, name)
                if now < was or (name == "epoch" and now == was):
                    shown = (str(was), str(now)) if name == "epoch" else (text(was), text(now))
                    raise ClockError(f"the {name} went from {shown[0]} to {shown[1]}: a clock never goes back")
        return self


@dataclass(frozen=True)
class BoundedDisorder:
    """A watermark that trails the latest event time seen by a bound on the disorder.

    A heuristic, as in MillWheel: a record further behind is late, not lost.

    Law: it never goes back, whatever is seen.

    >>> from tailrace.model.time import seconds
    >>> strategy = BoundedDisorder(seconds(1))
    >>> strategy.advance(5_000_000, latest=3_000_000)
    5000000
    >>> strategy.advance(5_000_000, latest=9_000_000)
    8000000
    """

    bound: timedelta

    def advance(self, watermark: int, latest: int | None) -> int:
        """The watermark after an epoch whose latest event time was `latest` (None for an empty one)."""
        if latest is None:
            return watermark
        return min(END_OF_TIME, max(BEGINNING, watermark, latest - duration(self.bound)))
