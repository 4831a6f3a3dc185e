"""Name the archive of Spark's classes with which a process starts in less time (Java's class data sharing).

In most of a cold start, Java reads and checks classes. Java can instead map the classes that an earlier run archived
(`operate.class_archive`). An archive works only for the same Java and the same jars; if these have changed, Java starts
without the archive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tailrace.toolchain import Java

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""The options that keep Java silent about an archive of another Java or of other jars."""


@dataclass(frozen=True)
class Archive:
    """The archive for one Java and one set of jars; its file need not exist."""

    file: Path

    @property
    def options(self) -> str:
        """Java's options for starting with the archive; empty if the archive's file does not exist."""
        return f'"-XX:SharedArchiveFile={self.file}" {QUIET}' if self.file.is_file() else ""


def archive_of(folder: Path, java: Java, jars: Sequence[Path]) -> Archive:
    """Return the archive, in a folder, with which a process of this Java and these jars starts."""
    facts = java.home / "release"
    release = facts.read_text() if facts.is_file() else str(java.release)
    known = [str(java.home), release, pyspark.__version__, *(f"{jar} {jar.stat().st_size}" for jar in jars)]
    return Archive(folder / f"classes-{hashlib.sha256(chr(10).join(known).encode()).hexdigest()[:12]}.jsa")
