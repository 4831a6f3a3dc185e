"""Tools that a test cannot do without: where one is missing, CI fails, and a developer's run skips the test."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest


def need_times_of_access(folder: Path) -> None:
    """Ask for a file system that says when a file was read, at least for the first time since it was written."""
    file = folder / "file"
    file.write_text("x")
    os.utime(file, (0, time.time()))
    file.read_text()
    if file.stat().st_atime == 0:
        _missing("this file system does not say which files were read")


def _missing(tool: str) -> None:
    """Skip the test for want of a tool; fail it in CI, for a claim that is never tried holds nothing."""
    if os.environ.get("CI"):
        pytest.fail(f"{tool}, and in CI no test is skipped for that")
    pytest.skip(tool)
