"""Pass over what a landing folder has only by symbolic links: each file is read once, and nothing from elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache

from tailrace.ingest.sources import file_system


def without_links(folder: str, files: Sequence[str]) -> list[str]:
    """Return the files of a folder that no symbolic link below it leads to; the folder itself may be one."""
    if not re.match("/|file:|(?!\\w+:)", folder):
        return list(files)
    root = os.path.abspath(file_system(folder)[1])

    @cache
    def linked(path: str) -> bool:
        below = os.path.commonpath((root, path)) == root != path
        return below and (os.path.islink(path) or linked(os.path.dirname(path)))

    return [file for file in files if not linked(file_system(file)[1])]
