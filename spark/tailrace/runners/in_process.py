"""A backfill in the process that asks for it: what DuckDB computes needs neither a JVM nor another process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.model.definition.chain import Ranged
from tailrace.observe.telemetry.observation import observing
from tailrace.observe.telemetry.run_events import Subject
from tailrace.plan.loader import load_ranged
from tailrace.runners.jobs import BackfillJob, Outcome
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.engines.session_protocol import Session

AT_ONCE = os.cpu_count() or 1
"""How many runs of one process compute at once: they are bound by the cores. Others wait for their turn."""

loading = threading.Lock()
"""Definitions are loaded one after the other, for each is run with its folder on the path."""


def loaded(job: BackfillJob) -> Ranged:
    """Load the definition of a job."""
    with loading:
        return load_ranged(job.definition)


def fits(settings: Settings, job: BackfillJob, definition: Ranged) -> bool:
    """Say whether a job of a definition is DuckDB's, and so needs no Spark."""
    # Here, for whoever looks at a DAG needs none of it.
    from tailrace.backfill.pipeline_backfill import engine_for
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
) -> list[Outcome]:
    """Run a backfill of a definition in this process; gives what it did to each stage.

    `begun` is told of the engine before anything is computed. Without `spark` it raises `RoomError` where DuckDB turns
    out to have no room for it.
    """
    with observing(Subject("backfill", settings, definition.stages), tell) as observed:
        from tailrace.backfill.pipeline_backfill import backfill_stages
        from tailrace.lake.catalog.lake import Lake

        tell(f"{'comparing' if job.dry_run else 'computing'} {definition.name}")
        lake = Lake(settings, observed.tell)
        found = backfill_stages(
            lake, definition, job.first, job.last, reason=job.reason, dry_run=job.dry_run, begun=begun, spark=spark
        )
    return [Outcome.of(stage, one, dry_run=job.dry_run) for stage, own in found for one in own]
