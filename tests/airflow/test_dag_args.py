"""A company's own arguments of DAGs and tasks, as a scheduler parses them. No Airflow runs here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow", reason="Airflow is not installed: make setup WITH=airflow")

from tailrace.airflow import (
    DagArgs,
    DagArgsError,
    TaskArgs,
    backfill_dag,
    dbt_dag,
    maintenance_dag,
    repair_dag,
    stream_dag,
)

ROOT = Path(__file__).parents[2]
FLIGHTS = ROOT / "pipelines" / "flights.py"

FACTORIES: dict[str, Callable[[Any], Any]] = {
    "backfill": lambda given: backfill_dag(FLIGHTS, dag_args=given),
    "repair": lambda given: repair_dag(FLIGHTS, dag_args=given),
    "maintain": lambda given: maintenance_dag(FLIGHTS, dag_args=given),
    "stream": lambda given: stream_dag(FLIGHTS, folder="/landing", dag_args=given),
    "build": lambda given: dbt_dag(ROOT / "dbt", reads=["hourly_departures"], dag_args=given),
}


def told(context: Any) -> None:
    """A callback."""


@pytest.mark.filterwarnings("ignore:The airflow.security.permissions module")
@pytest.mark.parametrize("kind", FACTORIES)
def test_every_dag_takes_an_owner_tags_a_pool_callbacks_and_arguments_of_tasks(kind: str) -> None:
    make, since = FACTORIES[kind], datetime(2026, 1, 1, tzinfo=UTC)
    usual = make(None)
    given: DagArgs = {
        "owner": "billing",
        "pool": "spark",
        "conn_id": "shop_lake",
        "tags": ["money", "tailrace"],
        "on_failure_callback": told,
        "access_control": {"analysts": {"DAGs": {"can_read"}}},
        "dag_display_name": "Money",
        "start_date": since,
        "dagrun_timeout": timedelta(hours=2),
        "is_paused_upon_creation": True,
        "default_args": {"queue": "big", "retries": 7, "on_retry_callback": told, "pool_slots": 2},
    }
    dag = make(given)
    assert (dag.dag_id, dag.tags) == (usual.dag_id, usual.tags | {"money"})
    assert (dag.on_failure_callback, dag.dag_display_name, dag.start_date) == (told, "Money", since)
    assert (dag.dagrun_timeout, dag.is_paused_upon_creation) == (timedelta(hours=2), True)
    assert dag.access_control == {"analysts": {"DAGs": {"can_read"}}}
    for task in dag.tasks:
        assert task.task_id == "approve" or task.conn_id == "shop_lake"
        assert (task.owner, task.pool, task.pool_slots, task.queue, task.retries) == ("billing", "spark", 2, "big", 7)
        assert told in (
            task.on_retry_callback if isinstance(task.on_retry_callback, list) else [task.on_retry_callback]
        )
    assert type(dag.timetable) is type(usual.timetable)
    for name in ("description", "doc_md", "max_active_runs", "catchup"):
        assert getattr(dag, name) == getattr(usual, name), name


@pytest.mark.parametrize("kind", FACTORIES)
def test_what_a_dag_has_without_arguments_stays_beside_them(kind: str) -> None:
    usual, owned = FACTORIES[kind](None), FACTORIES[kind]({"owner": "billing"})
    for task in usual.tasks:
        other = owned.get_task(task.task_id)
        assert (task.retries, task.retry_delay, task.pool) == (other.retries, other.retry_delay, other.pool)
        assert (task.owner, other.owner) == ("airflow", "billing")


@pytest.mark.parametrize("kind", FACTORIES)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ownr": "billing"}, "dag_args.ownr = 'billing': expected one of owner, pool, conn_id, tags, default_args"),
        ({"ownr": "billing"}, "; write owner"),
        ({"default_args": {"retrys": 1}}, "dag_args.default_args.retrys = 1: expected one of conn_id, owner, email, "),
        ({"dag_id": "mine"}, "find a DAG by the name of its definition: write dag_display_name"),
        ({"schedule": "@daily"}, "backfills start only by hand: write cron= or sweep= beside dag_args"),
        ({"catchup": True}, "runs that were missed would start by themselves"),
        ({"params": {}}, "the DAG's form has the parameters"),
        ({"tags": "money"}, "dag_args.tags = 'money': expected a list of texts"),
        ({"owner": 5}, "dag_args.owner = 5: expected the name of an owner"),
        ({"default_args": ["owner"]}, "dag_args.default_args = ['owner']: expected a dict of arguments of tasks"),
        ({"default_args": {"trigger_rule": "all_done"}}, "or a person had rejected a repair"),
        ({"default_args": {"depends_on_past": True}}, "a run that failed once would stop all later ones"),
        ({"default_args": {"outlets": []}}, "the tasks name what they read and change"),
        ({"owner": "a", "default_args": {"owner": "b"}}, "nothing beside dag_args.owner"),
        ([("owner", "a")], "dag_args = [('owner', 'a')]: expected a dict"),
    ],
)
def test_an_argument_that_is_unknown_or_breaks_a_promise_is_refused_with_the_reason(
    kind: str, given: Any, said: str
) -> None:
    with pytest.raises(DagArgsError) as refused:
        FACTORIES[kind](given)
    assert said in str(refused.value)
    assert str(refused.value).startswith("dag_args of ")


def test_all_wrong_arguments_are_told_at_once() -> None:
    with pytest.raises(DagArgsError) as refused:
        FACTORIES["stream"]({"max_active_runs": 2, "pool": 1, "default_args": {"a": 1}})
    lines = str(refused.value).splitlines()
    assert lines[0] == "dag_args of hourly_departures.stream has 3 faults:"
    assert [line.split(" = ")[0] for line in lines[1:]] == [
        "  1. dag_args.max_active_runs", "  2. dag_args.pool", "  3. dag_args.default_args.a",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", FACTORIES)
def test_only_backfills_have_several_active_runs(kind: str) -> None:
    if kind == "backfill":
        assert FACTORIES[kind]({"max_active_runs": 3}).max_active_runs == 3
        return
    with pytest.raises(DagArgsError, match="two runs at once would start one stream"):
        FACTORIES[kind]({"max_active_runs": 3})


def test_an_argument_that_this_airflow_has_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailrace.airflow import dag_args

    monkeypatch.setattr(dag_args, "_known", lambda kind: frozenset({"tags"}))
    with pytest.raises(DagArgsError, match="expected an argument that this version of Airflow has"):
        backfill_dag(FLIGHTS, dag_args={"deadline": None})


def test_every_argument_that_is_offered_is_one_of_airflows() -> None:
    from airflow.sdk import DAG, BaseOperator

    from tailrace.airflow import dag_args

    assert set(DagArgs.__annotations__) - set(dag_args._OF_TASKS) <= dag_args._known(DAG)
    assert set(TaskArgs.__annotations__) - {"conn_id"} <= dag_args._known(BaseOperator)
