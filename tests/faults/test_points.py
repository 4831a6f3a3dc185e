"""A stream that dies at each named point of its commit protocol ends as if it never had (X1 to X3): real processes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.lake.catalog.lake import Lake
from tailrace.plan.loader import load, load_ranged
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.depth import DEPTH, deep
from tests.support.faults.dying_command import POINT
from tests.support.faults.killing import environment, run_here
from tests.support.lakes.landing import DEAR, DEFINITION, Landing

TABLES = (
    *("clicks__rejected", "clicks", "visits__ledger", "visits_by_length__ledger", "dear_clicks__ledger"),
    "visits_by_length",
)
"""In the order in which an epoch is published to them; the last one follows."""

POINTS = {
    "duckdb": [
        "mark clicks after",
        "mark visits__ledger after",
        "change clicks__rejected before",
        *(f"change {table} after" for table in TABLES),
    ],
    # What is before the protocol's commits is the same on both.
    "spark": [f"move {table} after" for table in TABLES[1:]],
}
"""By the engine that writes the commits. After one is before the next."""

CHOSEN = ["change clicks after", "change visits__ledger after"]
"""Those at each change: a log of which nothing is folded, a stage without the next."""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=deep)])
def test_X2_a_stream_that_dies_at_each_point_of_its_commits_ends_as_if_it_never_had(
    spark: SparkSession, settings: Settings, tmp_path: Path, engine: str
) -> None:
    definition = tmp_path / "visits.py"
    definition.write_text(DEFINITION + DEAR)
    landing = Landing(tmp_path / "landing", random.Random(11))
    env = environment(settings) | {"TAILRACE_ENGINE": engine, "TAILRACE_WINDOWS_IN_DRIVER": "0"}
    stages, dear = (f"{definition}:{name}" for name in ("visits_by_length", "dear_clicks"))
    given = ["stream", stages, dear, "--from", str(landing.folder), "--json", "--once", "--per-epoch", "4"]
    for point in POINTS[engine] if DEPTH > 1 else CHOSEN:
        while True:
            landing.land(4)
            command = [sys.executable, "-m", "tests.support.faults.dying_command", *given]
            done = subprocess.run(
                command, env=env | {POINT: point}, capture_output=True, text=True, start_new_session=True, check=False
            )
            # At the end in good order where there was none to reject.
            if done.returncode != 0 or "rejected" not in point:
                break
        assert done.returncode == -signal.SIGKILL, f"{point}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    run_here(*given, env=env)
    later, lake = load(stages), Lake(settings)
    assert later.earlier is not None
    for stage in (load_ranged(dear), later.earlier, later):
        found = audit(lake, stage)
        assert found.ok, [check for check in found.checks if not check.ok]
    assert found.counts["records"] > 0
    assert found.counts["retractions"] > 0
    assert audit(lake, later.earlier).counts["records"] == landing.records
    assert audit(lake, later.earlier).counts["rejected"] == landing.broken
