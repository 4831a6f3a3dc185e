"""The walks of CONTRIBUTING are the way that a record and a backfill take through the functions of the package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
Step = tuple[str, str]


def walk(title: str) -> list[Step]:
    """Return the steps of a walk, each with its file and its function."""
    text = (ROOT / "CONTRIBUTING.md").read_text().partition(f"**{title}**")[2].partition("**")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)`, `([\w.]+)`", text, re.MULTILINE)


RECORD, BACKFILL = walk("Follow a record"), walk("Follow a backfill")


@pytest.mark.parametrize(("steps", "most"), [(RECORD, 12), (BACKFILL, 8)], ids=["record", "backfill"])
def test_a_walk_is_short_and_visits_each_file_once(steps: list[Step], most: int) -> None:
    files = [file for file, _ in steps]
    assert 8 <= len(files) <= most
    assert len(set(files)) == len(files)
    for file, function in steps:
        assert f"def {function.rpartition('.')[2]}(" in (ROOT / "spark" / "tailrace" / file).read_text()


@pytest.mark.slow
def test_a_record_and_a_backfill_take_the_steps_of_their_walks(tmp_path: Path) -> None:
    """Profile a stream, an audit and a backfill in a process; each thread calls its steps in the walk's order."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    environment |= {f"{PREFIX}WAREHOUSE": str(tmp_path / "lake"), f"{PREFIX}JARS": str(Settings().jars)}
    module = "tests.support.processes.walks"
    done = subprocess.run(
        [sys.executable, "-m", module, str(tmp_path), json.dumps(RECORD), json.dumps(BACKFILL[1:])],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for steps, called in zip((RECORD, BACKFILL[1:]), json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert {tuple(step) for thread in called for step in thread} == set(steps)
        for thread in called:
            places = [steps.index(tuple(step)) for step in thread]
            assert places == sorted(places)
