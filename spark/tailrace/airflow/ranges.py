"""The event-time range of a run, and the parts into which the range is divided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tailrace.airflow.form import BackfillRequest
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, text
from tailrace.model.definition.definition import Ranged
from tailrace.model.logs.log import PANE_TIME
from tailrace.runners.jobs import RunnerError

if TYPE_CHECKING:
    from tailrace.lake.catalog.lake import Lake

_HOUR = 3_600_000_000

Interval = tuple[int, int]
"""A half-open range of window timestamps, in microseconds. The timestamp of a window is the window's last instant."""


@dataclass(frozen=True)
class Extent:
    """How far a pipeline's answers extend in event time.

    All windows that end at or before `closed` are closed. The last window ends at `latest`.

    For a map or a join, `closed` is the event time before which the output is final, and `latest` is one microsecond
    after the latest event. `closed` and `latest` are in microseconds.
    """

    closed: int
    latest: int

    @classmethod
    def of(cls, lake: Lake, pipeline: Ranged) -> Extent:
        """Read the extent from the tables' metadata. Raises `LakeError` if there are no tables yet."""
        from tailrace.lake.catalog.lake import head_of
        from tailrace.lake.read.status import latest_in

        ledger = lake.table(ledger_name(pipeline.name))
        watermark = head_of(ledger).number("watermark", BEGINNING)
        if pipeline.windowed:
            answers = lake.find(pipeline.name) or ledger
            latest = latest_in(answers, "window_end")
        elif (latest := latest_in(ledger, PANE_TIME)) is not None:
            latest += 1
        return cls(pipeline.closed_until(watermark), BEGINNING if latest is None else latest)

    @property
    def whole(self) -> int:
        """The end of the range in which all windows are closed and have answers, in microseconds."""
        return min(self.closed, self.latest)


def choose_range(
    asked: BackfillRequest, interval: Interval | None, extent: Extent, before: Callable[[int], Interval]
) -> Interval:
    """Choose a run's range: the *Backfill* interval, otherwise the requested range, otherwise the last closed interval.

    `interval` is the interval of a run of Airflow's *Backfill*, or None for any other run. `before` returns the last
    whole interval before an instant. Raises `RunnerError` if the parameters request a range in addition to the
    interval, or if no window is closed yet.
    """
    if interval is not None:
        if asked.first is not None or asked.last is not None:
            raise RunnerError(
                f"this run of a Backfill is of {text(interval[0])} to {text(interval[1])}, and its parameters name "
                "another range: leave From and To empty, or use Trigger",
                again=False,
            )
        return interval
    if asked.first is not None:
        return instant(asked.first), END_OF_TIME if asked.last is None else instant(asked.last)
    if extent.whole <= BEGINNING:
        raise RunnerError("no window is closed yet: let the stream go on, or fill in From and To", again=False)
    return before(extent.whole)


def cut_range(interval: Interval, parts: int, extent: Extent) -> list[Interval]:
    """Divide a range into at most `parts` parts of whole hours. All windows that are still open are in the last part.

    >>> hour = 3_600_000_000
    >>> cut_range((0, 5 * hour), 2, Extent(5 * hour, 5 * hour)) == [(0, 3 * hour), (3 * hour, 5 * hour)]
    True
    >>> cut_range((0, 5 * hour), 9, Extent(2 * hour, 5 * hour)) == [(0, hour), (hour, 5 * hour)]
    True
    """
    first, last = interval
    end = min(last, extent.whole)
    if parts == 1 or end - first <= _HOUR:
        return [interval]
    step = -(-(end - first) // (parts * _HOUR)) * _HOUR
    cuts = [first + step * number for number in range(parts) if first + step * number < end]
    return list(pairwise([*cuts, last]))
