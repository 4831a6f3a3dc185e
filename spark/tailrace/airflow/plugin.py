"""What Airflow has to know of Tailrace beyond its DAGs; found by the entry point that the installation declares."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from tailrace.airflow.timetable import ByHand


class TailracePlugin(AirflowPlugin):
    """The timetable of backfills by hand."""

    name = "tailrace"
    timetables = [ByHand]  # noqa: RUF012 - Airflow reads lists of the class
