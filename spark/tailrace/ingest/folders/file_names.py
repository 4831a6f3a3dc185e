"""Tell from the name of a file the format of its records, and whether a stream reads the file.

This module needs no Spark, so that commands that only look at files run without it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.ingest.compressed_text import compression

if TYPE_CHECKING:
    from tailrace.ingest.sources import Format

ENDINGS: dict[str, Format] = {
    "json": "json", "jsonl": "json", "ndjson": "json", "txt": "json", "log": "json", "csv": "csv", "tsv": "csv",
    "parquet": "parquet", "avro": "avro",
}  # fmt: skip
"""For each ending of a file's name, the format of its records."""


def format_of(name: str) -> Format | None:
    """Return the format of a file's records, or None if the ending of the file's name says nothing.

    >>> format_of("a.json.gz"), format_of("A.CSV"), format_of("part-0001")
    ('json', 'csv', None)
    """
    name = name.lower()
    packed = compression(name)
    return ENDINGS.get((name.removesuffix(f".{packed}") if packed else name).rpartition(".")[2])


def is_read(file: Path, folder: Path) -> bool:
    """Return True if a stream from a folder reads a file; it skips hidden files, and links."""
    parts = file.relative_to(folder).parts
    return not any(map(is_hidden, parts)) and file.is_file() and not file.is_symlink()


def is_hidden(name: str) -> bool:
    """Return True if Spark skips files and folders with this name.

    >>> [is_hidden(name) for name in ("a.json", "_a.json", "_day=1", ".a", "a._COPYING_", "a\\udcff.json", "_metadata")]
    [False, True, False, True, True, True, False]
    """
    if not name.isascii() and any("\ud800" <= one <= "\udfff" for one in name):
        return True
    if not name.startswith(("_", ".")) and not name.endswith("._COPYING_"):
        return False
    if name.startswith(("_metadata", "_common_metadata")):
        return False
    return not (name.startswith("_") and "=" in name) or name.endswith("._COPYING_")
