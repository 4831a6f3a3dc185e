"""`tailrace dbt`: dbt in this process, in a Spark session on the lake that the settings name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.runtime.spark_session import session, waiting
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import ExitStatus
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
) -> None:
    """Run dbt on the lake, in a Spark session of this process: models read the tables while streams go on.

    Arguments after `--` are dbt's own: `tailrace dbt -- build --full-refresh`.
    """
    settings = Settings()
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
    with waiting(Output(), "starting Spark"), session(settings, "dbt"):
        done = dbtRunner().invoke([*(arguments or ["build"]), *places])
    if done.exception is not None:
        raise typer.Exit(ExitStatus.FAILED)
    if not done.success:
        raise typer.Exit(ExitStatus.FOUND)
