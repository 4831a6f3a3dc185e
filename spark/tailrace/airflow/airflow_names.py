"""Import from Airflow what has moved between Airflow 3.1 and the newest version."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable
    from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
else:
    try:
        from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable
    except ImportError:  # Airflow 3.1
        from airflow.timetables.assets import AssetOrTimeSchedule
        from airflow.timetables.trigger import CronTriggerTimetable
    try:
        from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
    except ImportError:  # Airflow 3.1
        from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowSkipException",
    "AssetOrTimeSchedule",
    "CronTriggerTimetable",
]
