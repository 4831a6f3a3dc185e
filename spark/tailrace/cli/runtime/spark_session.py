"""Open a Spark session for one command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailrace.cli.terminal.console import Output
from tailrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session(
    settings: Settings, app: str, groups: Sequence[str] = ("lake",), started: Callable[[], None] = lambda: None
) -> Iterator[SparkSession]:
    """Open a session that ends with the command; `started` is called when Spark has started.

    If the process had Spark before, Spark stays. Raises `ToolchainError` if Java or a jar is missing.
    """
    from tailrace.engines.spark.session import open_session

    with ending_spark():
        spark = open_session(settings, app=app, groups=groups)
        started()
        yield spark


@contextmanager
def ending_spark() -> Iterator[None]:
    """Stop Spark at the block's end if it was started within the block, without importing pyspark only to check."""
    before = _spark_runs()
    try:
        yield
    finally:
        if not before and _spark_runs():
            from pyspark.sql import SparkSession

            SparkSession.builder.getOrCreate().stop()


def _spark_runs() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


@contextmanager
def waiting(output: Output, doing: str) -> Iterator[Callable[[str], None]]:
    """Show the present activity, on a terminal with the time; yield a function that shows the next one."""
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    from tailrace.cli.terminal.formats import span

    if not output.live:
        output.say(doing)
        yield output.say
        return
    import time

    since, now = time.monotonic(), {"doing": doing}

    def rendered() -> Table:
        made = Table.grid(padding=(0, 1, 0, 0))
        passed = span(int(time.monotonic() - since))
        made.add_row(spinner, Text.assemble(now["doing"], (f"  {passed}", "dim")))
        return made

    spinner = Spinner("dots")
    with Live(get_renderable=rendered, console=output.news, refresh_per_second=8, transient=True):
        yield lambda text: now.update(doing=text)
