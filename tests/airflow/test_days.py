"""The days that a backfill has changed, as Airflow's events tell them. No Airflow runs here, and no Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow", reason="Airflow is not installed: make setup WITH=airflow")

from airflow.sdk.execution_time.context import OutletEventAccessors

from tailrace.airflow import asset_of, backfill_dag, backfill_task, days_asset_of, repair_dag
from tailrace.airflow.backfill_task import RangesOperator
from tailrace.airflow.tasks import HAS_PARTITION_KEYS
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.corrections.changed_days import changed_days
from tailrace.plan.loader import load
from tailrace.runners.in_process import load_job, run_backfill
from tailrace.runners.jobs import BackfillJob, JobOutcome
from tailrace.settings import Settings
from tailrace.testing.lakes import LakeStream, ScratchLake
from tests.airflow.rides import DEFINITION, ride


class InProcess:
    """A runner that computes in the process of the test."""

    def backfill(self, job: BackfillJob, tell: Callable[[str], None]) -> list[JobOutcome]:
        return run_backfill(Settings(), job, load_job(job), tell, lambda session: None, spark=False)


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    file = tmp_path / "rides.py"
    file.write_text(DEFINITION)
    return file


def told(
    task: RangesOperator, params: Mapping[str, Any], since: datetime | None = None
) -> tuple[dict[str, dict[str, Any]], dict[str, tuple[set[str], Any]]]:
    """What a task tells: events by the asset, and the keys and extras of those with partition keys."""
    events: Any = OutletEventAccessors()
    run = SimpleNamespace(run_type="manual", start_date=since)
    ti = SimpleNamespace(xcom_push=lambda key, value: None, try_number=1 if since is None else 2)
    given: Any = {
        "params": {"from": None, "to": None, "reason": None, "dry_run": False, "parallelism": 1} | dict(params)
    }
    task.execute(given | {"dag_run": run, "ti": ti, "outlet_events": events})
    plain = {one.dest_asset_key.name: one.extra for one in events[task.alias].asset_alias_events}
    days = [one for one in task.outlets if one != task.alias]
    return plain, {one.name: (events[one].partition_keys, events[one].extra) for one in days}


def backfill_of(definition: Path, **more: Any) -> Any:
    return backfill_dag(f"{definition}:daily", runner=InProcess, **more).get_task("backfill")  # type: ignore[arg-type]


def test_a_backfill_tells_the_days_of_each_stage_that_it_has_changed(
    definition: Path, lake: ScratchLake, stream: LakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("TAILRACE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TAILRACE_WAREHOUSE", str(lake.settings.warehouse))
    hourly, daily = load(f"{definition}:hourly"), load(f"{definition}:daily")
    stream(daily, [ride(f"2026-01-0{day}T08:05") for day in (1, 2, 3, 4)])
    # These rides come too late for the windows of their hours.
    stream(daily, [ride(at) for at in ("2026-01-01T23:30", "2026-01-03T23:30", "2026-01-07T12:00")])
    stream.settle()

    task = backfill_of(definition)
    whole: dict[str, Any] = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-05T00:00:00Z"}
    assert told(task, whole | {"dry_run": True}) == ({}, {}), "a run that only compares tells nothing"
    told_days, began = [], datetime.now(UTC)
    for last, days in (("2026-01-02T00:00:00Z", ["2026-01-01"]), (whole["to"], ["2026-01-03"])):
        plain, keyed = told(task, whole | {"to": last, "parallelism": 2})
        assert {name: extra["days"] for name, extra in plain.items()} == {"hourly": days, "daily": days}
        assert all(extra["range"] == [whole["from"], last] and extra["runs"] for extra in plain.values())
        assert not {*plain["hourly"]["runs"]} & {*plain["daily"]["runs"]}
        expected = {f"{name} days": ({*days}, {"runs": extra["runs"]}) for name, extra in plain.items()}
        assert keyed == (expected if HAS_PARTITION_KEYS else {})
        told_days += days
    assert told(task, whole) == ({}, {}), "a run that changes nothing tells nothing"
    plain, _ = told(task, whole, began)
    assert plain["hourly"]["days"] == told_days, "the attempts before, which failed, told nothing of what they changed"
    assert told(task, whole, datetime.now(UTC)) == ({}, {})
    monkeypatch.setattr(backfill_task, "MOST_DAYS", 1)
    assert told(task, whole, began) == (plain, {}), "a request with too many events would be sent twice"
    monkeypatch.setattr(backfill_task, "HAS_PARTITION_KEYS", False)
    before = backfill_of(definition)
    assert before.outlets == [before.alias], "before Airflow 3.3, a task cannot name partition keys"
    assert told(before, whole, began) == (plain, {})

    runs = [run.generation for run in Runs(lake.tables, hourly).all() if run.kind == "backfill"]
    assert changed_days(lake.tables, hourly, runs, "UTC") == told_days
    next_morning = ["2026-01-02", "2026-01-04"]
    assert changed_days(lake.tables, hourly, runs, "Asia/Tokyo") == next_morning, "half past eleven is the next day"
    assert changed_days(lake.tables, hourly, [], "UTC") == []


def test_repairs_have_the_same_assets_as_backfills(definition: Path) -> None:
    repair: Any = repair_dag(f"{definition}:daily", timezone="Asia/Tokyo").get_task("repair")
    backfill = backfill_of(definition)
    assert repair.outlets[1:] == backfill.outlets[1:]
    assert repair.timezone == "Asia/Tokyo"
    if HAS_PARTITION_KEYS:
        assert backfill.outlets[1:] == [days_asset_of("hourly"), days_asset_of("daily")]
    assert asset_of("daily").uri != days_asset_of("daily").uri
