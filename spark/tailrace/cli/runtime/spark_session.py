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
    """Open a Spark session for the duration of the block. `started` is called after Spark has started.

    If Spark was already running before the block, it keeps running after the block. Raises `ToolchainError` if Java or
    a jar is missing.
    """
    from tailrace.engines.spark.session import open_session

    with ending_spark():
        spark = open_session(settings, app=app, groups=groups)
        started()
        yield spark


@contextmanager
def ending_spark() -> Iterator[None]:
    """Stop Spark at the end of the block if Spark was started in the block.

    The check does not import pyspark: if pyspark has not been imported yet, Spark cannot be running.
    """
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
def activity(output: Output, doing: str) -> Iterator[Callable[[str], None]]:
    """Show what the command is doing. On a terminal, the elapsed time is also shown.

    Yields a function that shows the next activity.
    """
    if not output.live:
        output.say(doing)
        yield output.say
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=output.news, transient=True) as live:
        task = live.add_task(doing, total=None)
        yield lambda text: live.update(task, description=text)
