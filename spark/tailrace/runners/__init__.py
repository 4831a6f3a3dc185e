"""Run jobs in the calling process, in a warm Spark session on this machine, in a venv, or with `spark-submit`.

A runner takes a job whose values have been validated (`jobs`), and returns the job's result. To prevent injection, no
value of a job passes through a shell, and instants appear in SQL only as numbers.
"""

from typing import TYPE_CHECKING

from tailrace.model.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from tailrace.runners.entry_points import find_entry_points
    from tailrace.runners.jobs import (
        BackfillJob,
        Cancelled,
        JobOutcome,
        LogSource,
        MaintainJob,
        Runner,
        RunnerError,
        StreamJob,
        StreamState,
    )
    from tailrace.runners.local import Local
    from tailrace.runners.submit import Submit
    from tailrace.runners.venv import Venv
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "BackfillJob": "tailrace.runners.jobs",
            "Cancelled": "tailrace.runners.jobs",
            "JobOutcome": "tailrace.runners.jobs",
            "Local": "tailrace.runners.local",
            "LogSource": "tailrace.runners.jobs",
            "MaintainJob": "tailrace.runners.jobs",
            "Runner": "tailrace.runners.jobs",
            "RunnerError": "tailrace.runners.jobs",
            "StreamJob": "tailrace.runners.jobs",
            "StreamState": "tailrace.runners.jobs",
            "Submit": "tailrace.runners.submit",
            "Venv": "tailrace.runners.venv",
            "find_entry_points": "tailrace.runners.entry_points",
        },
    )

__all__ = [
    "BackfillJob",
    "Cancelled",
    "JobOutcome",
    "Local",
    "LogSource",
    "MaintainJob",
    "Runner",
    "RunnerError",
    "StreamJob",
    "StreamState",
    "Submit",
    "Venv",
    "find_entry_points",
]
