"""Sensors that wait for a watermark, what Airflow keeps of them, and the trigger that looks while no worker is held."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("airflow", reason="Airflow is not installed: make setup WITH=airflow")

from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException

from tailrace import AfterWatermark, Count, Fixed, Log, Pipeline, minutes
from tailrace.airflow.connection import TYPE
from tailrace.airflow.operators import BackfillRangeOperator, MaintainOperator
from tailrace.airflow.sensors import FreshnessSensor, WatermarkSensor
from tailrace.airflow.triggers import Wait, WatermarkTrigger
from tailrace.lake.catalog.lake import head_of
from tailrace.lake.read.current_watermark import current_watermark
from tailrace.model.base.time import BEGINNING, END_OF_TIME, hours, instant
from tailrace.runners.jobs import RunnerError
from tailrace.testing.lakes import LakeStream, ScratchLake

ROOT = Path(__file__).parents[2]
HOUR = 3_600_000_000
SECRET = "s3cret-Of-The-Lake"

LOG = Log(name="rides", columns={"who": "string", "day": "timestamp"}, event_time="day", disorder=minutes(10))
HOURLY = Pipeline(
    name="hourly", log=LOG, key="who", what={"n": Count()}, where=Fixed(minutes(60)), when=AfterWatermark(),
    allowed_lateness=minutes(0),
)  # fmt: skip


def ride(time: str) -> dict[str, str]:
    return {"who": "ann", "day": f"2026-01-01T{time}:00Z"}


def at(time: str) -> int:
    return instant(datetime.fromisoformat(f"2026-01-01T{time}:00Z"))


@pytest.fixture
def connected_lake(lake: ScratchLake, monkeypatch: pytest.MonkeyPatch) -> ScratchLake:
    """Let Airflow find the lake under `shop_lake`, with a secret that must show nowhere."""
    extra = {"warehouse": str(lake.settings.warehouse), "secrets": {"schema_registry_token": SECRET}}
    extra["schema_registry_uri"] = "https://registry"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_LAKE", json.dumps({"conn_type": TYPE, "extra": json.dumps(extra)}))
    return lake


async def _first(trigger: WatermarkTrigger, meanwhile: Any = None) -> Any:
    waiting = asyncio.ensure_future(anext(aiter(trigger.run())))
    if meanwhile is not None:
        await asyncio.sleep(0.3)
        assert not waiting.done(), "nothing has been reached yet"
        await asyncio.to_thread(meanwhile)
    return (await asyncio.wait_for(waiting, 60)).payload


def test_a_watermark_counts_once_the_answers_up_to_it_are_there(lake: ScratchLake, stream: LakeStream) -> None:
    assert current_watermark(lake.tables, "hourly") is None
    stream(HOURLY, [ride("08:05"), ride("10:05")])
    stream.settle()
    assert current_watermark(lake.tables, "hourly") == at("09:55")
    assert current_watermark(lake.tables, "rides") == at("09:55")
    assert current_watermark(lake.tables, "hurly") is None
    stream(HOURLY, [ride("12:05")])
    seen = (current_watermark(lake.tables, "hourly"), current_watermark(lake.tables, "rides"))
    stream.settle()
    assert current_watermark(lake.tables, "hourly") == at("11:55")
    behind = lake.tables.head("hourly").number("epoch") < 1
    assert seen == (at("09:55") if behind else at("11:55"), at("11:55"))


def test_an_answer_that_lags_behind_its_ledger_holds_the_watermark_back(
    lake: ScratchLake, stream: LakeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailrace.lake.read import current_watermark as reading

    stream(HOURLY, [ride("08:05"), ride("10:05")])
    stream.settle()
    updated = lake.tables.head("hourly")
    stream(HOURLY, [ride("12:05")])
    stream.settle()
    real = head_of
    stale = lambda table: updated if table.name()[-1] == "hourly" else real(table)  # noqa: E731
    monkeypatch.setattr(reading, "head_of", stale)
    assert current_watermark(lake.tables, "hourly") == at("09:55")
    monkeypatch.setattr(
        reading,
        "head_of",
        lambda table: type(updated)(1, {"ledger_snapshot": "5"}) if table.name()[-1] == "hourly" else real(table),
    )
    assert current_watermark(lake.tables, "hourly") == BEGINNING, "of a snapshot that is gone nothing is known"


@pytest.mark.parametrize(
    ("wait", "watermark", "over", "said"),
    [
        (Wait("p", until=5 * HOUR), None, False, "p has no tables yet"),
        (Wait("p", until=5 * HOUR), BEGINNING, False, "p has no watermark yet"),
        (Wait("p", until=5 * HOUR), 5 * HOUR - 1, False, "not yet at 1970-01-01T05:00:00Z"),
        (Wait("p", until=5 * HOUR), 5 * HOUR, True, "1970-01-01T05:00:00Z"),
        (Wait("p", until=5 * HOUR), END_OF_TIME, True, "end of time"),
        (Wait("p", within=2 * HOUR), 8 * HOUR - 1, False, "not yet at 2 hours before now"),
        (Wait("p", within=2 * HOUR), 8 * HOUR, True, "08:00:00Z"),
        (Wait("p", within=2 * HOUR), END_OF_TIME, True, "end of time"),
    ],
)
def test_a_wait_is_over_when_the_watermark_is_there(wait: Wait, watermark: int | None, over: bool, said: str) -> None:
    found, told = wait.judge(watermark, 10 * HOUR)
    assert (found, said in told) == (over, True), told


def test_a_watermark_days_ahead_of_the_clock_says_nothing_of_freshness() -> None:
    with pytest.raises(RunnerError, match="ahead of the clock"):
        Wait("p", within=HOUR).judge(60 * HOUR, 10 * HOUR)
    assert Wait("p", until=HOUR).judge(60 * HOUR, 10 * HOUR)[0]


def test_a_sensor_defers_until_the_watermark_is_there_and_the_trigger_looks_meanwhile(
    connected_lake: ScratchLake, stream: LakeStream
) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    stream(HOURLY, [ride("08:05"), ride("10:05")])
    stream.settle()
    sensor = WatermarkSensor(
        task_id="wait",
        of="hourly",
        until="2026-01-01T11:00:00+00:00",
        conn_id="shop_lake",
        poke_interval=0.05,
        timeout=60,
    )
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    assert deferred.value.timeout == timedelta(seconds=60)
    assert deferred.value.method_name == "resume"

    def fold() -> None:
        stream(HOURLY, [ride("12:05")])
        stream.settle()

    event = asyncio.run(_first(deferred.value.trigger, fold))
    assert event == {"said": "the watermark of hourly is at 2026-01-01T11:55:00Z"}
    sensor.resume({}, event)
    sensor.execute({})
    for until in ("2026-01-01T11:55:00Z", datetime(2026, 1, 1, 11, 55, tzinfo=UTC)):
        WatermarkSensor(task_id="wait", of="hourly", until=until, conn_id="shop_lake", deferrable=False).execute({})


def test_a_trigger_is_made_anew_of_what_airflow_keeps_of_it_and_no_secret_is_kept(connected_lake: ScratchLake) -> None:
    from airflow.sdk._shared.module_loading import import_string

    until = instant(datetime(2026, 1, 1, tzinfo=UTC))
    path, kept = WatermarkTrigger(of="hourly", until=until, conn_id="shop_lake", every=5.0).serialize()
    assert SECRET not in json.dumps(kept)
    again = import_string(path)(**json.loads(json.dumps(kept)))
    assert again.serialize() == (path, kept)
    assert asyncio.run(_first(WatermarkTrigger(of="hourly", until=until, conn_id="nowhere")))["failed"]


def test_a_trigger_that_cannot_look_fails_the_task_and_says_whether_it_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    sensor = FreshnessSensor(task_id="fresh", of="hourly", within=hours(1))
    monkeypatch.setenv("TAILRACE_CATALOG_URI", "ftp://there")
    event = asyncio.run(_first(WatermarkTrigger(of="hourly", within=HOUR)))
    assert "catalog_uri" in event["failed"]
    with pytest.raises(AirflowException):
        sensor.resume({}, event)
    with pytest.raises(AirflowFailException, match="never"):
        sensor.resume({}, {"failed": "never", "again": False})
    with pytest.raises(AirflowException, match="catalog_uri"):
        sensor.poke({})
    monkeypatch.delenv("TAILRACE_CATALOG_URI")
    with pytest.raises(AirflowFailException, match="no instant"):
        WatermarkSensor(task_id="wait", of="hourly", until="tomorrow").poke({})
    with pytest.raises(AirflowFailException, match="no time zone"):
        WatermarkSensor(task_id="wait", of="hourly", until="2026-01-01T00:00:00").poke({})
    with pytest.raises(ValueError, match="expected a duration"):
        FreshnessSensor(task_id="fresh", of="hourly", within=-hours(1))


def dag_of_ones_own() -> DAG:
    with DAG("own", schedule=None, default_args={"conn_id": "shop_lake"}) as dag:
        definition = ROOT / "pipelines" / "flights.py"
        wait = WatermarkSensor(task_id="wait", of="hourly_departures", until="{{ data_interval_end }}")
        fresh = FreshnessSensor(task_id="fresh", of="hourly_departures", within=hours(1))
        backfill = BackfillRangeOperator(
            task_id="backfill", definition=definition, first="{{ data_interval_start }}", last="{{ data_interval_end }}"
        )
        wait >> fresh >> backfill >> MaintainOperator(task_id="maintain", definition=definition)
    return dag


def test_a_dag_of_ones_own_is_kept_with_the_id_of_the_connection_and_no_secret(connected_lake: ScratchLake) -> None:
    dag = dag_of_ones_own()
    tasks: list[Any] = list(dag.tasks)
    assert {task.conn_id for task in tasks} == {"shop_lake"}
    from airflow.serialization import serialized_objects as kept_as

    # Before Airflow 3.2, another class did this.
    serialized: Any = getattr(kept_as, "DagSerialization", None) or vars(kept_as)["SerializedDAG"]
    kept = serialized.to_dict(dag)
    text = json.dumps(kept, default=str)
    assert SECRET not in text
    assert "shop_lake" in text
    again = serialized.from_dict(json.loads(json.dumps(kept)))
    assert set(again.task_ids) == {"wait", "fresh", "backfill", "maintain"}
    assert "{{ data_interval_end }}" in text


BLOCKED = """
import sys
from pathlib import Path

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "py4j", "duckdb", "pyiceberg", "pyarrow", "numpy"}:
            raise ModuleNotFoundError(f"{name} is not there", name=name)
        return None

sys.meta_path.insert(0, Blocked())
from datetime import timedelta
from airflow.sdk import DAG
from tailrace.airflow import backfill_dag, maintenance_dag, repair_dag, stream_dag, dbt_dag
from tailrace.airflow.hook import TailraceHook
from tailrace.airflow.operators import BackfillRangeOperator, MaintainOperator
from tailrace.airflow.provider import get_provider_info
from tailrace.airflow.sensors import FreshnessSensor, WatermarkSensor
from tailrace.airflow.triggers import WatermarkTrigger

definition = Path("pipelines/flights.py")
made = [stream_dag(definition, folder="/landing"), backfill_dag(definition), repair_dag(definition),
        maintenance_dag(definition), dbt_dag("dbt", reads=["hourly_departures"])]
with DAG("own", schedule=None):
    WatermarkSensor(task_id="wait", of="hourly", until="{{ data_interval_end }}")
    FreshnessSensor(task_id="fresh", of="hourly", within=timedelta(hours=1))
    BackfillRangeOperator(task_id="backfill", definition=definition, first="2026-01-01T00:00:00Z")
    MaintainOperator(task_id="maintain", definition=definition)
get_provider_info()
print(len(made))
"""


def test_dags_are_parsed_where_neither_spark_nor_duckdb_is_installed(tmp_path: Path) -> None:
    env = {"AIRFLOW_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["5"]
