"""When runs of a pipeline's backfill DAG are: for intervals of event time, and only when somebody asks."""

from __future__ import annotations

from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable


class ByHand(CronDataIntervalTimetable):
    """The data intervals of a cron expression, for Airflow's own *Backfill*; nothing is ever scheduled by itself.

    A scheduler asks for the next run as of now (`catchup` is off), a backfill for each one of a range.
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
