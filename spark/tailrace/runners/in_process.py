"""Backfills in the calling process: those that DuckDB computes need neither a JVM nor another process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.model.definition.chain import Ranged, chain
from tailrace.observe.telemetry.observation import observing
from tailrace.observe.telemetry.run_events import Subject
from tailrace.plan.loader import load_ranged
from tailrace.runners.jobs import BackfillJob, JobOutcome
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.engines.session_protocol import Session

AT_ONCE = os.cpu_count() or 1
"""The number of runs of one process that compute at once: the cores bound them. Other runs wait for their turn."""

loading = threading.Lock()
"""The lock under which definitions are loaded one after the other, for each is run with its folder on `sys.path`."""


def loaded(job: BackfillJob) -> Ranged:
    """Load the definition of a job."""
    with loading:
        return load_ranged(job.definition)


def fits(settings: Settings, job: BackfillJob, definition: Ranged) -> bool:
    """Tell whether DuckDB runs a job of a definition, so that no Spark is needed."""
    # Imported here, for parsing a DAG needs none of these modules.
    from tailrace.backfill.backfill import engine_for
    from tailrace.engines.choose import Engine
    from tailrace.lake.catalog.lake import Lake

    return engine_for(Lake(settings), definition, job.first, job.last).engine is Engine.DUCKDB


def backfilled(
    settings: Settings,
    job: BackfillJob,
    definition: Ranged,
    tell: Callable[[str], None],
    begun: Callable[[Session], None],
    *,
    spark: bool = True,
) -> list[JobOutcome]:
    """Run a backfill of a definition in this process; returns what it did to each stage.

    `begun` is called with the session before anything is computed. Without `spark` it raises `RoomError` where DuckDB
    runs out of room.
    """
    ranged = tuple(one for one in chain(definition) if one.recomputable)
    with observing(Subject("backfill", settings, ranged), tell) as observed:
        from tailrace.backfill.backfill import backfill_stages
        from tailrace.lake.catalog.lake import Lake

        tell(f"{'comparing' if job.dry_run else 'computing'} {definition.name}")
        lake = Lake(settings, observed.tell)
        by_stage = backfill_stages(
            lake, definition, job.first, job.last, reason=job.reason, dry_run=job.dry_run, begun=begun, spark=spark
        )
    return [JobOutcome.of(stage, run, dry_run=job.dry_run) for stage, own in by_stage for run in own]
