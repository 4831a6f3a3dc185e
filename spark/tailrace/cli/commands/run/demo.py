"""`tailrace demo`: the guided tour."""

from __future__ import annotations

from pathlib import Path

import typer

from tailrace.cli.terminal.console import Output
from tailrace.settings import Settings
from tailrace.toolchain import missing_jars
from tailrace.toolchain.extras import require_extras
from tailrace.toolchain.preparation import prepare


def demo(folder: Path = Path("build/demo")) -> None:
    """Take a guided tour in a scratch lake: a stream of real flights, late data, a backfill, an audit, a picture.

    Works in any folder, and asks for no lake and no project. Every number is read from the tables. The folder of the
    demo is emptied first, if an earlier demo made it. Fetches the jars that are missing. Needs the extras `spark`,
    `sqlite`, `demo` and `plot`.
    """
    require_extras("spark", "sqlite", "demo", "plot")
    # The tour imports pyspark, so it is imported when it is there.
    from tailrace.cli.demo.tour import Tour, take

    settings, output = Settings(), Output()
    if missing_jars(settings.jars, ["lake"]):
        output.say("Fetching the jars that Spark needs")
        prepare(settings, ["lake"])
    if status := take(Tour(folder), output):
        raise typer.Exit(status)
