"""A real Airflow runs DAGs on the days that a backfill has changed, and a sensor waits in its triggerer."""

from __future__ import annotations

import json
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from tailrace.plan.loader import load
from tailrace.testing.lakes import LakeStream, ScratchLake
from tests.airflow.rides import DEFINITION, ride
from tests.support.services.airflows import Api, missing

pytestmark = [
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

DAGS = """
from pathlib import Path

from airflow.sdk import DAG, task

from tailrace.airflow import asset_of, backfill_dag, days_asset_of
from tailrace.airflow.sensors import WatermarkSensor
from tailrace.airflow.tasks import HAS_PARTITION_KEYS

backfill = backfill_dag(f"{Path(__file__).with_name('rides.py')}:hourly")

with DAG("follow", schedule=[asset_of("hourly")], is_paused_upon_creation=False) as follow:

    @task
    def told(triggering_asset_events=None):
        # An event is there under its asset, and under the alias by which the task has told of it.
        return sorted({day for own in triggering_asset_events.values() for one in own for day in one.extra["days"]})

    told()

with DAG("wait", schedule=None, is_paused_upon_creation=False) as wait:
    WatermarkSensor(task_id="complete", of="hourly", until="2026-01-20T00:00:00Z", poke_interval=1)

if HAS_PARTITION_KEYS:
    from airflow.sdk import PartitionedAssetTimetable

    with DAG(
        "export", schedule=PartitionedAssetTimetable(assets=days_asset_of("hourly")), is_paused_upon_creation=False
    ) as export:

        @task
        def told(dag_run=None):
            return [dag_run.partition_key]

        told()
"""


def returned(api: Api) -> list[list[str]]:
    """What the runs of a DAG have returned, in any order."""
    found = []
    for run in api.runs():
        place = f"/dags/{api.dag}/dagRuns/{urllib.parse.quote(run['dag_run_id'])}/taskInstances/told"
        if run["state"] == "success":
            value: Any = api.call(f"{place}/xcomEntries/return_value")["value"]
            found.append(json.loads(value) if isinstance(value, str) else value)
    return sorted(found)


def state(api: Api, run: str, task: str) -> str:
    return str(api.call(f"/dags/{api.dag}/dagRuns/{urllib.parse.quote(run)}/taskInstances/{task}")["state"])


def test_a_backfill_of_three_days_runs_a_dag_for_each_day_while_a_sensor_waits_for_the_watermark(
    tmp_path: Path, lake: ScratchLake, stream: LakeStream
) -> None:
    from tailrace.airflow.standalone import Standalone
    from tailrace.airflow.tasks import HAS_PARTITION_KEYS

    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "rides.py").write_text(DEFINITION)
    (dags / "days.py").write_text(DAGS)
    (dags / ".airflowignore").write_text("rides.py\n")
    hourly, days = load(f"{dags / 'rides.py'}:hourly"), ["2026-01-01", "2026-01-02", "2026-01-03"]
    stream(hourly, [ride(f"2026-01-0{day}T08:05") for day in (1, 2, 3, 4)])
    # These rides come too late for the windows of their hours.
    stream(hourly, [ride(f"{day}T23:30") for day in (*days, "2026-01-07")])
    stream.settle()

    airflow = Standalone(tmp_path / "home", dags, Path(lake.settings.warehouse), port=0)
    airflow.start()
    try:
        names = ("hourly.backfill", "follow", "export", "wait")
        backfill, follow, export, wait = (Api(airflow, "admin", dag) for dag in names)
        there = {"hourly.backfill", "follow", "wait"} | ({"export"} if HAS_PARTITION_KEYS else set())
        backfill.until(lambda: {one["dag_id"] for one in backfill.call("/dags")["dags"]} == there)
        waiting = wait.trigger()
        wait.until(lambda: state(wait, waiting, "complete") == "deferred")
        whole = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-05T00:00:00Z"}
        backfill.trigger(**whole)
        (run,) = backfill.ended(besides=0)
        assert (run["state"], backfill.did(run["dag_run_id"])["changed"]) == ("success", 3)
        follow.until(lambda: returned(follow) == [days])
        if HAS_PARTITION_KEYS:
            export.until(lambda: returned(export) == [[day] for day in days])

        backfill.trigger(**whole)
        assert [run["state"] for run in backfill.ended(besides=1)] == ["success"] * 2
        assert returned(follow) == [days], "a run that changes nothing tells nothing"
        events = backfill.call("/assets/events?limit=100")["asset_events"]
        assert len(events) == 1 + (3 if HAS_PARTITION_KEYS else 0)

        assert state(wait, waiting, "complete") == "deferred"
        stream(hourly, [ride("2026-01-25T08:05")])
        stream.settle()
        assert [run["state"] for run in wait.ended()] == ["success"]
    finally:
        airflow.stop()
