"""The archive of Spark's classes with which a process starts in less time (Java's class data sharing).

Most of a cold start is Java reading and checking classes. Java can map those instead that an earlier run has archived
(`operate.training`). An archive is of use for the same Java and the same jars alone; Java looks at that itself,
and does without it where they have changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tailrace.toolchain import Java

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java says nothing of an archive that is of another Java or of other jars."""


@dataclass(frozen=True)
class Archive:
    """The archive for one Java and some jars, which may not be there yet."""

    file: Path

    @property
    def options(self) -> str:
        """Java's options to start with it; none where it is not there."""
        return f'"-XX:SharedArchiveFile={self.file}" {QUIET}' if self.file.is_file() else ""


def archive_of(folder: Path, java: Java, jars: Sequence[Path]) -> Archive:
    """The archive in a folder that a process with this Java and these jars would start with."""
    facts = java.home / "release"
    said = facts.read_text() if facts.is_file() else str(java.release)
    known = [str(java.home), said, pyspark.__version__, *(f"{jar} {jar.stat().st_size}" for jar in jars)]
    return Archive(folder / f"classes-{hashlib.sha256(chr(10).join(known).encode()).hexdigest()[:12]}.jsa")
