"""Run jobs with another Python installation of Tailrace on this machine, such as a venv that has the extras for Spark.

Each job is a process of the other installation (`venv_job`), which runs the job as the runner `Local` does there. The
two processes exchange lines of JSON over standard input and output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tailrace
from tailrace.runners.jobs import (
    BackfillJob,
    Cancelled,
    Job,
    JobOutcome,
    MaintainJob,
    RunnerError,
    StreamJob,
    StreamState,
)
from tailrace.runners.processes import find_error, interrupt_group, start_piped
from tailrace.settings import Settings, setting_text, variable

_OWN = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""The environment variables that belong to one Python installation, and that the other installation does not get."""

_LAST = 200
"""The number of lines of a process's error output that are kept, to find the reason for a failure."""

_LATE = 5.0
"""The time in seconds to wait for the rest of the error output of a process that has ended."""


class Venv:
    """A runner that runs each job on this machine, with the Python installation at `place`.

    `place` is the folder of a venv, or the path of a Python interpreter. The installation has the same version of
    Tailrace, and the extras that the jobs need. If `settings` is given, the installation gets these settings in
    addition to the environment of this process.
    """

    def __init__(self, place: str | Path, *, settings: Settings | None = None) -> None:
        self.place, self.settings = Path(place), settings
        self._running: set[subprocess.Popen[str]] = set()
        self._cancelled = False

    @property
    def python(self) -> Path:
        """The path of the installation's interpreter."""
        return self.place / "bin" / "python" if self.place.is_dir() else self.place

    def backfill(self, job: BackfillJob, tell: Callable[[str], None]) -> list[JobOutcome]:
        """Run a backfill to its end; return the result for each stage."""
        return JobOutcome.all_of(self._run("backfill", job, tell))

    def maintain(self, job: MaintainJob, tell: Callable[[str], None]) -> dict[str, Any]:
        """Run maintenance to its end; return its result."""
        return self._run("maintain", job, tell)

    def stream(self, job: StreamJob, tell: Callable[[str], None], *, anew: bool = False) -> StreamState:
        """Start the stream as a process of the installation, unless the stream is already running."""
        return StreamState(**self._run("stream", job, tell, anew=anew))

    def stop_stream(self, job: StreamJob, tell: Callable[[str], None]) -> StreamState:
        """Stop the stream at an epoch boundary if it is running; the stream then stays stopped."""
        return StreamState(**self._run("stop_stream", job, tell))

    def cancel(self) -> None:
        self._cancelled = True
        for process in tuple(self._running):
            interrupt_group(process)

    def command(self, module: str) -> list[str]:
        """Return the command that runs a module of the package with the installation."""
        # With `-P`, Python imports no module of the working folder in place of an installed one.
        return [str(self.python), "-P", "-m", module]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables for a process of the installation."""
        kept = {name: value for name, value in os.environ.items() if name not in _OWN}
        given = {} if self.settings is None else self.settings.model_dump(exclude_unset=True, exclude_none=True)
        return kept | {variable(name): setting_text(value) for name, value in given.items()}

    def _run(self, what: str, job: Job, tell: Callable[[str], None], **more: Any) -> dict[str, Any]:
        if self._cancelled:
            raise Cancelled("cancelled before it began")
        command = self.command("tailrace.runners.venv_job")
        process = start_piped(command, self.environment, stdin=subprocess.PIPE)
        self._running.add(process)
        errors: deque[str] = deque(maxlen=_LAST)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        reader = threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True)
        reader.start()
        try:
            if self._cancelled:
                interrupt_group(process)
            answer = self._check_version(process.stdout.readline())
            # The input stays open until the answer is there, because its end would cancel the job.
            if answer is None:
                with suppress(BrokenPipeError):
                    process.stdin.write(json.dumps({what: job.model_dump_json(), **more}) + "\n")
                    process.stdin.flush()
                answer = self._read(process.stdout, tell)
            with suppress(BrokenPipeError):
                process.stdin.close()
            status = process.wait()
        finally:
            self._running.discard(process)
            reader.join(_LATE)
            process.stdout.close()
            if not reader.is_alive():
                process.stderr.close()
        if self._cancelled:
            raise Cancelled("cancelled: nothing more is committed")
        return self._result(answer, status, "".join(errors))

    def _check_version(self, line: str) -> Mapping[str, Any] | None:
        """Read the first line of a job's process; return the answer to a job if the process cannot run it."""
        match json.loads(line or "null"):
            case {"version": str(version)} if version != tailrace.__version__:
                return {"failed": self._other_version(f"tailrace {version}"), "again": False}
        return None

    def _read(self, output: Iterable[str], tell: Callable[[str], None]) -> Mapping[str, Any] | None:
        """Read the lines of a job's process, and return the last line, which has the answer."""
        for line in output:
            match json.loads(line):
                case {"doing": str(doing)}:
                    tell(doing)
                case ({"done": dict()} | {"failed": str()}) as answer:
                    return dict(answer)
        return None

    def _result(self, answer: Mapping[str, Any] | None, status: int, errors: str) -> dict[str, Any]:
        match answer:
            case {"done": dict(done)}:
                return done
            case {"failed": str(failed), "again": bool(again)}:
                raise RunnerError(failed, again=again)
        if "tailrace.runners.venv_job" in errors and "ModuleNotFoundError" in errors:
            raise RunnerError(self._other_version("no tailrace of this version"), again=False)
        reason = find_error(errors) or "it said nothing"
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise RunnerError(f"the run in {self.place} {ended}: {reason}; what was committed is whole")

    def _other_version(self, found: str) -> str:
        own = tailrace.__version__
        return (
            f"{self.python} has {found}, and {sys.executable} has {own}: `{self.python} -m pip install "
            f"'tailrace=={own}'`, with the extras that the jobs need"
        )
