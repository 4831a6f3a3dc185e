"""Define the arguments that a user may pass on to a DAG and to its tasks (`dag_args=`), and check them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Any, TypedDict

from airflow.sdk import DAG, BaseOperator

from tailrace.model.base.errors import Fault, TailraceError


class TaskArgs(TypedDict, total=False):
    """The arguments of tasks that `dag_args["default_args"]` may have. They mean what they mean in Airflow.

    `conn_id` is the id of the connection that names the lake.
    """

    conn_id: str
    owner: str
    email: str | Collection[str]
    email_on_failure: bool
    email_on_retry: bool
    retries: int
    retry_delay: timedelta | float
    retry_exponential_backoff: bool | float
    max_retry_delay: timedelta | float
    retry_policy: Any
    start_date: datetime
    end_date: datetime
    priority_weight: int
    weight_rule: Any
    queue: str
    pool: str
    pool_slots: int
    execution_timeout: timedelta
    on_execute_callback: Any
    on_failure_callback: Any
    on_success_callback: Any
    on_retry_callback: Any
    on_skipped_callback: Any
    pre_execute: Callable[..., Any]
    post_execute: Callable[..., Any]
    run_as_user: str
    max_active_tis_per_dag: int
    max_active_tis_per_dagrun: int
    executor: str
    executor_config: Mapping[str, Any]
    logger_name: str


class DagArgs(TypedDict, total=False):
    """The arguments of a DAG that a user may pass on with `dag_args=`.

    `owner`, `pool` and `conn_id`, the id of the connection that names the lake, are those of the DAG's tasks, and short
    for the same names in `default_args`. `tags` are added to the tags that the DAG has. Only a backfill DAG takes
    `max_active_runs`. All others mean what they mean in Airflow.
    """

    owner: str
    pool: str
    conn_id: str
    tags: Collection[str]
    default_args: TaskArgs
    on_success_callback: Any
    on_failure_callback: Any
    access_control: Mapping[str, Any]
    owner_links: Mapping[str, str]
    dag_display_name: str
    description: str
    start_date: datetime
    end_date: datetime
    is_paused_upon_creation: bool
    dagrun_timeout: timedelta
    deadline: Any
    max_active_runs: int
    max_active_tasks: int
    max_consecutive_failed_dag_runs: int
    disable_bundle_versioning: bool
    rerun_with_latest_version: bool


class DagArgsError(TailraceError, ValueError):
    """The error for arguments of a DAG that are unknown, invalid, or would break what the DAG promises."""

    def __init__(self, dag: str, faults: Collection[Fault]) -> None:
        count = f"{len(faults)} fault" + ("" if len(faults) == 1 else "s")
        lines = [f"  {number}. {fault}" for number, fault in enumerate(faults, 1)]
        super().__init__("\n".join([f"dag_args of {dag} has {count}:", *lines]))


_OF_TASKS = ("owner", "pool", "conn_id")
"""The arguments in `dag_args` that are arguments of tasks."""

_REFUSED = {
    "dag_id": "the pages and links of Tailrace find a DAG by the name of its definition: write dag_display_name, or "
    "name the definition otherwise",
    "schedule": "the DAG has a schedule of its own, and backfills start only by hand: write cron= or sweep= beside "
    "dag_args",
    "catchup": "runs that were missed would start by themselves: use Airflow's Backfill",
    "max_active_runs": "two runs at once would start one stream, or do one piece of work, twice: leave it out",
    "params": "the DAG's form has the parameters that its tasks read: leave it out",
}
"""The arguments of DAGs that are refused, with the reason."""

_REFUSED_OF_TASKS = {
    "trigger_rule": "a task would run although the one before it had failed, or a person had rejected a repair: leave "
    "it out",
    "depends_on_past": "a run that failed once would stop all later ones: leave it out",
    "wait_for_downstream": "a run that failed once would stop all later ones: leave it out",
    "do_xcom_push": "the tasks hand on their results as XComs: leave it out",
    "params": "the DAG's form has the parameters that its tasks read: leave it out",
    "inlets": "the tasks name what they read and change: leave it out",
    "outlets": "the tasks name what they read and change: leave it out",
    "task_id": "each task has a name of its own: leave it out",
}
"""The arguments of tasks that are refused, with the reason."""

_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "owner": (str, "the name of an owner"),
    "pool": (str, "the name of a pool"),
    "conn_id": (str, "the id of a connection"),
    "default_args": (Mapping, "a dict of arguments of tasks"),
    "access_control": (Mapping, "a dict of roles"),
    "start_date": (datetime, "a datetime"),
    "end_date": (datetime, "a datetime"),
    "dagrun_timeout": (timedelta, "a timedelta"),
    "max_active_runs": (int, "a whole number"),
    "max_active_tasks": (int, "a whole number"),
    "retries": (int, "a whole number"),
    "execution_timeout": (timedelta, "a timedelta"),
}
"""The types of arguments that Airflow itself would report late, or not at all."""


def dag_arguments(
    dag: str, usual: Mapping[str, Any], given: DagArgs | None, *, runs_at_once: bool = False
) -> dict[str, Any]:
    """Return the arguments of a DAG: the `usual` ones, changed by those that a user has given.

    `runs_at_once` says that several runs of the DAG may be active. Raises `DagArgsError` that names each argument that
    is unknown, invalid, or would break what the DAG promises.
    """
    if given is None:
        return dict(usual)
    if faults := [*_faults(given, runs_at_once=runs_at_once)]:
        raise DagArgsError(dag, faults)
    more: dict[str, Any] = {**given}
    own = {name: more.pop(name) for name in _OF_TASKS if name in more}
    tasks = {**usual.get("default_args", {}), **more.pop("default_args", {}), **own}
    tags = [*usual.get("tags", ()), *more.pop("tags", ())]
    return {**usual, **more, "tags": [*dict.fromkeys(tags)], **({"default_args": tasks} if tasks else {})}


def _faults(given: DagArgs, *, runs_at_once: bool) -> Iterator[Fault]:
    """Yield the faults of the arguments of a DAG, and of those of its tasks."""
    if not isinstance(given, Mapping):
        yield Fault("dag_args", given, "a dict", 'write for example {"owner": "billing"}')
        return
    refused = {name: why for name, why in _REFUSED.items() if not (runs_at_once and name == "max_active_runs")}
    names = [name for name in DagArgs.__annotations__ if name not in refused]
    yield from _faults_in("dag_args", given, names, refused, _known(DAG).union(_OF_TASKS))
    tags: object = given.get("tags", ())
    if isinstance(tags, str) or not isinstance(tags, Collection) or not all(isinstance(tag, str) for tag in tags):
        yield Fault("dag_args.tags", tags, "a list of texts", 'write for example ["billing"]')
    tasks: object = given.get("default_args", {})
    if not isinstance(tasks, Mapping):
        return
    path = "dag_args.default_args"
    yield from _faults_in(
        path, tasks, [*TaskArgs.__annotations__], _REFUSED_OF_TASKS, _known(BaseOperator) | {"conn_id"}
    )
    for name in _OF_TASKS:
        if name in given and name in tasks:
            yield Fault(f"{path}.{name}", tasks[name], f"nothing beside dag_args.{name}", "leave one of them out")


def _faults_in(
    path: str, given: Mapping[str, Any], names: Collection[str], refused: Mapping[str, str], known: Collection[str]
) -> Iterator[Fault]:
    for name, value in given.items():
        place = f"{path}.{name}"
        if name in refused:
            yield Fault(place, value, "no such argument", refused[name])
        elif name not in names:
            near = get_close_matches(str(name), names, 1)
            yield Fault(place, value, f"one of {', '.join(names)}", f"write {near[0]}" if near else "leave it out")
        elif name not in known:
            yield Fault(
                place, value, "an argument that this version of Airflow has", "leave it out, or upgrade Airflow"
            )
        elif name in _KINDS and (not isinstance(value, _KINDS[name][0]) or isinstance(value, bool)):
            yield Fault(place, value, _KINDS[name][1], "correct it, or leave it out")


@cache
def _known(kind: type) -> frozenset[str]:
    """Return the names of the arguments that this version of Airflow has."""
    return frozenset(inspect.signature(kind).parameters)
