"""Runs on a real cluster: a Spark master with two workers, to which each run is submitted."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from shutil import copy

import pyspark
import pytest
from pyspark.sql import SparkSession
from support import rides

from tailrace.model.time import instant
from tailrace.runners.jobs import BackfillJob, MaintainJob, RunnerError
from tailrace.runners.submit import Submit
from tailrace.settings import Settings
from tailrace.toolchain import class_path, quiet_home, require_java

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent


@pytest.fixture
def master(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster with two workers of one core each, on this machine alone."""
    monkeypatch.setenv("JAVA_HOME", str(quiet_home(require_java(settings.java_home), settings.jars)))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("SPARK_NO_DAEMONIZE", "1")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    run = [str(HOME / "bin" / "spark-class"), "org.apache.spark.deploy."]
    quiet = ["--host", "127.0.0.1", "--webui-port", "0"]
    small = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work")]
    one_worker = [run[0], f"{run[1]}worker.Worker", address, *quiet, *small]
    start = [[run[0], f"{run[1]}master.Master", *quiet, "--port", str(port)], one_worker, one_worker]
    logs = [tmp_path / f"cluster{number}.log" for number in range(len(start))]
    running = []
    for command, log in zip(start, logs, strict=True):
        with log.open("wb") as out:
            running.append(subprocess.Popen(command, stdout=out, stderr=out, env=dict(os.environ)))
    until = time.monotonic() + 120
    while logs[0].read_text().count("Registering worker") < 2:
        assert time.monotonic() < until, logs[0].read_text()
        time.sleep(0.2)
    yield address
    for process in reversed(running):
        process.terminate()
        process.wait(30)


@pytest.mark.slow
def test_runs_that_are_submitted_to_a_cluster_do_what_those_of_one_machine_do(
    master: str, settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    case = rides.Case(spark, settings, tmp_path / "landing")
    case.land(("ann", 1, "08:05"))
    case.land(("zoe", 1, "20:00"))
    case.land(("ann", 2, "08:15"))
    case.drain(rides.HOURLY)
    copy(Path(rides.__file__), tmp_path / "neighbour.py")
    definition = tmp_path / "hourly.py"
    definition.write_text("from neighbour import HOURLY\n")

    jars = ":".join(map(str, class_path(settings.jars, ("lake",))))
    options = [word for side in ("driver", "executor") for word in ("--conf", f"spark.{side}.extraClassPath={jars}")]
    options += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m"]
    command = str(Path(sys.executable).with_name("spark-submit"))
    runner = Submit(master, ROOT / "spark" / "jobs", options=options, command=command, settings=settings)
    first = instant(datetime(2026, 1, 1, tzinfo=UTC))
    job = BackfillJob.of(
        definition=str(definition), first=first, last=first + 43_200_000_000, reason='$(touch no); "--dry-run" `'
    )
    (done,) = runner.backfill(job, print)
    assert (done.changed, done.untouched, done.retracted) == (1, 0, 0)
    assert case.answers(rides.HOURLY)[("ann", "08:00")] == (2, 3)
    assert not list(tmp_path.rglob("no"))

    kept = runner.maintain(MaintainJob(definition=str(definition)), print)
    assert {"rides", "hourly"} <= {one["table"] for one in kept["tables"]}

    with pytest.raises(RunnerError, match="no such file") as refused:
        runner.backfill(job.model_copy(update={"definition": str(tmp_path / "none.py")}), print)
    assert not refused.value.again
