"""The folder where runners of this user keep what they know of the processes of this machine."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from tailrace.runners.jobs import RunnerError


def folder() -> Path:
    """A folder of this user alone. Raises `RunnerError` where another has it."""
    made = Path(tempfile.gettempdir()) / f"tailrace-{os.getuid()}"
    made.mkdir(mode=0o700, exist_ok=True)
    found = made.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
        raise RunnerError(f"{made} is not a folder of this user alone: remove it, or set TMPDIR", again=False)
    return made
