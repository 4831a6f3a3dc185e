"""`tailrace airflow` says what it lacks before it starts anything; tests/project/test_first_pipeline.py runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def said(folder: Path, before: str = "pass") -> tuple[int, str]:
    """The exit status of the command in a folder, and what it says on one line."""
    code = f"import sys; {before}; sys.argv[1:] = ['airflow']; from tailrace.cli.main import app; app()"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_without_an_airflow_the_error_names_the_extra(tmp_path: Path) -> None:
    status, text = said(tmp_path, "sys.modules['airflow'] = None")
    assert status != 0
    assert "pip install 'tailrace[airflow]'" in text
    assert not list(tmp_path.iterdir())


def test_without_a_folder_of_dags_the_error_names_the_option(tmp_path: Path) -> None:
    pytest.importorskip("airflow")
    status, text = said(tmp_path)
    assert (status, "--dags dags: there is no such folder" in text) == (2, True)
    assert not list(tmp_path.iterdir())
