"""Start, find and end processes that outlive the process that starts them, and create a private folder for their
files.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from tailrace.runners.jobs import RunnerError

T = TypeVar("T")

_ENDING = 20.0
"""The time in seconds after which an interrupted process is killed if it has not ended."""

_started: dict[int, subprocess.Popen[bytes]] = {}
"""A mapping from process id to process, for the processes that `start_detached` has started. The started processes may
outlive this process.
"""


def private_folder() -> Path:
    """Create a folder that only this user can access, and return it.

    Raises `RunnerError` if the path is not a folder that only this user can access.
    """
    folder = Path(tempfile.gettempdir()) / f"tailrace-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o077:
        raise RunnerError(f"{folder} is not a folder of this user alone: remove it, or set TMPDIR", again=False)
    return folder


def start_piped(
    command: Sequence[str], environment: Mapping[str, str], *, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    """Start a process in a new session, whose outputs this process reads as texts.

    The new process does not receive signals to this process. Raises `RunnerError` if the command cannot be run.
    """
    try:
        return subprocess.Popen(
            command, env=dict(environment), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise RunnerError(f"{command[0]} cannot be run ({error.strerror})", again=False) from None


def start_detached(
    command: Sequence[str], out: BinaryIO, environment: Mapping[str, str], **more: Any
) -> subprocess.Popen[bytes]:
    """Start a process in a new session.

    The new process outlives this process, and does not receive signals to this process. The output of the new process
    goes to the file `out`. `more` are further arguments of `Popen`.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(environment), start_new_session=True, **more
    )
    _started[process.pid] = process
    return process


def reap_started() -> None:
    """Poll all processes that `start_detached` has started, so that no ended process stays as a zombie."""
    for process in _started.values():
        process.poll()


def is_running(pid: int | None) -> bool:
    """Return True if a process with this id exists and has not ended."""
    if pid is None:
        return False
    if pid in _started:
        return _started[pid].poll() is None
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def signal_group(process: subprocess.Popen[Any], number: signal.Signals) -> None:
    """Send a signal to the process group of a process, unless the process has ended."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def interrupt_group(process: subprocess.Popen[Any]) -> None:
    """Interrupt the process group of a process, and kill it if it has not ended after a while.

    The commits that the process has made are complete.
    """
    signal_group(process, signal.SIGINT)
    kill = threading.Timer(_ENDING, signal_group, (process, signal.SIGKILL))
    kill.daemon = True
    kill.start()


def free_port(port: int) -> int:
    """Return the port of this machine if it is free; otherwise return another port that is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return free_port(0)
        free: int = probe.getsockname()[1]
        return free


def wait_for(check: Callable[[], T | None], seconds: float, pause: float = 0.05) -> T | None:
    """Call `check` repeatedly until it returns a value, and return the value. Returns None after `seconds` without a
    value.
    """
    until = time.monotonic() + seconds
    while (found := check()) is None and time.monotonic() < until:
        time.sleep(pause)
    return found


def find_error(output: str) -> str:
    """Return the reason for a failure from a process's output.

    The reason is the last line that starts with `error: `. If there is no such line, the reason is the last line.

    >>> find_error("starting\\nerror: no such table\\nbye"), find_error("killed\\n"), find_error("")
    ('no such table', 'killed', '')
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "")
    return last.removeprefix("error: ")
