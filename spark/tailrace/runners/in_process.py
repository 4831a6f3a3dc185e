"""Run backfills in the calling process; DuckDB computes them without a JVM if possible."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.machine import usable_cores
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Ranged
from tailrace.plan.loader import load_ranged
from tailrace.runners.jobs import BackfillJob, JobOutcome
from tailrace.settings import Settings
from tailrace.telemetry.observation import observe_run
from tailrace.telemetry.run_events import Subject

if TYPE_CHECKING:
    from tailrace.engines.session_protocol import Session

AT_ONCE = usable_cores()
"""The maximum number of backfills that one process computes at the same time. Further backfills wait."""

LOADING = threading.Lock()
"""The lock for loading definitions one at a time, because loading a definition temporarily changes `sys.path`."""


def load_job(job: BackfillJob) -> Ranged:
    """Load the definition of a job."""
    with LOADING:
        return load_ranged(job.definition)


def duckdb_suffices(settings: Settings, job: BackfillJob, definition: Ranged) -> bool:
    """Return True if DuckDB can run the backfill `job` of a definition without Spark."""
    # Import these modules here, because Airflow does not need them to parse a DAG.
    from tailrace.backfill.backfill import engine_for
    from tailrace.engines.choose import Engine
    from tailrace.lake.catalog.lake import Lake

    return engine_for(Lake(settings), definition, job.first, job.last).engine is Engine.DUCKDB


def run_backfill(
    settings: Settings,
    job: BackfillJob,
    definition: Ranged,
    tell: Callable[[str], None],
    begun: Callable[[Session], None],
    *,
    spark: bool = True,
) -> list[JobOutcome]:
    """Run a backfill of a definition in this process; return the result for each stage.

    `begun` is called with the session before the backfill computes anything. If the backfill needs more memory and disk
    space than DuckDB may use, Spark computes the backfill instead, unless `spark` is False. In this case, `RoomError`
    is raised.
    """
    ranged = tuple(one for one in chain(definition) if one.recomputable)
    with observe_run(Subject("backfill", settings, ranged), tell) as observed:
        from tailrace.backfill.backfill import backfill_stages
        from tailrace.lake.catalog.lake import Lake

        tell(f"{'comparing' if job.dry_run else 'computing'} {definition.name}")
        lake = Lake(settings, observed.tell)
        by_stage = backfill_stages(
            lake, definition, job.first, job.last, reason=job.reason, dry_run=job.dry_run, begun=begun, spark=spark
        )
    return [JobOutcome.of(stage, run, dry_run=job.dry_run) for stage, own in by_stage for run in own]
