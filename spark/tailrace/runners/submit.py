"""Run jobs with a cluster's `spark-submit`. Each run has a separate session and a driver on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tailrace.runners.exit_status import ExitStatus
from tailrace.runners.jobs import BackfillJob, Cancelled, JobOutcome, MaintainJob, RunnerError, StreamJob
from tailrace.runners.keeper import Keeper, LocalStreams
from tailrace.runners.processes import find_error, interrupt_group, private_folder, start_piped
from tailrace.settings import PREFIX, Settings


class Submit(LocalStreams):
    """A runner that submits each run to a cluster.

    `jobs` is the folder of the entry points (`spark/jobs`). `options` are additional options of spark-submit that the
    cluster needs, such as `("--conf", "spark.executor.memory=8g")`. Each option is passed as a separate argument, and
    no shell interprets it.
    """

    def __init__(
        self,
        master: str,
        jobs: Path,
        *,
        options: Sequence[str] = (),
        command: str = "spark-submit",
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.start = [command, "--master", master, "--deploy-mode", "client", *options]
        self.jobs = jobs
        self._running: set[subprocess.Popen[str]] = set()
        self._cancelled = False

    def backfill(self, job: BackfillJob, tell: Callable[[str], None]) -> list[JobOutcome]:
        """Submit a backfill and wait for its end; return the result for each stage."""
        return JobOutcome.all_of(self._submit("backfill.py", job.words, tell))

    def maintain(self, job: MaintainJob, tell: Callable[[str], None]) -> dict[str, Any]:
        """Submit maintenance and wait for its end; return its result."""
        return self._submit("maintain.py", [job.definition], tell)

    def _keeper(self, job: StreamJob) -> Keeper:
        command = [*self.start, str(self.jobs / "stream.py"), *job.words]
        identity = "\n".join([str(self.settings.warehouse), *command])
        place = private_folder() / f"submitted-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        return Keeper(place, command, self._environment)

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {f"{PREFIX}WAREHOUSE": str(self.settings.warehouse)}

    def cancel(self) -> None:
        self._cancelled = True
        for process in tuple(self._running):
            interrupt_group(process)

    def _submit(self, name: str, words: Sequence[str], tell: Callable[[str], None]) -> dict[str, Any]:
        if self._cancelled:
            raise Cancelled("cancelled before it began")
        command = [*self.start, str(self.jobs / name), *words, "--json"]
        tell(f"submitting {name} to {command[2]}")
        process = start_piped(command, self._environment)
        self._running.add(process)
        try:
            out, err = process.communicate()
        finally:
            self._running.discard(process)
        if self._cancelled:
            raise Cancelled("cancelled: nothing more is committed")
        if process.returncode not in (0, ExitStatus.GAVE_WAY):
            # Search both outputs, because spark-submit writes the error output of Python to its own standard output.
            reason = find_error(f"{out}\n{err}") or f"the run ended with status {process.returncode} and said nothing"
            raise RunnerError(reason, again=process.returncode != ExitStatus.USAGE)
        return last_object(out)


def last_object(out: str) -> dict[str, Any]:
    """Read the last JSON object in a command's output. The object comes after Spark's output.

    Raises `RunnerError` if the output has no such object.
    """
    lines = out.splitlines()
    starts = [place for place, line in enumerate(lines) if line == "{"]
    try:
        data: dict[str, Any] = json.loads("\n".join(lines[starts[-1] :]))
    except (IndexError, ValueError):
        raise RunnerError("the run succeeded, but its output has no result", again=False) from None
    return data
