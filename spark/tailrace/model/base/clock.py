"""The clock of an epoch, which is an input of `step` and is recorded together with the epoch (rules T2 and T3)."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model.base.errors import ClockError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, days, duration, text


@dataclass(frozen=True)
class Clock:
    """An epoch's number, watermark (at the end of the epoch) and processing time. Times are in microseconds.

    `signals` has the names of the external signals that arrived with the epoch.
    """

    epoch: int
    watermark: int
    processing_time: int
    signals: tuple[str, ...] = ()

    def after(self, before: Clock | None) -> Clock:
        """Return this clock unchanged if it may follow `before`.

        Raises `ClockError` if the watermark or the processing time is lower than in `before`, or if the epoch's number
        is not higher than in `before` (rule T3).
        """
        if before is not None:
            for name in ("epoch", "watermark", "processing_time"):
                was, now = getattr(before, name), getattr(self, name)
                if now < was or (name == "epoch" and now == was):
                    texts = (str(was), str(now)) if name == "epoch" else (text(was), text(now))
                    raise ClockError(f"the {name} went from {texts[0]} to {texts[1]}: a clock never goes back")
        return self


def behind(watermark: int, now: int | None) -> int | None:
    """Return by how many microseconds a watermark is behind the current time `now`; negative if the watermark is ahead.

    Returns None if `now` is None, or if the watermark is at the beginning or the end of time.

    >>> behind(2, 7), behind(7, 2), behind(END_OF_TIME, 7)
    (5, -5, None)
    """
    return now - watermark if now is not None and BEGINNING < watermark < END_OF_TIME else None


AHEAD = duration(days(1))
"""The maximum time by which a watermark may be ahead of the current time before a warning is shown.

The maximum is not zero, because some logs contain events with times in the future.
"""


def ahead(watermark: int, now: int | None) -> int:
    """Return by how many microseconds a watermark is ahead of the current time `now`.

    Returns 0 if `now` is None, if the watermark is at most a day ahead, or if the watermark is at the beginning or the
    end of time. A watermark can be far ahead because of a single record: if the event time of a record is in the
    future, but within the bounds of its log, the watermark advances to this event time. Most records that arrive later
    are then too late.

    >>> ahead(3 * AHEAD, AHEAD) // AHEAD, ahead(AHEAD, AHEAD), ahead(END_OF_TIME, AHEAD)
    (2, 0, 0)
    """
    if now is None or not BEGINNING < watermark < END_OF_TIME or watermark - now <= AHEAD:
        return 0
    return watermark - now
