"""Workers of a real cluster that are lost, their executors with them, in an epoch and in a backfill (X2)."""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.cli.terminal.usage import ExitStatus
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.settings import Settings
from tests.support.cluster import SUBMIT, Cluster, cluster
from tests.support.depth import deep
from tests.support.racing import Race, racing
from tests.support.waiting import PATIENT

JOBS = Path(__file__).parents[2] / "spark" / "jobs"
SEED = 20240101
EPOCHS = 8
LOST = (2, 5)
"""After which epochs a worker is lost."""


def submitted(race: Race, place: Cluster, job: str, *words: str) -> subprocess.Popen[str]:
    """A job of the cluster, whose executors compute it."""
    command = [SUBMIT, *place.options, "--driver-memory", "1g", str(JOBS / f"{job}.py"), race.definition, *words]
    race.running.append(
        subprocess.Popen(
            command, env=race.env | place.env | {"TAILRACE_ENGINE": "spark"},
            text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
    )  # fmt: skip
    return race.running[-1]


@deep
@pytest.mark.slow
def test_X2_workers_that_are_lost_in_an_epoch_and_in_a_backfill_lose_and_double_nothing(
    settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    with racing(settings, tmp_path) as race, cluster(tmp_path / "cluster", settings) as place:
        race.landing.land(EPOCHS)
        source = ("--from", str(race.landing.folder), "--per-epoch", "1", "--json", "--once")
        stream = submitted(race, place, "stream", *source)
        assert stream.stdout is not None
        epochs = []
        for line in stream.stdout:
            if not line.startswith('{"event": "epoch"'):
                continue
            epochs.append(json.loads(line)["epoch"])
            if epochs[-1] in LOST:
                time.sleep(chance.random())
                place.lose()
                place.add()
        race.ended(stream, ExitStatus.OK)
        assert epochs == [*range(EPOCHS)]
        before = place.said.count("Launching executor")
        run = submitted(race, place, "backfill", "--from", "2023-12-31", "--reason", "a worker is lost")
        place.launched(before + 2)
        time.sleep(4 + 4 * chance.random())
        assert run.poll() is None
        place.lose()
        out, err = run.communicate(timeout=PATIENT)
        assert run.returncode == ExitStatus.OK, f"{out}\n{err}"
        assert place.said.count("Removing worker") == len(LOST) + 1
        made = [one for one in Runs(Lake(settings), race.pipeline).all() if one.kind == "backfill"]
        assert {one.status for one in made} == {"committed"}
        race.ends_clean(spark)
