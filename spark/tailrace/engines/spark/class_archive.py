"""Choose the archive of Spark's Java classes that makes a process start faster (Java's class data sharing).

In a cold start, Java spends most of the time on reading and checking classes. Java can instead map an archive of
classes from an earlier run into memory (`operate.class_archive`). An archive works only for the same Java and the same
jars. If either has changed, Java starts without the archive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tailrace.toolchain import Java

QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""The Java options that suppress warnings about an archive that was made with another Java or other jars."""


@dataclass(frozen=True)
class Archive:
    """The class archive for one Java installation and one set of jars. The archive's file may not exist yet."""

    file: Path

    @property
    def options(self) -> str:
        """The Java options that make Java use the archive; the text is empty if the archive's file does not exist."""
        return f'"-XX:SharedArchiveFile={self.file}" {QUIET}' if self.file.is_file() else ""


def archive_of(folder: Path, java: Java, jars: Sequence[Path]) -> Archive:
    """Return the archive for this Java and these jars. The archive's file is in `folder`."""
    facts = java.home / "release"
    release = facts.read_text() if facts.is_file() else str(java.release)
    known = [str(java.home), release, pyspark.__version__, *(f"{jar} {jar.stat().st_size}" for jar in jars)]
    return Archive(folder / f"classes-{hashlib.sha256(chr(10).join(known).encode()).hexdigest()[:12]}.jsa")
