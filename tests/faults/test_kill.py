"""A stream killed at any moment loses nothing and doubles nothing (X1 to X3, X6): real processes and SIGKILL.

It changes its engine as it is started again, and is backfilled in between.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.backfill.backfill import backfill_stages
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tailrace.plan.loader import load_ranged
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.depth import deep
from tests.support.faults.killing import KILLS, SEED, environment, run_and_kill, run_here
from tests.support.lakes.landing import DEAR, DEFINITION, Landing


@pytest.mark.slow
@pytest.mark.timeout(600 * KILLS)
@pytest.mark.parametrize("part", [0, pytest.param(1, marks=deep)])
def test_X2_a_stream_killed_at_many_moments_ends_as_if_it_never_was(
    spark: SparkSession, settings: Settings, tmp_path: Path, part: int
) -> None:
    chance = random.Random(SEED + part)
    definition = tmp_path / "visits.py"
    definition.write_text(DEFINITION + DEAR)
    landing = Landing(tmp_path / "landing", chance)
    stages, dear = (f"{definition}:{name}" for name in ("visits_by_length", "dear_clicks"))
    words = ["stream", stages, dear, "--from", str(landing.folder), "--json", "--per-epoch"]
    command = [sys.executable, "-m", "tailrace.cli.main", *words, "1"]
    killed, env = 0, environment(settings)
    later = _loaded(stages)
    for _ in range(KILLS):
        landing.land(16)
        engine = chance.choice(["duckdb", "duckdb", "spark"])
        own = {"TAILRACE_ENGINE": engine, "TAILRACE_WINDOWS_IN_DRIVER": chance.choice(["0", "1000"])}
        killed += run_and_kill(command, env | own, chance)
        _backfilled(Lake(settings), later)
    assert killed == KILLS, f"seed {SEED}"
    # What is left is drained in larger epochs, which takes less time and must not matter.
    run_here(*words, "8", "--once", env=env)
    assert _backfilled(Lake(settings), later), f"seed {SEED}"
    found = audit(Lake(settings), load_ranged(dear))
    assert found.ok, f"seed {SEED}: {[check for check in found.checks if not check.ok]}"
    found = audit(Lake(settings), later)
    assert found.ok, f"seed {SEED}: {[check for check in found.checks if not check.ok]}"
    assert found.counts["retractions"] > 0, "the data has visits that grow after they were counted"
    assert later.earlier is not None
    found = audit(Lake(settings), later.earlier)
    assert found.ok, f"seed {SEED}: {[check for check in found.checks if not check.ok]}"
    assert found.counts["records"] == landing.records, f"seed {SEED}"
    assert found.counts["rejected"] == landing.broken, f"seed {SEED}"
    # A kill between two of the source's own files may leave two landed files for one epoch.
    assert found.counts["epochs"] <= landing.count, f"seed {SEED}"
    assert found.counts["late"] > 0, "the data has records that are too late"


def _backfilled(lake: Lake, later: Pipeline) -> bool:
    """Backfill what the stream can reach no more in any stage, if there is anything yet."""
    there = [stage for stage in later.stages if lake.has(f"{stage.name}__ledger")]
    heads = [lake.head(f"{stage.name}__ledger").number("watermark", BEGINNING) for stage in there]
    known = [stage.closed_until(watermark) for stage, watermark in zip(there, heads, strict=True)]
    if len(known) < len(later.stages) or min(known) <= BEGINNING:
        return False
    backfill_stages(lake, later, BEGINNING, min(known))
    return True


def _loaded(definition: str) -> Pipeline:
    from tailrace.plan.loader import load

    return load(definition)
