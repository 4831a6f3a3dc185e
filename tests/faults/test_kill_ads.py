"""What the definitions of the video ads say is what plain SQL says of their log, however often their stream is killed.

The bills are so to the last digit, and after a backfill has counted what came too late (X2, L1).
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.generate.delivery import HOUR
from tailrace.generate.landing import land
from tailrace.lake.catalog import Lake
from tailrace.settings import Settings
from tailrace.spark.audit import audit
from tailrace.spark.backfill import backfill
from tests.support.ads import DAY, FILES, FIRST, by_hand, definitions, made, paid, rows
from tests.support.killing import KILLS, SEED, run_and_kill


@pytest.mark.slow
@pytest.mark.timeout(600 * KILLS)
def test_X2_bills_unpopular_ads_and_abuse_are_those_of_plain_sql_over_the_log(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    chance, folder = random.Random(SEED), tmp_path / "landing"
    every = HOUR if KILLS < 5 else HOUR // 4
    files = list(land(made(), tmp_path / "all", every=every, instants=("at", "known")))
    folder.mkdir()
    env = os.environ | {"TAILRACE_WAREHOUSE": str(settings.warehouse), "TAILRACE_DRIVER_MEMORY": "1g"}
    env |= {"TAILRACE_SHUFFLE_PARTITIONS": "1"}
    command = [sys.executable, "-m", "tailrace.cli.main", "stream", *FILES, "--from", str(folder), "--json"]
    left = iter(files)
    for _ in range(KILLS):
        for file, _ in zip(left, range(max(2, len(files) // (KILLS + 1))), strict=False):
            file.rename(folder / file.name)
        assert run_and_kill([*command, "--per-epoch", "1"], env, chance, 6), f"seed {SEED}"
    for file in left:
        file.rename(folder / file.name)
    # What is left is drained in larger epochs, which takes less time and must not matter.
    done = subprocess.run(
        [*command, "--per-epoch", "8", "--once"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lake = Lake(settings)
    for pipeline in definitions():
        streamed = rows(plain, pipeline, pipeline.name)
        assert streamed == by_hand(plain, pipeline, late=False), f"seed {SEED}: {pipeline.name}"
        for stage in pipeline.stages:
            found = audit(plain, lake, stage)
            assert found.ok, f"seed {SEED}: {[check for check in found.checks if not check.ok]}"
        # A backfill counts what came too late, too; how much did depends on where the kills cut the epochs.
        backfill(plain, lake, pipeline, FIRST, FIRST + DAY)
        answers = rows(plain, pipeline, pipeline.name)
        assert answers == by_hand(plain, pipeline, late=True), f"seed {SEED}: {pipeline.name}"
        assert audit(plain, lake, pipeline).ok
        if pipeline.name == "ad_bills":
            owed = list(pipeline.what).index("owed")
            assert paid(plain) == sum(answer[owed] for answer in answers.values()), f"seed {SEED}"
