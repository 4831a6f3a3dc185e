"""Provide the private folder in which this user's runners keep the state of local processes."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from tailrace.runners.jobs import RunnerError


def folder() -> Path:
    """Create a folder that only this user can read, and return it. Raises `RunnerError` if another user has it."""
    made = Path(tempfile.gettempdir()) / f"tailrace-{os.getuid()}"
    made.mkdir(mode=0o700, exist_ok=True)
    status = made.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o077:
        raise RunnerError(f"{made} is not a folder of this user alone: remove it, or set TMPDIR", again=False)
    return made


def runs(pid: int | None) -> bool:
    """Tell whether a process with this id exists."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
