"""Runs of an EMR Serverless application: its API by moto, its job runs by a real spark-submit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from shutil import copy

import pytest
from pyspark.sql import SparkSession

from tailrace.aws.emr import Application, EmrServerless
from tailrace.aws.objects import AwsError
from tailrace.model.base.time import instant
from tailrace.runners.jobs import BackfillJob, Cancelled, RunnerError, StreamJob
from tailrace.settings import Settings
from tailrace.toolchain import class_path, quiet_home, require_java
from tests.support.depth import deep
from tests.support.lakes import rides
from tests.support.services.emr import ROLE, Emr, emr
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
FIRST = instant(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def service(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emr]:
    """Start moto's EMR Serverless, whose jobs run here: 2 seconds, and 8 for each job's JVM."""
    monkeypatch.setenv("JAVA_HOME", str(quiet_home(require_java(settings.java_home), settings.jars)))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    # What moto serves is http, which the other side's certificates have no part in.
    jars = os.pathsep.join(map(str, class_path(settings.jars, ("lake",))))
    options = ["--conf", f"spark.driver.extraClassPath={jars}", "--conf", "spark.driver.host=127.0.0.1"]
    (tmp_path / "emr").mkdir()
    with emr(tmp_path / "emr", ROOT / "spark" / "jobs", [*options, "--driver-memory", "1g"], monkeypatch) as made:
        yield made


def runner(service: Emr, settings: Settings, definitions: Path) -> EmrServerless:
    told = {"TAILRACE_WAREHOUSE": str(settings.warehouse), "TAILRACE_SHUFFLE_PARTITIONS": "1"}
    place = "s3://lake/tailrace"
    application = Application(service.application, ROLE, place, definitions=str(definitions), environment=told)
    return EmrServerless(application, every=0.2)


@deep
@pytest.mark.slow
def test_runs_of_an_application_do_what_those_of_one_machine_do(
    service: Emr, settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    case = rides.Case(spark, settings, tmp_path / "landing")
    case.land(("ann", 1, "08:05"))
    case.land(("zoe", 1, "20:00"))
    case.land(("ann", 2, "08:15"))
    case.drain(rides.HOURLY)
    there = tmp_path / "there"
    there.mkdir()
    copy(Path(rides.__file__), there / "neighbour.py")
    (there / "hourly.py").write_text("from neighbour import HOURLY\n")
    asked, told = runner(service, settings, there), list[str]()

    # The definition has another path where it is asked for; what a form says is an argument and no more.
    job = BackfillJob.of(
        definition="/dags/hourly.py", first=FIRST, last=FIRST + 43_200_000_000, reason='$(touch no); "--dry-run" `'
    )
    (done,) = asked.backfill(job, told.append)
    assert (done.changed, done.untouched, done.retracted) == (1, 0, 0)
    assert case.answers(rides.HOURLY)[("ann", "08:00")] == (2, 3)
    assert told[0].startswith("submitted job run ")
    assert told[-1].endswith(" is success")
    assert not list(tmp_path.rglob("no"))

    with pytest.raises(RunnerError, match="no such file") as refused:
        asked.backfill(job.model_copy(update={"definition": "/dags/none.py"}), told.append)
    assert not refused.value.again
    asked.cancel()
    with pytest.raises(Cancelled):
        asked.backfill(job, told.append)


@deep
@pytest.mark.slow
def test_a_stream_of_an_application_is_kept_and_stopped_and_its_loss_is_told(
    service: Emr, settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    case, told = rides.Case(spark, settings, tmp_path / "landing"), list[str]()
    case.land(("ann", 1, "08:05"))
    there = tmp_path / "there"
    there.mkdir()
    copy(Path(rides.__file__), there / "neighbour.py")
    (there / "hourly.py").write_text("from neighbour import HOURLY\n")
    asked = runner(service, settings, there)
    job = StreamJob.of(definitions=("/dags/hourly.py",), folder=str(tmp_path / "landing"), format="json", every=0.2)

    first = asked.stream(job, told.append)
    assert (first.state, first.ended) == ("started", None)
    assert asked.stream(job, told.append).run == first.run
    until(lambda: case.lake.has("hourly") and case.lake.head("hourly__ledger").number("epoch") >= 0)
    assert first.run is not None
    service.lose(first.run)
    until(lambda: asked.stream(job, told.append).run != first.run)
    second = asked.stream(job, told.append)
    assert second.state == "running"
    case.land(("ann", 2, "08:15"))
    until(lambda: case.lake.head("hourly__ledger").number("epoch") >= 1)

    assert asked.stop_stream(job, told.append).state == "stopped"
    assert asked.stream(job, told.append).state == "stopped", "it was stopped by hand"
    assert "is cancelled" in told[-1]
    before = len(service.processes)
    third = asked.stream(job, told.append, anew=True)
    assert third.state == "started"
    until(lambda: len(service.processes) > before)
    asked.stop_stream(job, told.append)


def test_values_that_make_no_application_are_told_of_all_at_once() -> None:
    with pytest.raises(AwsError) as refused:
        Application("No!", "role", "/tmp", conf={"spark.a": "b c"})
    assert [one.split(" ")[0] for one in str(refused.value).split("; ")] == ["id", "role", "place", "spark.a='b"]
