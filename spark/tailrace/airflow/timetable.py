"""The timetable of a backfill DAG: runs are for intervals of event time, and only when somebody asks for them."""

from __future__ import annotations

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable


class ByHand(CronDataIntervalTimetable):
    """The data intervals of a cron expression, for Airflow's own *Backfill*; nothing is ever scheduled by itself.

    The scheduler asks for the next run with `catchup` off, and gets none; a *Backfill* asks for each run of its range.
    """

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        if not restriction.catchup:
            return None
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )

    @property
    def summary(self) -> str:
        return f"by hand, {self._expression}"
