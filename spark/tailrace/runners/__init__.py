"""Where a run is run: on this machine, in one warm Spark session that runs share, or by a cluster's own submit.

A runner is asked for a backfill by values that were checked (`jobs`), and gives what it did. Nothing of a request
passes through a shell, and instants reach SQL as numbers.
"""

from tailrace.runners.jobs import (
    BackfillJob,
    Cancelled,
    MaintainJob,
    Outcome,
    Runner,
    RunnerError,
    Streaming,
    StreamJob,
)

__all__ = ["BackfillJob", "Cancelled", "MaintainJob", "Outcome", "Runner", "RunnerError", "StreamJob", "Streaming"]
