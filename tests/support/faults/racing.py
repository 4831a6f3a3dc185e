"""Real processes of the command that run at once on one lake, and a folder where files keep landing for them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from tailrace.cli.terminal.usage import ExitStatus
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.pipeline import Pipeline
from tailrace.plan.loader import load
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.faults.killing import environment, run_here
from tests.support.lakes.landing import DEFINITION, Landing
from tests.support.waiting import PATIENT


@dataclass
class Race:
    """A lake, a folder where files land, and the processes that run on them."""

    settings: Settings
    landing: Landing
    definition: str
    env: dict[str, str]
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *command: str, java: bool = True) -> subprocess.Popen[str]:
        """Start the command in a process group of its own: its JVM is paused and killed with it.

        Without `java` there is none that it could start.
        """
        line = [sys.executable, "-m", "tailrace.cli.main", *command]
        env = self.env if java else self.env | {"TAILRACE_JAVA_HOME": "/there/is/none"}
        process = subprocess.Popen(
            line, env=env, text=True, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.running.append(process)
        return process

    def stream(self, *more: str, per_epoch: int = 1) -> subprocess.Popen[str]:
        return self.start("stream", self.definition, *self._source(per_epoch), *more)

    def backfill(self, *more: str) -> subprocess.Popen[str]:
        return self.start("backfill", self.definition, *more, "--json", java=False)

    def ended(self, process: subprocess.Popen[str], *expected: ExitStatus) -> tuple[str, str]:
        out, err = process.communicate(timeout=PATIENT)
        assert process.returncode in expected, f"{process.args!r}: {process.returncode}\n{out}\n{err}"
        return out, err

    def tell(self, process: subprocess.Popen[str], number: signal.Signals) -> None:
        os.killpg(process.pid, number)

    def drained(self, *, here: bool = False) -> None:
        """Stream what has landed: in a process of its own, or in this one, where Spark runs already."""
        if here:
            run_here("stream", self.definition, *self._source(16), "--once", env=self.env)
        else:
            self.ended(self.stream("--once", per_epoch=16), ExitStatus.OK)

    def _source(self, per_epoch: int) -> tuple[str, ...]:
        return ("--from", str(self.landing.folder), "--per-epoch", str(per_epoch), "--json")

    @property
    def pipeline(self) -> Pipeline:
        return load(self.definition)

    def audited(self) -> dict[str, Any]:
        """What the command finds, which is that it adds up."""
        out, _ = self.ended(self.start("audit", self.definition, "--json", java=False), ExitStatus.OK)
        found: dict[str, Any] = json.loads(out)
        return found

    def ends_clean(self, spark: SparkSession) -> None:
        """Nothing is lost or doubled: each record is in the log once, the answers are the batch's."""
        found = audit(Lake(self.settings), self.pipeline)
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


@contextmanager
def racing(settings: Settings, folder: Path, more: dict[str, str] | None = None) -> Iterator[Race]:
    """A race in a folder, on an empty lake; `more` is the environment that the lake needs. Nothing of it runs on."""
    definition = folder / "visits.py"
    definition.write_text(DEFINITION)
    landing = Landing(folder / "landing", Random(7))
    made = Race(settings, landing, f"{definition}:visits", environment(settings, more))
    yield made
    for process in made.running:
        # It waits, and closes the pipes.
        with process:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
