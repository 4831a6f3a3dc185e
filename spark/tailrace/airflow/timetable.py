"""Define the timetable of backfill DAGs: runs cover intervals of event time, and start only on request."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from airflow.sdk.timezone import coerce_datetime
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable

from tailrace.model.base.time import instant, moment


class ByHand(CronDataIntervalTimetable):
    """A timetable with the data intervals of a cron expression, for Airflow's *Backfill*.

    The timetable schedules no runs automatically. When Airflow's scheduler asks for the next run (with `catchup` off),
    the timetable returns None. A *Backfill* creates a run for each interval in its range.
    """

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        if not restriction.catchup:
            return None
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )

    def last_before(self, end: int) -> tuple[int, int]:
        """Return the start and the end of the last complete interval that ends at or before `end`, all in microseconds.

        The intervals are the same as for a *Backfill*: when clocks change and skip or repeat a time of the cron
        expression, no interval is empty, repeated, or too long.
        """
        back = timedelta(days=2)
        while True:
            found = [at for at in self._ticks(end, back) if at <= end][-2:]
            if len(found) == 2:
                return found[0], found[1]
            back *= 4

    def _ticks(self, end: int, back: timedelta) -> Iterator[int]:
        """Yield the times that match the cron expression, from about `back` before `end` to the first matching time
        after `end`.
        """
        at = self._get_prev(coerce_datetime(moment(end) - back))
        while True:
            yield (micros := instant(datetime.fromisoformat(at.isoformat())))
            if micros > end:
                return
            following, probe = self._get_next(at), at
            while following <= at:
                # The clocks were set back here, so the same local time occurs twice.
                probe += timedelta(minutes=30)
                following = self._get_next(probe)
            at = following

    @property
    def summary(self) -> str:
        return f"by hand, {self._expression}"
