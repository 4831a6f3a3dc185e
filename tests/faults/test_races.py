"""Races of real processes: of two that write the same, one wins, and the other stops and says so (X1, X4, V4)."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.landing import DEFINITION, Landing

from tailrace.cli.definitions import load
from tailrace.cli.errors import Status
from tailrace.lake.catalog import Lake
from tailrace.lake.runs import Runs
from tailrace.lake.tables import BACKFILLED
from tailrace.model.pipeline import Pipeline
from tailrace.settings import Settings
from tailrace.spark.audit import audit

PATIENT = 240.0
"""Seconds after which a process that does not get on is taken for stuck."""


@dataclass
class Race:
    """A lake, a folder where files land, and the processes that run on them."""

    settings: Settings
    landing: Landing
    definition: str
    env: dict[str, str]
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start the command in a process group of its own: its JVM is paused and killed with it."""
        line = [sys.executable, "-m", "tailrace.cli.main", *command]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.running.append(subprocess.Popen(line, env=self.env, text=True, start_new_session=True, **pipes))
        return self.running[-1]

    def stream(self, *more: str, per_epoch: int = 1) -> subprocess.Popen[str]:
        source = ("--from", str(self.landing.folder), "--per-epoch", str(per_epoch), "--json")
        return self.start("stream", self.definition, *source, *more)

    def backfill(self, *more: str) -> subprocess.Popen[str]:
        return self.start("backfill", self.definition, *more, "--json")

    def ended(self, process: subprocess.Popen[str], *expected: Status) -> tuple[str, str]:
        out, err = process.communicate(timeout=PATIENT)
        assert process.returncode in expected, f"{process.args}: {process.returncode}\n{out}\n{err}"
        return out, err

    def tell(self, process: subprocess.Popen[str], number: signal.Signals) -> None:
        os.killpg(process.pid, number)

    def drained(self) -> None:
        self.ended(self.stream("--once", per_epoch=16), Status.OK)

    @property
    def pipeline(self) -> Pipeline:
        return load(self.definition)

    def ends_clean(self, spark: SparkSession) -> None:
        """Nothing is lost or doubled: each record is in the log once, the answers are the batch's."""
        found = audit(spark, Lake(self.settings), self.pipeline)
        assert found.ok, [check for check in found.checks if not check.ok]
        assert found.counts["records"] == self.landing.records
        assert found.counts["rejected"] == self.landing.broken


def next_epoch(process: subprocess.Popen[str]) -> int:
    """Wait for the next epoch that a stream reports."""
    assert process.stdout is not None
    for line in process.stdout:
        report = json.loads(line)
        if "epoch" in report:
            return int(report["epoch"])
    raise AssertionError(f"it ended with {process.wait()}: {process.stderr.read() if process.stderr else ''}")


@pytest.fixture
def race(settings: Settings, tmp_path: Path) -> Iterator[Race]:
    definition = tmp_path / "visits.py"
    definition.write_text(DEFINITION)
    env = os.environ | {"TAILRACE_WAREHOUSE": str(settings.warehouse), "TAILRACE_DRIVER_MEMORY": "1g"}
    env |= {"TAILRACE_SHUFFLE_PARTITIONS": "1"}
    made = Race(settings, Landing(tmp_path / "landing", random.Random(7)), f"{definition}:visits", env)
    yield made
    for process in made.running:
        # It waits, and closes the pipes.
        with process:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_X1_a_writer_that_was_paused_and_goes_on_publishes_nothing(race: Race, spark: SparkSession) -> None:
    race.landing.land(4)
    zombie = race.stream()
    next_epoch(zombie)
    race.tell(zombie, signal.SIGSTOP)
    race.landing.land(2)
    race.drained()
    heads = {table: Lake(race.settings).head(table) for table in ("clicks", "visits__ledger")}
    race.landing.land(2)
    race.tell(zombie, signal.SIGCONT)
    _, err = race.ended(zombie, Status.GAVE_WAY)
    assert "another stream took the lease" in err
    assert "Traceback" not in err
    lake = Lake(race.settings)
    assert {table: lake.head(table).said.get("epoch") for table in heads} == {
        table: head.said["epoch"] for table, head in heads.items()
    }, "it was fenced off before it could publish an epoch"
    race.drained()
    race.ends_clean(spark)


@pytest.mark.slow
def test_X1_of_two_streams_that_start_at_once_one_goes_on(race: Race, spark: SparkSession) -> None:
    race.landing.land(4)
    both = [race.stream(), race.stream()]
    until = time.monotonic() + PATIENT
    while all(one.poll() is None for one in both) and time.monotonic() < until:
        # The one that lost finds out when it has something to publish.
        race.landing.land(1)
        time.sleep(3)
    (loser,) = [one for one in both if one.poll() is not None]
    (winner,) = [one for one in both if one is not loser]
    _, err = race.ended(loser, Status.GAVE_WAY)
    assert "run only one stream of a pipeline" in err
    race.tell(winner, signal.SIGINT)
    race.ended(winner, Status.INTERRUPTED)
    race.drained()
    race.ends_clean(spark)


@pytest.mark.slow
def test_X4_a_backfill_of_open_and_closed_windows_beside_a_stream(race: Race, spark: SparkSession) -> None:
    race.landing.land(3)
    stream = race.stream()
    next_epoch(stream)
    run = race.backfill("--from", "2023-12-31", "--reason", "beside a stream")
    while run.poll() is None:
        if race.landing.count < 12:
            race.landing.land(1)
        time.sleep(2)
    race.ended(run, Status.OK)
    assert stream.poll() is None, "the stream goes on"
    race.tell(stream, signal.SIGINT)
    race.ended(stream, Status.INTERRUPTED)
    race.drained()
    made = [run for run in Runs(Lake(race.settings), race.pipeline).all() if run.kind == "backfill"]
    assert {run.status for run in made} == {"committed"}
    race.ends_clean(spark)


@pytest.mark.slow
def test_V4_of_two_backfills_that_overlap_the_later_one_stands(race: Race, spark: SparkSession) -> None:
    race.landing.land(40)
    race.drained()
    both = [race.backfill("--from", "2023-12-31", "--to", "2024-01-01T00:01:00") for _ in range(2)]
    both.append(race.backfill("--from", "2024-01-01T00:00:20", "--to", "2024-01-01T00:01:20"))
    for one in both:
        race.ended(one, Status.OK, Status.GAVE_WAY)
    lake, first = Lake(race.settings), race.pipeline
    runs = [run for run in Runs(lake, first).all() if run.kind == "backfill"]
    assert {run.status for run in runs} <= {"committed", "gave_way"}
    made = [said[BACKFILLED].split()[0] for _, said in lake.commits("visits__ledger") if BACKFILLED in said]
    assert len(made) == len(set(made)) >= 1, "a run commits once"
    changed = sum(run.changed or 0 for run in runs)
    ledger = lake.table("visits__ledger").scan(row_filter="kind = 'pane'").to_arrow().to_pylist()
    corrections = [row for row in ledger if row["timing"] == "correction" and not row["retraction"]]
    assert changed == len(corrections) > 0, "the first changed the windows, and the others found them right"
    race.ends_clean(spark)
