"""Run one job for a process of another Python installation, the runner `Venv`.

The job is a line of JSON on standard input; the answer, and each notice of progress, is a line on standard output. The
job is cancelled by SIGINT or SIGTERM, and by the end of standard input, so that no job outlives the task that waits
for it. The process ends with the exit status of the command that does the same.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, TextIO

import tailrace
from tailrace.model.base.errors import TailraceError, line_of
from tailrace.runners.exit_status import ExitStatus, status_of
from tailrace.runners.jobs import BackfillJob, Cancelled, JobOutcome, MaintainJob, RunnerError, StreamJob, refusal
from tailrace.runners.local import Local


def run_job(runner: Local, asked: Mapping[str, Any], tell: Callable[[str], None]) -> dict[str, Any]:
    """Run a job and return its result as JSON data."""
    match asked:
        case {"backfill": str(job)}:
            return JobOutcome.as_data(runner.backfill(BackfillJob.model_validate_json(job), tell))
        case {"maintain": str(job)}:
            return runner.maintain(MaintainJob.model_validate_json(job), tell)
        case {"stream": str(job), "anew": bool(anew)}:
            return runner.stream(StreamJob.model_validate_json(job), tell, anew=anew).model_dump(mode="json")
        case {"stop_stream": str(job)}:
            return runner.stop_stream(StreamJob.model_validate_json(job), tell).model_dump(mode="json")
    raise RunnerError("the installation that asks has another version of Tailrace", again=False)


def answer(runner: Local, asked: Mapping[str, Any], tell: Callable[[str], None]) -> tuple[dict[str, Any], int]:
    """Run a job; return the last line of the output, and the exit status."""
    try:
        return {"done": run_job(runner, asked, tell)}, ExitStatus.OK
    except Exception as error:
        from tailrace.lake.upkeep.diagnosis import explain_error
        from tailrace.toolchain.extras import explain_import

        shown = (explain_import(error) if isinstance(error, ImportError) else None) or explain_error(error)
        if isinstance(shown, Cancelled):
            return {"failed": str(shown), "again": True}, ExitStatus.INTERRUPTED
        if not isinstance(shown, TailraceError):
            return {"failed": f"{type(shown).__name__}: {line_of(shown)}", "again": True}, ExitStatus.FAILED
        failed = shown if isinstance(shown, RunnerError) else refusal(shown)
        usual = ExitStatus.FAILED if failed.again else ExitStatus.USAGE
        return {"failed": str(failed), "again": failed.again}, usual if failed is shown else status_of(shown)


def main() -> int:
    """Run the job that standard input names, and return the exit status."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    # What a definition prints goes to the error output, so that it is not taken for an answer.
    os.dup2(2, 1)
    runners: list[Local] = []
    ended: list[tuple[dict[str, Any], int]] = []
    cancelled = threading.Event()

    def cancel(number: int = 0, frame: FrameType | None = None) -> None:
        cancelled.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, cancel)

    _write(lines, {"version": tailrace.__version__})
    asked = json.loads(sys.stdin.readline() or "null")

    def watch_input() -> None:
        sys.stdin.read()
        cancelled.set()

    def run() -> None:
        try:
            runners.append(Local())
        except TailraceError as error:
            failed = refusal(error)
            ended.append(({"failed": str(failed), "again": failed.again}, status_of(error)))
            return
        ended.append(answer(runners[0], asked or {}, lambda doing: _write(lines, {"doing": doing})))

    # The job runs beside this thread, because only the main thread takes signals, and a query blocks its thread.
    work = threading.Thread(target=run)
    threading.Thread(target=watch_input, daemon=True).start()
    work.start()
    while work.is_alive():
        if cancelled.wait(0.1) and runners:
            runners[0].cancel()
        work.join(0.1)
    reply, status = ended[0]
    _write(lines, reply)
    return status


def _write(lines: TextIO, message: Mapping[str, Any]) -> None:
    lines.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    # Without waiting for the thread that reads standard input.
    status = main()
    sys.stderr.flush()
    os._exit(status)
