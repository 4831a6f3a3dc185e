"""Two regions, one killed at any moment and between claim and count, join every click once (X2, X6): real SIGKILL."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tailrace.generate.delivery import MINUTE
from tailrace.settings import Settings
from tests.support.cases.searches import LOGS
from tests.support.depth import deep
from tests.support.faults.dying_command import POINT
from tests.support.faults.killing import KILLS, SEED, environment, run_and_kill
from tests.support.faults.regions import DEFINITION, Region, made, otherwise

TABLES = ("joined_clicks", "photon__ledger")
POINTS = [
    *[("duckdb", f"change {table} {when}") for table in TABLES for when in ("before", "after")],
    *[("spark", f"move {table} before") for table in TABLES],
]
"""Claims that are written, claims that are published; an epoch that is written, one that is published; by engine."""


def command(region: Region, *more: str, module: str = "tailrace.cli.main") -> list[str]:
    sources = [word for log in LOGS for word in ("--from", f"{log}={region.folder / log}")]
    line = [sys.executable, "-m", module, "stream", f"{DEFINITION}:photon", *sources]
    return [*line, "--format", "json", "--json", *more]


@deep
@pytest.mark.slow
@pytest.mark.timeout(600 * (KILLS + len(POINTS)))
def test_X6_two_regions_of_which_one_dies_again_and_again_join_every_click_once(
    settings: Settings, tmp_path: Path
) -> None:
    chance, log = random.Random(SEED), made(SEED, length=3 * (KILLS + len(POINTS)) * MINUTE)
    logs = {"eu": log, "us": otherwise(log, chance)}
    eu, us = (Region(settings.model_copy(update={"namespace": n}), tmp_path / n, one) for n, one in logs.items())
    with subprocess.Popen(
        command(us, "--per-epoch", "1"), env=environment(us.settings), stdout=subprocess.DEVNULL, start_new_session=True
    ) as other:
        try:
            for _ in range(KILLS):
                eu.lands(3)
                assert run_and_kill(command(eu, "--per-epoch", "1"), environment(eu.settings), chance, 4), (
                    f"seed {SEED}"
                )
                us.lands(3)
            for engine, point in POINTS:
                eu.lands(3)
                dying = command(eu, "--per-epoch", "1", "--once", module="tests.support.faults.dying_command")
                env, out = environment(eu.settings) | {POINT: point, "TAILRACE_ENGINE": engine}, subprocess.PIPE
                done = subprocess.run(dying, env=env, stdout=out, stderr=out, check=False, start_new_session=True)
                assert done.returncode == -signal.SIGKILL, f"{point}: {done.stderr.decode()}"
                us.lands(3)
            assert other.poll() is None
        finally:
            os.killpg(other.pid, signal.SIGKILL)
    for region in (us, eu):
        region.lands()
        line = command(region, "--per-epoch", "8", "--once")
        done = subprocess.run(line, env=environment(region.settings), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
    for region in (eu, us):
        region.adds_up()
        assert region.plain() == region.joined + region.claimed, f"seed {SEED}"
    both = eu.joined + us.joined
    assert set(both.values()) == {1}, f"seed {SEED}"
    assert both == Counter(set(eu.plain()) | set(us.plain())), f"seed {SEED}"
