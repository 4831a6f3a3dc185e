"""Build a dbt project in a process of its own, and report dbt's counts of results: the dbt DAG's task."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from tailrace.airflow.web.report import RESULT
from tailrace.toolchain.process_folder import process_folder

if TYPE_CHECKING:
    from airflow.sdk import Context


class DbtOperator(BaseOperator):
    """Builds a dbt project on the lake, by `tailrace dbt`; `arguments` are dbt's own."""

    ui_color = "#fbe6d8"

    def __init__(self, *, project: Path, arguments: Sequence[str] = ("build",), **more: Any) -> None:
        super().__init__(**more)
        self.project, self.arguments = str(project), tuple(arguments)
        self._process: subprocess.Popen[str] | None = None

    def execute(self, context: Context) -> None:
        with tempfile.TemporaryDirectory(dir=process_folder()) as made:
            command = [sys.executable, "-m", "tailrace.cli.main", "dbt", f"--project={self.project}"]
            command += ["--target", made, "--", *self.arguments]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True, env=os.environ | {"NO_COLOR": "1"},
            )  # fmt: skip
            last = ""
            assert self._process.stdout is not None
            for printed in self._process.stdout:
                last = printed.strip() or last
                self.log.info("%s", printed.rstrip())
            status = self._process.wait()
            counts, bad = results(Path(made) / "run_results.json")
        built = ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "nothing was built"
        if status:
            failed = f"{built}: {'; '.join(bad)}" if bad else last.removeprefix("error: ")
            context["ti"].xcom_push(RESULT, {"pipeline": "dbt", "failed": failed})
            raise AirflowException(failed)
        context["ti"].xcom_push(RESULT, {"pipeline": "dbt", "said": built})

    def on_kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)


def results(file: Path) -> tuple[Counter[str], list[str]]:
    """Count the nodes by status, and list the failed nodes, from dbt's report of a run; both empty without a report."""
    if not file.is_file():
        return Counter(), []
    nodes = json.loads(file.read_text())["results"]
    ended = Counter(str(node["status"]) for node in nodes)
    bad = [
        f"{node['unique_id']} {node['status']}"
        for node in nodes
        if node["status"] in ("error", "fail", "runtime error")
    ]
    return ended, bad
