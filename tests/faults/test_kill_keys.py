"""Folds of computations killed at any moment, in a process without Spark: real SIGKILL (X2, X6; MillWheel, 6)."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tailrace.model.step.chain_fold import fold_chain
from tailrace.settings import Settings
from tests.support.cases.clicks import VISITS
from tests.support.cases.searches import HASTY
from tests.support.depth import deep
from tests.support.engines.computation_folds import Folded, searched, visited
from tests.support.faults.killing import KILLS, SEED, environment, run_and_kill


def command(which: str, count: int, region: str = "") -> list[str]:
    return [sys.executable, "-m", "tests.support.engines.computation_folds", which, str(count), region]


def ends(line: list[str], settings: Settings, chance: random.Random) -> int:
    """Kill a process again and again, then have it come to its end; gives how often it was still running."""
    running = sum(run_and_kill(line, environment(settings), chance, 1) for _ in range(KILLS))
    done = subprocess.run(line, env=environment(settings), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return running


@deep
@pytest.mark.timeout(120 * (KILLS + 2))
def test_X2_a_computation_killed_at_many_moments_ends_as_if_it_never_was(settings: Settings) -> None:
    count = 16 * KILLS
    assert ends(command("visits", count), settings, random.Random(SEED)) * 2 >= KILLS, f"seed {SEED}"
    one, run = Folded(settings, VISITS), fold_chain(VISITS, visited(count))[-1]
    told = Counter((row["who"], row["epoch"], row["clicks"], row["source_offset"]) for row in one.rows("production"))
    assert told == Counter((*p.key, p.epoch, p.values["clicks"], p.place) for p in run.productions), f"seed {SEED}"
    late = Counter((row["source_epoch"], row["source_offset"], row["behind"]) for row in one.rows("late"))
    assert late == Counter((lost.epoch, lost.record["_offset"], lost.behind) for lost in run.late)
    one.clean()


@pytest.mark.timeout(120 * (KILLS + 2))
@pytest.mark.slow
def test_X6_two_regions_that_claim_at_once_one_of_them_killed_join_every_click_once(
    settings: Settings, tmp_path: Path
) -> None:
    count, chance = 16 * KILLS, random.Random(SEED)
    eu, us = (settings.model_copy(update={"namespace": name}) for name in ("eu", "us"))
    with subprocess.Popen(command("photon", count, "us"), env=environment(us), stdout=subprocess.DEVNULL) as other:
        assert ends(command("photon", count, "eu"), eu, chance) * 2 >= KILLS, f"seed {SEED}"
        assert other.wait() == 0
    both = Counter[str]()
    for one, region in ((Folded(eu, HASTY), "eu"), (Folded(us, HASTY), "us")):
        joined = {
            kind: Counter(row["click_id"] for row in one.rows(kind) if row["outcome"] == "joined") for kind in KINDS
        }
        alone = fold_chain(HASTY, searched(count, region))[-1]
        by_itself = Counter(p.values["click_id"] for p in alone.productions if p.values["outcome"] == "joined")
        # What the others claim changes nothing but what counts.
        assert joined["production"] + joined["claimed"] == by_itself, f"seed {SEED}"
        both += joined["production"]
        one.clean()
    assert set(both.values()) == {1}, f"seed {SEED}"


KINDS = ("production", "claimed")
