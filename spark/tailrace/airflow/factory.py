"""Make DAGs from definitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from airflow.sdk import DAG, AssetAny, AssetOrTimeSchedule, CronTriggerTimetable

from tailrace.airflow.assets import asset_of
from tailrace.airflow.dbt_task import DbtOperator
from tailrace.airflow.form import form
from tailrace.airflow.maintenance_task import MaintainOperator
from tailrace.airflow.operator import BackfillOperator
from tailrace.airflow.repair import APPROVE, PROPOSE, REPAIR, TABLE, ProposeOperator, RepairOperator
from tailrace.airflow.stream_tasks import STREAM, WATERMARK, StreamOperator, WatermarkOperator
from tailrace.airflow.stream_tasks import form as stream_form
from tailrace.airflow.timetable import ByHand
from tailrace.model.definition.definition import Ranged
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import log_names
from tailrace.plan.loader import load, load_any, load_ranged
from tailrace.runners.jobs import Runner, StreamJob

MOST_RUNS = 16
"""The maximum number of active runs of one DAG; a *Backfill* sets how many of them it uses."""


def local() -> Runner:
    """Make the runner on this machine, with its warm Spark session."""
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
    """Make the DAG that recomputes ranges of a pipeline or map: by *Trigger*, or by *Backfill*, one run per interval.

    `definition` is `FILE` or `FILE:NAME`; `cron` sets the intervals. Nothing runs by itself. Raises the definition's
    `LoadError` and `DefinitionError`, which Airflow shows as an import error.
    """
    place = _place(definition)
    pipeline = load_ranged(place)
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
        default_args=_tried(retries),
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


def repair_dag(
    definition: str | Path, *, cron: str | None = None, runner: Callable[[], Runner] = local, retries: int = 2
) -> DAG:
    """Make the DAG that proposes to backfill records that came too late, and does so after a person's decision.

    `cron` says when the DAG searches for such records; None means only when triggered. One run at a time waits for a
    decision.
    """
    from airflow.providers.standard.operators.hitl import ApprovalOperator

    place, pipeline = _loaded(definition)
    with DAG(
        f"{pipeline.name}.repair",
        schedule=cron,
        catchup=False,
        is_paused_upon_creation=cron is not None,
        max_active_runs=1,
        tags=["tailrace", "repair", pipeline.name],
        description=f"Take in what came too late for {pipeline.name}, once a person has approved",
        doc_md=_REPAIR.format(name=pipeline.name),
        default_args=_tried(retries),
    ) as dag:
        propose = ProposeOperator(task_id=PROPOSE, pipeline=pipeline)
        approve = ApprovalOperator(
            task_id=APPROVE,
            subject=f"Take in what came too late for {pipeline.name}?",
            body=f"{{{{ ti.xcom_pull(task_ids='{PROPOSE}', key='{TABLE}') }}}}",
        )
        repair = RepairOperator(
            task_id=REPAIR, definition=place, pipeline=pipeline, cron="0 0 * * *", timezone="UTC", runner=runner
        )
        propose >> approve >> repair
    return dag


def maintenance_dag(
    definition: str | Path, *, cron: str | None = "30 3 * * *", runner: Callable[[], Runner] = local, retries: int = 2
) -> DAG:
    """Make the DAG that maintains a definition's tables, beside running streams and backfills.

    The DAG is paused until somebody unpauses it; then it runs as `cron` says.
    """
    place = _place(definition)
    name = load_any(place).name
    with DAG(
        f"{name}.maintain",
        schedule=cron,
        catchup=False,
        max_active_runs=1,
        tags=["tailrace", "maintain", name],
        description=f"Keep the tables of {name} small and quick",
        default_args=_tried(retries),
    ) as dag:
        MaintainOperator(task_id="maintain", definition=place, name=name, runner=runner)
    return dag


def stream_dag(
    definition: str | Path,
    *,
    folder: str | Path | None = None,
    format: Literal["json", "csv", "parquet"] = "json",
    topic: str | None = None,
    bootstrap: str | None = None,
    every: float = 0.0,
    per_epoch: int | None = None,
    behind: timedelta | None = timedelta(minutes=15),
    cron: str | None = "*/5 * * * *",
    runner: Callable[[], Runner] = local,
) -> DAG:
    """Make the DAG that watches a stream: it starts the stream if it is not running, and fails if it falls behind.

    The source is a `folder` of files or a Kafka `topic`. A run fails if the watermark is more than `behind` behind the
    wall clock (None for historical records), or if another stream has the lease. The DAG is paused
    until somebody unpauses it. Raises `RunnerError` for an invalid source.
    """
    place = _place(definition)
    loaded = load_any(place)
    job = StreamJob.of(
        definitions=(place,), folder=None if folder is None else _absolute(folder), format=format, topic=topic,
        bootstrap=bootstrap, every=every, per_epoch=per_epoch,
    )  # fmt: skip
    with DAG(
        f"{loaded.name}.stream",
        schedule=cron,
        catchup=False,
        max_active_runs=1,
        params=stream_form(),
        tags=["tailrace", "stream", loaded.name],
        description=f"Have the stream of {loaded.name} run, and tell when it falls behind",
        doc_md=_STREAM.format(name=loaded.name),
    ) as dag:
        stream = StreamOperator(task_id=STREAM, job=job, definition=loaded, runner=runner)
        watermark = WatermarkOperator(task_id=WATERMARK, definition=loaded, behind=behind, trigger_rule="none_skipped")
        stream >> watermark
    return dag


def dbt_dag(
    project: str | Path,
    *,
    reads: Sequence[str],
    sweep: str = "0 * * * *",
    arguments: Sequence[str] = ("build",),
    retries: int = 2,
) -> DAG:
    """Make the DAG that builds a dbt project when a table that it `reads` has changed, and on the schedule `sweep`.

    A table's backfill, repair and stream DAGs report its changes. The sweep finds all other changes. The DAG
    is paused until somebody unpauses it.
    """
    where = Path(project).resolve()
    anything = AssetAny(*(asset_of(name) for name in reads))
    with DAG(
        f"{where.name}.build",
        schedule=AssetOrTimeSchedule(timetable=CronTriggerTimetable(sweep, timezone="UTC"), assets=anything),
        catchup=False,
        max_active_runs=1,
        tags=["tailrace", "dbt"],
        description=f"Build the dbt project {where.name} on what it reads",
        default_args=_tried(retries),
    ) as dag:
        DbtOperator(task_id="build", project=where, arguments=arguments)
    return dag


def _tried(retries: int) -> dict[str, Any]:
    """Return the task arguments for retries: how often and after what delay a failed task is tried again."""
    return {"retries": retries, "retry_delay": timedelta(seconds=30)}


def _absolute(folder: str | Path) -> str:
    """Make a folder's path absolute, so that another process finds it; an address stays as it is."""
    return str(folder) if "://" in str(folder) else str(Path(folder).resolve())


def _place(definition: str | Path) -> str:
    """Make the path in a definition's `FILE` or `FILE:NAME` absolute, as jobs require."""
    path, _, name = str(definition).partition(":")
    return str(Path(path).resolve()) + (f":{name}" if name else "")


def _loaded(definition: str | Path) -> tuple[str, Pipeline]:
    """Load a pipeline; return its `FILE` or `FILE:NAME` with an absolute path, and the pipeline."""
    place = _place(definition)
    return place, load(place)


_STREAM = """
### The stream of {name}

A stream is a process that goes on by itself; this looks after it. `stream` starts it where it does not run, after a
crash or a restart of the machine, and it goes on where it was. `watermark` fails where the answers fall behind the
clock on the wall, and says by how much and what holds them back. Unpause it to have the stream run.

Pausing leaves the stream as it is. *Trigger* stops or restarts it, at an epoch's boundary.
"""

_MAP = """
### Backfill {name}

Computes what the map gives of a range of event time anew from `{log}`, beside the stream, and merges what differs: a
row that comes out equal is left untouched, one that changed is taken back and given again, one that is not given any
more is taken back.

- **Trigger → Backfill** computes an interval a run, from one day to another; both are included.
- **Trigger → Single Run** computes one range. Left as it is, the last whole interval that the watermark has passed.
- **Dry run** says what would change, and changes nothing.
"""

_REPAIR = """
### Repair {name}

A record that comes after its window has closed is in the log and in no answer, until a backfill takes it in. This looks
for such records, proposes the ranges, and waits under *Required Actions* until somebody approves or rejects. Approved
ranges are backfilled as they were proposed.
"""


def _doc(pipeline: Ranged) -> str:
    if not pipeline.windowed:
        return _MAP.format(name=pipeline.name, log=log_names(pipeline.log.parts))
    return f"""
### Backfill {pipeline.name}

Computes a range of event time anew from `{log_names(pipeline.sources)}`, beside the stream, and merges what differs:
a window that comes out equal is left untouched, one that changed is taken back and fired again, one that is not
produced any more is taken back.

- **Trigger → Backfill** computes an interval a run, from one day to another; both are included.
- **Trigger → Single Run** computes one range. Left as it is, the last whole interval whose windows are closed.
- **Dry run** says what would change, and changes nothing.

Running a range again, overlapping ranges and cancelling are safe. What a run did is on its page.
"""
