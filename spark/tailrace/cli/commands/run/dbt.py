"""`tailrace dbt`: run dbt in this process, in a Spark session that is connected to the lake named in the settings."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

import tailrace
from tailrace.cli.runtime.spark_session import activity, session
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import ExitStatus, UsageError
from tailrace.settings import Settings


def dbt(
    arguments: list[str] | None = None,
    project: Path = Path("dbt"),
    target: Path = Path("build/dbt"),
    epoch: int | None = None,
) -> None:
    """Run dbt on the lake, in a Spark session of this process, while streams go on.

    Arguments after `--` are passed to dbt: `tailrace dbt -- build --full-refresh`. A project whose packages.yml names
    {{ env_var('TAILRACE_DBT_MACROS') }} as a local package gets Tailrace's macros. With --epoch, dbt writes its models
    to the namespace marts_epoch_N, unless TAILRACE_DBT_SCHEMA names another namespace.
    """
    settings = Settings()
    told = list(arguments or ["build"])
    if epoch is not None:
        _check_pinned(project)
        told = _pinned(settings, told, epoch)
        os.environ.setdefault("TAILRACE_DBT_SCHEMA", f"marts_epoch_{epoch}")
    # Remove the parent folder of the project's folder from the import path: if the project's folder is named `dbt`, the
    # parent folder would hide the installed package `dbt`.
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != project.resolve().parent]
    from dbt.cli.main import dbtRunner

    os.environ.setdefault("TAILRACE_NAMESPACE", settings.namespace)
    made = target.absolute()
    places = ["--project-dir", str(project), "--profiles-dir", str(project)]
    os.environ.setdefault(MACROS, str(_macros(made)))
    if told[0] != "deps" and _lacks_packages(project):
        deps = dbtRunner().invoke(["deps", *places, "--log-path", str(made / "logs")])
        if not deps.success:
            raise typer.Exit(ExitStatus.FAILED)
    places += ["--target-path", str(made), "--log-path", str(made / "logs")]
    with activity(Output(), "starting Spark"), session(settings, "dbt"):
        done = dbtRunner().invoke([*told, *places])
    if done.exception is not None:
        raise typer.Exit(ExitStatus.FAILED)
    if not done.success:
        raise typer.Exit(ExitStatus.FOUND)


MACROS = "TAILRACE_DBT_MACROS"
"""The environment variable with the folder of the dbt package of Tailrace's macros, for `packages.yml`."""


def _macros(made: Path) -> Path:
    """Return the folder of the dbt package of Tailrace's macros.

    A wheel has this folder. A checkout has its files in the project `dbt`, so they are copied into the folder `made`.
    """
    packaged = Path(tailrace.__file__).with_name("dbt")
    if packaged.is_dir():
        return packaged
    source, copied = Path(tailrace.__file__).resolve().parents[2] / "dbt", made / "tailrace_macros"
    shutil.copytree(source / "macros", copied / "macros", dirs_exist_ok=True)
    shutil.copyfile(source / "package.yml", copied / "dbt_project.yml")
    return copied


def _lacks_packages(project: Path) -> bool:
    """Return True if a project names packages that `dbt deps` has not installed yet."""
    return (project / "packages.yml").is_file() and not (project / "dbt_packages").is_dir()


def _check_pinned(project: Path) -> None:
    """Raise `UsageError` if a project's models would read the tables as they are now, in place of an earlier epoch."""
    files = (file for file in project.rglob("*.sql") if "dbt_packages" not in file.parts)
    if not any(_SOURCE.search(file.read_text(encoding="utf-8")) for file in files):
        raise UsageError(
            f"--epoch: {project} has no macro `source`, so its models would read the tables as they are now: write "
            f"{project / 'macros' / 'source.sql'}, with {{% macro source(source_name, table_name) %}}"
            "{% do return(tailrace_macros.source(source_name, table_name)) %}{% endmacro %}"
        )


_SOURCE = re.compile(r"\{%-?\s*macro\s+source\s*\(")
"""The head of the macro that a project needs for `--epoch`. dbt lets only the project itself replace `source`."""


def _pinned(settings: Settings, arguments: Sequence[str], epoch: int) -> list[str]:
    """Add dbt variables to the arguments, so that the models read each table in its state at the end of an epoch.

    Variables that the arguments already set are kept.
    """
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.read.epoch_reading import pinned_texts

    pinned, told = pinned_texts(Lake(settings), epoch), list(arguments)
    given: Any = {}
    if "--vars" in told:
        import yaml

        place = told.index("--vars")
        given = yaml.safe_load(told[place + 1]) if place + 1 < len(told) else None
        if not isinstance(given, dict):
            raise UsageError("--vars: expected names and values, as in --vars 'ads: true'")
        del told[place : place + 2]
    return [*told, "--vars", json.dumps({**given, "pinned": dict(pinned.texts), "missing": dict(pinned.missing)})]
