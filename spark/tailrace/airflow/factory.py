"""Makes DAGs out of definitions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG

from tailrace.airflow.form import form
from tailrace.airflow.operator import BackfillOperator
from tailrace.airflow.timetable import ByHand
from tailrace.model.pipeline import Pipeline
from tailrace.plan.loading import load
from tailrace.runners.jobs import Runner

MOST_RUNS = 16
"""How many runs of one DAG may be active at once; a *Backfill* asks for as many of them as it wants."""


def local() -> Runner:
    """Runs in the warm session of this machine."""
    from tailrace.runners.local import Local

    return Local()


def backfill_dag(
    definition: str | Path,
    *,
    cron: str = "0 0 * * *",
    timezone: str = "UTC",
    runner: Callable[[], Runner] = local,
    retries: int = 2,
) -> DAG:
    """The DAG that computes ranges of a pipeline anew: by *Backfill*, an interval of `cron` a run, or by *Trigger*.

    `definition` is `FILE` or `FILE:NAME`. Nothing runs by itself. Raises `LoadError` and `DefinitionError` as the
    definition does, which Airflow shows as an import error.
    """
    path, _, name = str(definition).partition(":")
    place = str(Path(path).resolve()) + (f":{name}" if name else "")
    pipeline = load(place)
    dag = DAG(
        f"{pipeline.name}.backfill",
        schedule=ByHand(cron, timezone),
        catchup=False,
        is_paused_upon_creation=False,
        max_active_runs=MOST_RUNS,
        max_active_tasks=MOST_RUNS,
        params=form(),
        tags=["tailrace", "backfill", pipeline.name],
        description=f"Compute a range of {pipeline.name} anew from its log, and merge what differs",
        doc_md=_doc(pipeline),
        default_args={"retries": retries, "retry_delay": timedelta(seconds=30)},
    )
    BackfillOperator(
        task_id="backfill",
        dag=dag,
        definition=place,
        pipeline=pipeline,
        cron=cron,
        timezone=timezone,
        runner=runner,
    )
    return dag


def _doc(pipeline: Pipeline) -> str:
    return f"""
### Backfill {pipeline.name}

Computes a range of event time anew from the log `{pipeline.source.name}`, beside the stream, and merges what differs:
a window that comes out equal is left untouched, one that changed is taken back and fired again, one that is not
produced any more is taken back.

- **Trigger → Backfill** computes an interval a run, from one day to another; both are included.
- **Trigger → Single Run** computes one range. Left as it is, the last whole interval whose windows are closed.
- **Dry run** says what would change, and changes nothing.

Running a range again, overlapping ranges and cancelling are safe. What a run did is on its page.
"""
