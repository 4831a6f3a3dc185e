"""Name the version of Spark's checkpoints that Tailrace reads and writes, and find checkpoints of other versions."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

VERSION = "v1"
"""The first line of each file in a checkpoint that Tailrace reads and writes: Spark's version of the file."""


def other_version(folder: Path) -> str | None:
    """Return the version of the last checkpoint in a folder of this machine, if it is not the version `VERSION`.

    The folder has a subfolder for each writer, named after the token of the writer's lease. Returns None if the folder
    has no checkpoint.
    """
    for kind in ("offsets", "commits"):
        with suppress(OSError, UnicodeDecodeError, ValueError):
            writer = max(_numbered(folder))
            batch = max(_numbered(folder / str(writer) / kind))
            first = (folder / str(writer) / kind / str(batch)).read_text("utf-8").partition("\n")[0]
            if first != VERSION:
                return first[:20]
    return None


def _numbered(folder: Path) -> list[int]:
    return [int(one.name) for one in folder.iterdir() if one.name.isdigit()]
