"""The commands of the page on computations, on real flights, while another process streams another log beside."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace.generate.flights import landing_cuts, load, write_files
from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tests.support.cases.clicks import land
from tests.support.depth import deep

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "model" / "computations.md"


def tailrace(*words: str) -> list[str]:
    return [sys.executable, "-m", "tailrace.cli.main", *words]


@deep
@pytest.mark.slow
def test_the_commands_of_the_page_run_beside_a_stream_of_another_log(tmp_path: Path) -> None:
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    first, last = date(2013, 3, 7), date(2013, 3, 10)
    write_files(load(first, last), tmp_path / "landing", landing_cuts(first, last, fine_day=date(2013, 3, 8)))
    env = os.environ | {
        "TAILRACE_JARS": str(ROOT / "build" / "jars"),
        "PYTHONPATH": f"{ROOT / 'spark'}{os.pathsep}{ROOT}",
    }
    definition = tmp_path / "visits.py"
    definition.write_text("from tests.support.cases.clicks import BUSY\n")
    land(tmp_path / "clicks", 0, 3)
    other = tailrace("stream", str(definition), "--from", str(tmp_path / "clicks"), "--once", "--per-epoch", "1")
    ran = []
    with subprocess.Popen(other, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as beside:
        for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL):
            for words in map(shlex.split, block.splitlines()):
                done = subprocess.run(
                    tailrace(*words[1:]), cwd=tmp_path, env=env, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
                assert done.stdout.strip(), f"{words} says something"
                ran.append(words[1])
        _, errors = beside.communicate()
        assert beside.returncode == 0, errors.decode()
    assert ran == ["explain", "stream", "status", "tables", "audit"]
    lake = Lake(Settings(warehouse=tmp_path / "build" / "lake"))
    # Nobody took the other's lease, and each log's records are in its own ledgers.
    for table in ("silences__ledger", "visits__ledger", "busy__ledger", "flights", "clicks"):
        assert lake.head(table).number("token") == 1, table
    assert lake.head("visits__ledger").number("epoch") == lake.head("clicks").number("epoch") == 2
    silent_as_the_log_has_it(lake)
    status = subprocess.run(
        tailrace("status", "pipelines/silences.py", "--json"), cwd=tmp_path, env=env, capture_output=True, check=True
    )
    said = json.loads(status.stdout)
    assert said["keys"] == said["timers"] > 0
    assert said["productions"] == lake.table("silences__ledger").scan(row_filter="kind = 'production'").count()


def silent_as_the_log_has_it(lake: Lake) -> None:
    """A route is told of when its last flight is a day behind the watermark; all came in one epoch."""
    watermark = lake.head("silences__ledger").number("watermark")
    assert lake.head("silences__ledger").number("epoch") == 0
    last: dict[tuple[str, str], list[Any]] = {}
    for row in lake.table("flights").scan(selected_fields=("origin", "dest", "scheduled")).to_arrow().to_pylist():
        last.setdefault((row["origin"], row["dest"]), []).append(row["scheduled"])
    expected = {
        (*route, len(times), max(times))
        for route, times in last.items()
        if (max(times) + timedelta(days=1)).timestamp() * 1e6 <= watermark
    }
    rows = lake.table("silences__ledger").scan(row_filter="kind = 'production'").to_arrow().to_pylist()
    assert {(row["origin"], row["dest"], row["departures"], row["last"]) for row in rows} == expected
    assert len(rows) == len(expected) > 0
    assert all(row["event_time"] == row["last"] + timedelta(days=1) for row in rows)
