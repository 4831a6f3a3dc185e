"""Tell from the name of a file the format of its records, for commands that are not given a format."""

from __future__ import annotations

from pathlib import Path

from tailrace.ingest.compressed_text import compression
from tailrace.ingest.folders.folder_changes import is_hidden
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
