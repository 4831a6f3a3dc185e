"""Create DAGs from definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from airflow.sdk import DAG, AssetAny

from tailrace.airflow.airflow_names import AssetOrTimeSchedule, CronTriggerTimetable
from tailrace.airflow.backfill_task import BackfillOperator
from tailrace.airflow.dag_args import DagArgs, dag_arguments
from tailrace.airflow.dbt_task import DbtOperator
from tailrace.airflow.form import form
from tailrace.airflow.maintenance_task import MaintainOperator
from tailrace.airflow.repair import APPROVE, PROPOSE, REPAIR, TABLE, ProposeOperator, RepairOperator
from tailrace.airflow.stream_tasks import STREAM, WATERMARK, StreamOperator, WatermarkOperator
from tailrace.airflow.stream_tasks import form as stream_form
from tailrace.airflow.tasks import asset_of
from tailrace.airflow.timetable import ByHand
from tailrace.model.logs.log import log_names
from tailrace.plan.loader import load, load_all, load_any, load_ranged
from tailrace.runners.jobs import LogSource, Runner, RunnerError, StreamJob

MOST_RUNS = 16
"""The maximum number of active runs of a backfill DAG. A user can set a lower limit for each *Backfill*."""


def local() -> Runner:
    """Create the runner for this machine. The runner keeps a warm Spark session."""
    from tailrace.runners.local import Local

    return Local()


def backfill_dag(
    definition: str | Path,
    *,
    cron: str = "0 0 * * *",
    timezone: str = "UTC",
    runner: Callable[[], Runner] = local,
    retries: int = 2,
    dag_args: DagArgs | None = None,
    conn_id: str | None = None,
) -> DAG:
    """Create the DAG that recomputes ranges of a pipeline or map at a user's request.

    Airflow's *Trigger* recomputes the range that the user entered in the form. Airflow's *Backfill* creates one run per
    interval. `definition` is `FILE` or `FILE:NAME`, and `cron` sets the intervals. `dag_args` are more arguments of the
    DAG and of its tasks, as for all DAGs of this module. Raises `LoadError` or `DefinitionError` if the definition is
    invalid, and `DagArgsError` for wrong arguments. Airflow shows these errors as import errors.
    """
    place = _place(definition)
    pipeline = load_ranged(place)
    text = "backfill_windows" if pipeline.windowed else "backfill_rows"
    log = log_names(pipeline.sources if pipeline.windowed else pipeline.log.parts)
    with _dag(
        pipeline.name, "backfill", f"Recompute a range of {pipeline.name} from its log, and merge the differences",
        schedule=ByHand(cron, timezone), is_paused_upon_creation=False, max_active_runs=MOST_RUNS,
        max_active_tasks=MOST_RUNS, params=form(), doc_md=_page(text, name=pipeline.name, log=log), retries=retries,
        dag_args=dag_args, conn_id=conn_id,
    ) as dag:  # fmt: skip
        BackfillOperator(
            task_id="backfill", definition=place, pipeline=pipeline, cron=cron, timezone=timezone, runner=runner
        )
    return dag


def repair_dag(
    definition: str | Path,
    *,
    cron: str | None = None,
    timezone: str = "UTC",
    runner: Callable[[], Runner] = local,
    retries: int = 2,
    dag_args: DagArgs | None = None,
    conn_id: str | None = None,
) -> DAG:
    """Create the DAG that proposes backfills for late records, and runs the backfills once a person has approved.

    `cron` is the schedule on which the DAG searches for late records. If `cron` is None, the DAG runs only when a user
    triggers it. Only one run at a time waits for a decision. `timezone` is that of the days that
    the events of the DAG's asset name.
    """
    from airflow.providers.standard.operators.hitl import ApprovalOperator

    place = _place(definition)
    pipeline = load(place)
    with _dag(
        pipeline.name, "repair", f"Take in the late records of {pipeline.name}, once a person has approved",
        schedule=cron, is_paused_upon_creation=cron is not None, doc_md=_page("repair", name=pipeline.name),
        retries=retries,
        dag_args=dag_args, conn_id=conn_id,
    ) as dag:  # fmt: skip
        propose = ProposeOperator(task_id=PROPOSE, pipeline=pipeline)
        approve = ApprovalOperator(
            task_id=APPROVE,
            subject=f"Take in the late records of {pipeline.name}?",
            body=f"{{{{ ti.xcom_pull(task_ids='{PROPOSE}', key='{TABLE}') }}}}",
        )
        (
            propose
            >> approve
            >> RepairOperator(task_id=REPAIR, definition=place, pipeline=pipeline, timezone=timezone, runner=runner)
        )
    return dag


def maintenance_dag(
    definition: str | Path,
    *,
    cron: str | None = "30 3 * * *",
    runner: Callable[[], Runner] = local,
    retries: int = 2,
    dag_args: DagArgs | None = None,
    conn_id: str | None = None,
) -> DAG:
    """Create the DAG that maintains a definition's tables. Streams and backfills may run at the same time.

    The DAG is paused until somebody unpauses it; after that, the DAG runs on the schedule `cron`.
    """
    place = _place(definition)
    name = load_any(place).name
    with _dag(
        name,
        "maintain",
        f"Keep the tables of {name} small and quick",
        schedule=cron,
        retries=retries,
        dag_args=dag_args,
        conn_id=conn_id,
    ) as dag:
        MaintainOperator(task_id="maintain", definition=place, subject=name, runner=runner)
    return dag


class SourceOptions(TypedDict, total=False):
    """The source of one log: a folder, a topic, or the topics of a pattern. `LogSource` has the same fields."""

    folder: str | Path
    format: Literal["json", "csv", "parquet", "avro"]
    topic: str
    pattern: str
    start: str


class StreamOptions(TypedDict, total=False):
    """The options of a stream: its sources, and the pace of its epochs. `StreamJob` has the same fields."""

    folder: str | Path | None
    format: Literal["json", "csv", "parquet", "avro"]
    topic: str | None
    pattern: str | None
    start: str | None
    sources: Mapping[str, str | Path | SourceOptions]
    bootstrap: str | None
    every: float
    per_epoch: int | None


def stream_dag(
    definition: str | Path | Sequence[str | Path],
    *,
    name: str | None = None,
    behind: timedelta | None = timedelta(minutes=15),
    cron: str | None = "*/5 * * * *",
    runner: Callable[[], Runner] = local,
    dag_args: DagArgs | None = None,
    conn_id: str | None = None,
    **options: Unpack[StreamOptions],
) -> DAG:
    """Create the DAG that starts a stream if it is not running, and that fails if the stream falls behind.

    The stream computes one definition or several. If the definitions read one log, the source is a `folder` of files, a
    Kafka `topic`, or the topics that match a `pattern`; `start` is where a new log begins in its topics. `sources`
    gives each log its source by the log's name: a folder, or a dict with `folder` and `format`, or with `topic` or
    `pattern` and `start`. A run of the DAG fails if a watermark lags the wall clock by more than `behind`, or if
    another stream has the lease (the right to write the tables). Set `behind` to None for historical records. The DAG's
    id is `name` and `.stream`; by default, `name` is made of the definitions' names. The DAG is paused until somebody
    unpauses it. Raises `RunnerError` for invalid options, for a log that a definition reads and that has no source, and
    for a source whose log no definition reads.
    """
    several = [definition] if isinstance(definition, str | Path) else definition
    places = tuple(_place(one) for one in several)
    loaded = load_all(places)
    if (folder := options.get("folder")) is not None:
        options["folder"] = _folder(folder)
    values = {**options, **({"sources": _sources(given)} if (given := options.get("sources")) is not None else {})}
    job = StreamJob.of(definitions=places, **values)
    name = "-".join(one.name for one in loaded) if name is None else name
    with _dag(
        name, "stream", f"Keep the stream of {' and '.join(one.name for one in loaded)} running, and report when it "
        "falls behind",
        schedule=cron, params=stream_form(), doc_md=_page("stream", name=name), dag_args=dag_args, conn_id=conn_id,
    ) as dag:  # fmt: skip
        stream = StreamOperator(task_id=STREAM, job=job, definitions=loaded, subject=name, runner=runner)
        stream >> WatermarkOperator(
            task_id=WATERMARK, definitions=loaded, subject=name, behind=behind, trigger_rule="none_skipped"
        )
    return dag


def _sources(given: Mapping[str, str | Path | SourceOptions]) -> dict[str, LogSource]:
    """Check the source of each log. Raises `RunnerError` that names the log of each source that is invalid."""
    sources, faults = dict[str, LogSource](), list[str]()
    for log, source in given.items():
        if isinstance(source, str) and "/" not in source:
            faults.append(
                f"sources[{log!r}] = {source!r}: expected a folder or a topic, and this may be either: write "
                f'{{"topic": {source!r}}} or Path({source!r})'
            )
            continue
        options: dict[str, Any] = dict(source) if isinstance(source, Mapping) else {"folder": source}
        if options.get("folder") is not None:
            options["folder"] = _folder(options["folder"])
        try:
            sources[log] = LogSource.of(**options)
        except RunnerError as error:
            faults.append(f"sources[{log!r}]: {error}")
    if not given:
        faults.append('sources = {}: expected the source of each log, such as {"events": "/landing/events"}')
    if faults:
        raise RunnerError("; ".join(faults), again=False)
    return sources


def _folder(folder: str | Path) -> str:
    """Make the path of a folder absolute, because another process opens the folder."""
    return str(folder) if "://" in str(folder) else str(Path(folder).resolve())


def dbt_dag(
    project: str | Path,
    *,
    reads: Sequence[str],
    sweep: str = "0 * * * *",
    arguments: Sequence[str] = ("build",),
    retries: int = 2,
    dag_args: DagArgs | None = None,
    conn_id: str | None = None,
) -> DAG:
    """Create the DAG that builds a dbt project, both on the schedule `sweep` and after a change of a table in `reads`.

    A change that a backfill, repair or stream DAG makes to a table in `reads` starts a build. Changes by other programs
    wait for the next build on the schedule `sweep`. The DAG is paused until somebody unpauses it.
    """
    where = Path(project).resolve()
    schedule = AssetOrTimeSchedule(
        timetable=CronTriggerTimetable(sweep, timezone="UTC"), assets=AssetAny(*(asset_of(name) for name in reads))
    )
    with _dag(
        where.name, "build", f"Build the dbt project {where.name} from the tables that it reads",
        schedule=schedule, tags=["tailrace", "dbt"], retries=retries,
        dag_args=dag_args, conn_id=conn_id,
    ) as dag:  # fmt: skip
        DbtOperator(task_id="build", project=where, arguments=arguments)
    return dag


def _dag(
    name: str,
    task: str,
    description: str,
    *,
    dag_args: DagArgs | None,
    conn_id: str | None,
    retries: int | None = None,
    **more: Any,
) -> DAG:
    """Create a DAG with at most one active run, unless `more` says otherwise, and with the arguments of the user.

    If `retries` is given, a failed task is tried again after a delay. `conn_id` is the connection that names the lake.
    """
    usual: dict[str, Any] = {
        "description": description, "catchup": False, "max_active_runs": 1, "tags": ["tailrace", task, name], **more
    }  # fmt: skip
    if retries is not None:
        usual["default_args"] = {"retries": retries, "retry_delay": timedelta(seconds=30)}
    if conn_id is not None:
        usual["default_args"] = usual.get("default_args", {}) | {"conn_id": conn_id}
    several, dag_id = usual["max_active_runs"] > 1, f"{name}.{task}"
    return DAG(dag_id, **dag_arguments(dag_id, usual, dag_args, runs_at_once=several))


def _page(text: str, **values: str) -> str:
    """Read the Markdown text of a DAG's page, and fill in the values of its placeholders."""
    return (Path(__file__).with_name("texts") / f"{text}.md").read_text(encoding="utf-8").format(**values)


def _place(definition: str | Path) -> str:
    """Make the path in `FILE` or `FILE:NAME` absolute, because jobs require an absolute path."""
    path, _, name = str(definition).partition(":")
    return str(Path(path).resolve()) + (f":{name}" if name else "")
