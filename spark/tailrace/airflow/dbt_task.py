"""The task of the dbt DAG: build a dbt project in another process, and report how many nodes have each dbt status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.airflow.tasks import ReportingOperator
from tailrace.runners.jobs import RunnerError
from tailrace.runners.processes import signal_group
from tailrace.runners.venv import Venv
from tailrace.toolchain.process_folder import process_folder

if TYPE_CHECKING:
    from airflow.sdk import Context


class DbtOperator(ReportingOperator):
    """Builds a dbt project on the lake with `tailrace dbt`. `arguments` are passed on to dbt.

    `venv` is the folder of a venv, or the path of a Python interpreter, that has Tailrace with the extra `dbt`; without
    it, dbt is in the installation of the task.
    """

    ui_color = "#fbe6d8"

    def __init__(
        self,
        *,
        project: str | Path,
        arguments: Sequence[str] = ("build",),
        venv: str | Path | None = None,
        **more: Any,
    ) -> None:
        super().__init__(subject="dbt", **more)
        self.project, self.arguments = str(project), tuple(arguments)
        self.installation = None if venv is None else Venv(venv)
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> None:
        with self.reporting(context) as report, tempfile.TemporaryDirectory(dir=process_folder()) as folder:
            start, environment = [sys.executable, "-m", "tailrace.cli.main"], dict(os.environ)
            if (other := self.installation) is not None:
                start, environment = other.command("tailrace.cli.main"), other.environment
            command = [*start, "dbt", f"--project={self.project}"]
            command += ["--target", folder, "--", *self.arguments]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True, env=environment | {"NO_COLOR": "1"},
            )  # fmt: skip
            last = ""
            assert self._process.stdout is not None
            for line in self._process.stdout:
                last = line.strip() or last
                self.log.info("%s", line.rstrip())
            status = self._process.wait()
            counts, failed = read_results(Path(folder) / "run_results.json")
            report["said"] = (
                ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "nothing was built"
            )
            if status:
                raise RunnerError(f"{report['said']}: {'; '.join(failed)}" if failed else last.removeprefix("error: "))

    def on_kill(self) -> None:
        if self._process is not None:
            signal_group(self._process, signal.SIGTERM)


def read_results(file: Path) -> tuple[Counter[str], list[str]]:
    """Return the number of nodes with each status, and the failed nodes, from dbt's report on a run.

    Both results are empty if there is no report.
    """
    if not file.is_file():
        return Counter(), []
    nodes = [(node["unique_id"], str(node["status"])) for node in json.loads(file.read_text())["results"]]
    failed = [f"{name} {status}" for name, status in nodes if status in ("error", "fail", "runtime error")]
    return Counter(status for _, status in nodes), failed
