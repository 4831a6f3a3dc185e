"""`tailrace dbt`: dbt in this process, in a Spark session on the lake that the settings name."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tailrace.cli.runtime.spark_session import activity, session
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import ExitStatus, UsageError
from tailrace.settings import Settings
from tailrace.toolchain.tool_errors import ToolchainError


def dbt(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENTS", help="What dbt is told: build, run, test; build if left out."),
    ] = None,
    project: Annotated[Path, typer.Option(metavar="DIR", help="The dbt project.", file_okay=False, exists=True)] = Path(
        "dbt"
    ),
    target: Annotated[
        Path, typer.Option(metavar="DIR", help="Where dbt leaves what it makes.", file_okay=False)
    ] = Path("build/dbt"),
    epoch: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Have models read every table as it was after this epoch of its log."),
    ] = None,
) -> None:
    """Run dbt on the lake, in a Spark session of this process: models read the tables while streams go on.

    Arguments after `--` are dbt's own: `tailrace dbt -- build --full-refresh`. With --epoch models go into a namespace
    of their own, marts_epoch_N, unless TAILRACE_DBT_SCHEMA names one.
    """
    settings = Settings()
    told = list(arguments or ["build"])
    if epoch is not None:
        told = _pinned(settings, told, epoch)
        os.environ.setdefault("TAILRACE_DBT_SCHEMA", f"marts_epoch_{epoch}")
    # A folder that is named dbt, and is no package, would hide the installed package.
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != project.resolve().parent]
    try:
        from dbt.cli.main import dbtRunner
    except ImportError:
        raise ToolchainError('dbt is not installed: run `make setup WITH="dbt"`, or install the extra `dbt`') from None
    os.environ.setdefault("TAILRACE_NAMESPACE", settings.namespace)
    made = target.absolute()
    places = ["--project-dir", str(project), "--profiles-dir", str(project)]
    places += ["--target-path", str(made), "--log-path", str(made / "logs")]
    with activity(Output(), "starting Spark"), session(settings, "dbt"):
        done = dbtRunner().invoke([*told, *places])
    if done.exception is not None:
        raise typer.Exit(ExitStatus.FAILED)
    if not done.success:
        raise typer.Exit(ExitStatus.FOUND)


def _pinned(settings: Settings, arguments: Sequence[str], epoch: int) -> list[str]:
    """Add to dbt's arguments what models read of each table as of an epoch, beside the variables that they name."""
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
