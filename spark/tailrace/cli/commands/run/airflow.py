"""`tailrace airflow`: run an Airflow on the lake of the settings."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import typer

from tailrace.cli.terminal.usage import ExitStatus, UsageError
from tailrace.settings import Settings
from tailrace.toolchain.extras import ExtraMissingError, extras


def airflow(folder: Path = Path("build/airflow"), dags: Path = Path("dags"), port: int = 8080) -> None:
    """Run an Airflow on this machine, with the DAGs of a folder, on the lake of the settings, until Ctrl-C.

    Airflow's API server, scheduler and DAG processor listen on this machine alone. The command prints the address, and
    the passwords of two users: `admin` may do everything, and `viewer` may only look. Airflow keeps its files and logs
    in build/airflow. Airflow's own variables (AIRFLOW__…) apply: AIRFLOW__DATABASE__SQL_ALCHEMY_CONN names another
    database than SQLite.
    """
    if find_spec("airflow") is None:
        extra = extras()["airflow"]
        raise ExtraMissingError(f"airflow is not installed; this needs the extra `{extra.name}`: {extra.command}")
    if not dags.is_dir():
        raise UsageError(f"--dags {dags}: there is no such folder: go to the folder of your project, or pass another")
    from tailrace.airflow.standalone import run_airflow

    if not run_airflow(folder, dags, Settings().warehouse, port):
        raise typer.Exit(ExitStatus.FAILED)
