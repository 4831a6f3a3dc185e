"""Check for tools that a test needs: without the tool a developer's run skips the test, and CI fails it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest


def need_times_of_access(folder: Path) -> None:
    """Skip the test unless the file system records when a file was first read after it was written."""
    file = folder / "file"
    file.write_text("x")
    os.utime(file, (0, time.time()))
    file.read_text()
    if file.stat().st_atime == 0:
        pytest.skip("this file system does not record which files were read")
