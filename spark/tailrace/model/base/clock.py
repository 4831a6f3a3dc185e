"""The clock of an epoch: an input of the step, recorded with the epoch (rules T2 and T3)."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model.base.errors import ClockError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, days, duration, text


@dataclass(frozen=True)
class Clock:
    """An epoch's number, the watermark that it ends with, and its processing time; the last two in microseconds.

    `signals` are the names of the signals from outside that came with the epoch.
    """

    epoch: int
    watermark: int
    processing_time: int
    signals: tuple[str, ...] = ()

    def after(self, before: Clock | None) -> Clock:
        """Return this clock, checked to follow `before`.

        Raises `ClockError` where a time went back or the epoch's number did not grow (rule T3).
        """
        if before is not None:
            for name in ("epoch", "watermark", "processing_time"):
                was, now = getattr(before, name), getattr(self, name)
                if now < was or (name == "epoch" and now == was):
                    texts = (str(was), str(now)) if name == "epoch" else (text(was), text(now))
                    raise ClockError(f"the {name} went from {texts[0]} to {texts[1]}: a clock never goes back")
        return self


def behind(watermark: int, now: int | None) -> int | None:
    """Return by how many microseconds a watermark is behind the clock; None without a clock, and at an end of time.

    >>> behind(2, 7), behind(7, 2), behind(END_OF_TIME, 7)
    (5, -5, None)
    """
    return now - watermark if now is not None and BEGINNING < watermark < END_OF_TIME else None


AHEAD = duration(days(1))
"""The maximum lead of a watermark over the clock without a warning: some logs are about events yet to happen."""


def ahead(watermark: int, now: int | None) -> int:
    """Return by how many microseconds a watermark is ahead of the clock; 0 up to a day, and at an end of time.

    One record of a far year, within its log's bounds, carries the watermark there, and all later records are late.

    >>> ahead(3 * AHEAD, AHEAD) // AHEAD, ahead(AHEAD, AHEAD), ahead(END_OF_TIME, AHEAD)
    (2, 0, 0)
    """
    if now is None or not BEGINNING < watermark < END_OF_TIME or watermark - now <= AHEAD:
        return 0
    return watermark - now
