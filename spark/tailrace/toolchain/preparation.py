"""Prepare the tools of this machine: find Java, and fetch the pinned jars that are missing."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.settings import Settings
from tailrace.toolchain.jars import class_path, fetch
from tailrace.toolchain.java import quiet_home, require_java


def prepare(settings: Settings, groups: Sequence[str], *, fetches: bool = True) -> str:
    """Fetch the missing jars of these groups, and return a sentence on the tools. Without `fetches`, only look.

    Raises ToolchainError if there is no suitable Java, or if a jar is missing and cannot be fetched.
    """
    java = require_java(settings.java_home)
    fetched = fetch(settings.jars, groups, java, settings.jars_mirror) if fetches else []
    ready = class_path(settings.jars, groups)
    quiet_home(java, settings.jars)  # so that later readers without write permission find it
    return (
        f"Java {java.release} in {java.home}; {len(ready)} jars in {settings.jars}, {len(fetched)} of them fetched now"
    )
