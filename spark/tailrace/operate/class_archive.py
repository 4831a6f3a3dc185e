"""Build the archive of Spark's classes, so that Spark starts faster: `tailrace setup --archive`.

A process of its own, to which this module is the program, runs a small stream, and then Java archives all classes that
were loaded (`engines.spark.class_archive`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tailrace.engines.spark.class_archive import QUIET, Archive, archive_of
from tailrace.engines.spark.session import open_session, process_conf
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.expressions import Col
from tailrace.model.base.time import hours
from tailrace.model.combiners.basic import Count, Sum
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive
from tailrace.model.logs.log import Log
from tailrace.model.triggers.combinators import AfterWatermark
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import RETRACTING
from tailrace.model.windows.windows import Fixed
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.toolchain import ToolchainError, class_path, require_java

_LONGEST = 300
"""The maximum time in seconds for the run, including the time in which Java writes the archive."""

_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for a short run, which turn off optimizing compilation and concurrent garbage collection."""

RIDES = Log(name="rides", columns={"city": "string", "fare": "decimal(8,2)", "at": "timestamp"}, event_time="at")
HOURLY = Pipeline(
    name="hourly", log=RIDES, each=(Derive({"twice": Col("fare") * 2}),), key=("city",),
    what={"rides": Count(), "fares": Sum("twice")}, where=Fixed(hours(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)), how=RETRACTING, allowed_lateness=hours(1),
)  # fmt: skip
FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def make_archive(settings: Settings) -> Archive:
    """Return the archive of Spark's classes. If the archive is missing, create the archive in another process.

    If this Java version cannot create archives, the archive stays missing. Raises `ToolchainError` if Java or a jar is
    missing, or if the process fails.
    """
    archive = archive_of(settings.jars, require_java(settings.java_home), class_path(settings.jars))
    if archive.file.is_file():
        return archive
    with tempfile.TemporaryDirectory(prefix=".classes-", dir=settings.jars) as folder:
        made = Path(folder) / "classes.jsa"
        command = [sys.executable, "-m", "tailrace.operate.class_archive", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST)
        if done.returncode:
            raise ToolchainError(done.stderr.strip().rpartition("\n")[2])
        if made.is_file():
            made.replace(archive.file)
    return archive


def _train(folder: Path) -> None:
    """Run a small stream on a lake in a folder, and let Java write an archive of all loaded classes to the folder."""
    settings = Settings(warehouse=folder / "lake", catalog_uri="", driver_memory="1g", spark_master="local[*]")
    name = "spark.driver.extraJavaOptions"
    options = f'{process_conf(settings)[name]} "-XX:ArchiveClassesAtExit={folder / "classes.jsa"}" {QUIET} {_BRIEF}'
    spark = open_session(settings, extra={name: options})
    gateway = SparkContext._gateway
    assert gateway is not None
    try:
        _run(spark, Lake(settings), folder / "landing")
    finally:
        spark.stop()
        # Java writes the archive and exits when its standard input is closed.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_LONGEST)


def _run(spark: SparkSession, lake: Lake, landing: Path) -> None:
    """Start a stream twice, so that the second start reads its state from the ledger."""
    landing.mkdir()
    for start in range(2):
        for file in range(2):
            ats = (FIRST + timedelta(minutes=97 * start + 31 * file + 7 * place) for place in range(6))
            rows = [{"city": "ab"[at.minute % 2], "fare": 2.5, "at": at.isoformat()} for at in ats]
            (landing / f"{start}{file}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        stream = Stream(spark, lake, [HOURLY], Files(str(landing), "json", 1), follow_every=1)
        stream.start(once=True)
        stream.wait()
        stream.close()


def describe_archive(settings: Settings) -> str:
    """Create the archive if it is missing, and return a sentence on it.

    No error is raised if the archive cannot be created, because Spark can start without an archive.
    """
    started = time.perf_counter()
    try:
        archive = make_archive(settings)
    except (TailraceError, OSError, subprocess.TimeoutExpired) as error:
        return f"no archive of Spark's classes was made, starts take longer: {error}"
    if not archive.file.is_file():
        return "no archive of Spark's classes was made, because this Java makes none: starts take longer"
    size = archive.file.stat().st_size // 2**20
    return f"Spark's classes are in {archive.file}, {size} MB, after {time.perf_counter() - started:.0f} s"


if __name__ == "__main__":
    _train(Path(sys.argv[1]))
