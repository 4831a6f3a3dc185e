"""`tailrace setup`: find Java, and fetch the pinned jars."""

from __future__ import annotations

from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import UsageError
from tailrace.settings import Settings
from tailrace.toolchain.jars import GROUPS
from tailrace.toolchain.preparation import prepare


def setup(group: list[str] | None = None, check: bool = False) -> None:
    """Find the Java that Spark runs on, and fetch the pinned jars that are missing, each checked by its sha256.

    The jars come from Maven Central, or from the mirror that TAILRACE_JARS_MIRROR names, into the folder TAILRACE_JARS.
    Needs the extra `spark`. Starts no Spark.
    """
    groups = group or ["lake"]
    if unknown := [one for one in groups if one not in GROUPS]:
        raise UsageError(f"--group {unknown[0]}: expected one of {', '.join(GROUPS)}")
    Output().text(prepare(Settings(), groups, fetches=not check))
