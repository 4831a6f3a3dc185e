"""A month is backfilled by a real Airflow, four runs at a time, beside a stream that it has started and looks after.

Airflow is on PostgreSQL, where the machine has one; the tests in a browser have it on SQLite.
"""

from __future__ import annotations

import os
import signal
import time
import urllib.parse
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace.generate.flights import landing_cuts, load, write_files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.status import log_status
from tailrace.model.base.time import hours
from tailrace.plan.loader import load as definition
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.depth import deep
from tests.support.services.airflows import ROOT, Api, missing
from tests.support.services.postgres import POSTGRES, postgres

pytestmark = [
    deep,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

PIPELINE = definition(str(ROOT / "pipelines" / "flights.py"))
FIRST, LIVE, LAST = date(2013, 3, 1), date(2013, 4, 1), date(2013, 4, 8)
"""What was streamed before, and what comes while the backfill runs."""

DAYS = 30
BY_HAND = """
SELECT origin, DATE_TRUNC('hour', scheduled) AS window_start, COUNT(*) AS flights, COUNT(delay) AS departures,
       AVG(delay) AS mean_delay
FROM flights WHERE scheduled >= TIMESTAMP '2013-03-01' AND scheduled < TIMESTAMP '2013-03-31' GROUP BY ALL
"""
ANSWERS = """
SELECT origin, window_start, flights, departures, mean_delay FROM hourly_departures
WHERE window_start >= TIMESTAMP '2013-03-01' AND window_start < TIMESTAMP '2013-03-31'
"""


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    write_files(load(FIRST, LIVE), folder, landing_cuts(FIRST, LIVE, every=hours(48)))
    return folder


@pytest.fixture(params=["postgresql" if POSTGRES else "sqlite"])
def database(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """What Airflow is told of its database; a test's name says which it was."""
    if request.param == "sqlite":
        yield {}
    else:
        with postgres() as address:
            yield {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": address}


@pytest.fixture
def airflow(tmp_path: Path, landing: Path, settings: Settings, database: dict[str, str]) -> Iterator[Any]:
    """Start Airflow's scheduler, DAG processor and pages, 25 seconds."""
    from tailrace.airflow.standalone import Standalone

    more = {"TAILRACE_DRIVER_MEMORY": "2g", "TAILRACE_SHUFFLE_PARTITIONS": "2", "FLIGHTS_LANDING": str(landing)}
    more |= database
    started = Standalone(tmp_path / "home", ROOT / "dags", settings.warehouse, port=0, settings=more)
    started.start()
    yield started
    started.stop()


def test_L1_thirty_days_with_four_active_runs_beside_a_live_stream_equal_one_batch(
    airflow: Any, landing: Path, settings: Settings, spark: SparkSession
) -> None:
    lake = Lake(settings)
    stream, backfill = (Api(airflow, "admin", f"hourly_departures.{name}") for name in ("stream", "backfill"))
    stream.call(f"/dags/{stream.dag}", {"is_paused": False}, "PATCH")
    assert process(looked_after(stream))
    stream.until(lambda: lake.has("hourly_departures__ledger") and streamed(lake, landing))

    asked = {"dag_id": backfill.dag, "from_date": "2013-03-01T00:00:00Z", "to_date": "2013-03-30T00:00:00Z"}
    backfill.call("/backfills", asked | {"max_active_runs": 4, "reprocess_behavior": "none", "dag_run_conf": {}})
    before, most, killed, waiting = epoch(lake), 0, 0, arrivals(landing)
    while not (runs := backfill.runs()) or any(run["state"] in ("queued", "running") for run in runs):
        most = max(most, sum(run["state"] == "running" for run in runs))
        if (file := next(waiting, None)) is not None:
            file.rename(landing / file.name)
        if epoch(lake) > before and not killed:
            killed = process(looked_after(stream))
            os.kill(killed, signal.SIGKILL)
            assert process(looked_after(stream)) != killed
        time.sleep(2)
    assert [run["state"] for run in runs] == ["success"] * DAYS
    assert 2 <= most <= 4

    for file in waiting:
        file.rename(landing / file.name)
    stream.until(lambda: streamed(lake, landing))
    assert "stopped by hand" in looked_after(stream, stream="stop")
    assert epoch(lake) > before, "the stream went on beside"
    said = [stream.did(run["dag_run_id"], "stream")["said"] for run in stream.runs()]
    assert any("it was killed" in one for one in said)
    assert {tuple(row) for row in spark.sql(ANSWERS).collect()} == {tuple(row) for row in spark.sql(BY_HAND).collect()}
    generations = {run.generation for run in Runs(lake, PIPELINE).all() if run.kind == "backfill"}
    assert len(generations) == DAYS
    found = audit(lake, PIPELINE)
    assert found.ok, found.checks


def looked_after(dag: Api, **conf: object) -> str:
    """What a run of the stream DAG says that it found or did."""
    run = dag.trigger(**conf)
    place = f"/dags/{dag.dag}/dagRuns/{urllib.parse.quote(run)}"
    dag.until(lambda: dag.call(place)["state"] in ("success", "failed"))
    tasks = dag.call(f"{place}/taskInstances")["task_instances"]
    did = dag.did(run, "stream")
    assert dag.call(place)["state"] == "success", (did, [(task["task_id"], task["state"]) for task in tasks])
    said: str = did["said"]
    return said


def process(said: str) -> int:
    """The process that a run says runs."""
    return int(said.split("process ")[1].split()[0].rstrip(";"))


def arrivals(landing: Path) -> Iterator[Path]:
    """Files that are still to land, in their order."""
    aside = landing.with_name("aside")
    yield from write_files(load(LIVE, LAST), aside, landing_cuts(LIVE, LAST, every=hours(12)))


def epoch(lake: Lake) -> int:
    return lake.head("hourly_departures__ledger").number("epoch")


def streamed(lake: Lake, landing: Path) -> bool:
    """Whether everything that has landed is in the log and folded."""
    lines = sum(len(file.read_text().splitlines()) for file in landing.glob("*.json"))
    log = log_status(lake, "flights")
    return log.records == lines and epoch(lake) == log.epoch
