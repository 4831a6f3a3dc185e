"""`tailrace airflow`: run an Airflow on the lake of the settings, or check an Airflow that is there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from tailrace.cli.commands.look.doctor import examine_lake, report_findings
from tailrace.cli.runtime.command_list import command_group
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import ExitStatus, UsageError
from tailrace.model.base.errors import TailraceError, line_of
from tailrace.model.definition.definition import Definition
from tailrace.plan.loader import load_all
from tailrace.settings import Settings
from tailrace.toolchain.extras import ExtraMissingError, extras

if TYPE_CHECKING:
    from tailrace.doctor.findings import Finding


class StartedByDefault(TyperGroup):
    """A command group that runs the subcommand `start` if the first argument names no subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, "--help", "-h"}:
            args = ["start", *args]
        return super().parse_args(ctx, args)


def start(folder: Path = Path("build/airflow"), dags: Path = Path("dags"), port: int = 8080) -> None:
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


def check(dags: Path | None = None, connections: list[str] | None = None, json: bool = False) -> None:
    """Find what is wrong with Tailrace in the Airflow of this environment, and say how to mend it.

    The checks cover the versions of Python, Airflow and the packages; the files of the DAGs, with the definitions that
    they read; the connections that the DAGs name, or else the settings of the environment; write access to each lake
    and to its checkpoints; what the runners of the DAGs need, such as a venv, Java and jars; and the folders that
    streams read. Run the command as the user of Airflow's workers, with their environment.

    The exit status is 1 if there is a fault. Starts no Spark.
    """
    since = time.monotonic()
    report_findings(Output(json), list(examine_airflow(dags, connections or [])), since)


def examine_airflow(folder: Path | None, connections: Sequence[str]) -> Iterator[Finding]:
    """Run every check that the DAGs require, one check after another, and yield the findings."""
    from tailrace.doctor.findings import Finding, run_check

    if find_spec("airflow") is None:
        mend = f"run this with the Python of Airflow's environment, or {extras()['airflow'].command}"
        yield Finding("apache-airflow", "wrong", "not installed in this environment", mend)
        return
    from tailrace.airflow import checks

    yield from checks.check_versions()
    if folder is None:
        from airflow.configuration import conf

        folder = Path(conf.get("core", "dags_folder"))
    dags = checks.read_dags(folder)
    yield from dags.findings
    lakes = list[Settings]()
    for conn_id in sorted({*dags.connections, *connections}, key=str):
        label = "settings" if conn_id is None else f"connection {conn_id}"

        def read(conn_id: str | None = conn_id) -> str:
            lakes.append(checks.connection_settings(conn_id))
            return f"the lake is {lakes[-1].warehouse}"

        finding = run_check(label, read)
        yield finding
        if finding.state == "ok":
            at = "" if conn_id is None else f" of {conn_id}"
            definitions: list[Definition] = []
            try:
                definitions = load_all(sorted(dags.connections.get(conn_id, ())))
            except TailraceError as error:
                mend = "give each definition of a lake a name of its own"
                yield Finding(f"names{at}", "wrong", line_of(error), mend)
            found = examine_lake(lakes[-1], definitions=definitions)
            yield from (replace(one, name=one.name + at) for one in found)
    yield from checks.check_runners(dags, lakes)


group = command_group("airflow", {"start": start, "check": check}, StartedByDefault)
