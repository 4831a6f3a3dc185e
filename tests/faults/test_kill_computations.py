"""A stream of computations killed at any moment loses nothing and doubles nothing (X2; MillWheel, 6): real SIGKILL."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.cases.clicks import BUSY, TIMES, VISITS, land
from tests.support.checks.ledgers import as_ever
from tests.support.depth import deep
from tests.support.faults.killing import KILLS, SEED, environment, run_and_kill


@deep
@pytest.mark.slow
@pytest.mark.timeout(600 * KILLS)
def test_X2_computations_killed_at_many_moments_end_as_if_they_never_were(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    chance, folder = random.Random(SEED), tmp_path / "landing"
    definition = tmp_path / "visits.py"
    definition.write_text("from tests.support.cases.clicks import BUSY, TIMES\n")
    env = environment(settings)
    command = [sys.executable, "-m", "tailrace.cli.main", "stream", f"{definition}:busy", f"{definition}:times"]
    command += ["--from", str(folder), "--json", "--per-epoch", "1"]
    for part in range(KILLS):
        land(folder, 3 * part, 3)
        assert run_and_kill(command, env, chance, 4), f"seed {SEED}"
    land(folder, 3 * KILLS, 1)
    done = subprocess.run([*command, "--once"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lake = Lake(settings)
    as_ever(plain, lake, [VISITS, BUSY, TIMES])
    for found in (audit(lake, VISITS), audit(lake, BUSY)):
        assert found.ok, f"seed {SEED}: {[check for check in found.checks if not check.ok]}"
    counts = audit(lake, VISITS).counts
    assert counts["records"] == 20 * (3 * KILLS + 1)
    assert min(counts[name] for name in ("late", "timers_fired", "timers_dropped", "productions")) > 0
