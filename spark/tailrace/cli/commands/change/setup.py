"""`tailrace setup`: find Java, and fetch the pinned jars."""

from __future__ import annotations

from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import UsageError
from tailrace.settings import Settings
from tailrace.toolchain.jars import GROUPS
from tailrace.toolchain.preparation import prepare


def setup(group: list[str] | None = None, check: bool = False, archive: bool = False) -> None:
    """Find the Java that Spark runs on, and fetch the pinned jars that are missing, each checked by its sha256.

    The jars come from Maven Central, or from the mirror that TAILRACE_JARS_MIRROR names, into the folder TAILRACE_JARS.
    With --archive, Java also archives Spark's classes, so that Spark starts in two thirds of the time from then on:
    this runs a small stream for a minute, and takes 200 MB. Needs the extra `spark`. Otherwise starts no Spark.
    """
    groups = group or ["lake"]
    if unknown := [one for one in groups if one not in GROUPS]:
        raise UsageError(f"--group {unknown[0]}: expected one of {', '.join(GROUPS)}")
    if check and archive:
        raise UsageError("--check only looks, and --archive makes a file: leave one of them out")
    settings, output = Settings(), Output()
    output.verbatim(prepare(settings, groups, fetches=not check))
    if archive:
        # Only with --archive, because the module imports pyspark.
        from tailrace.operate.class_archive import describe_archive

        output.verbatim(describe_archive(settings))
