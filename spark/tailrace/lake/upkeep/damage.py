"""Find the missing or damaged files of a lake: metadata, manifest lists, manifests and data files.

A reader that opens a damaged file fails with a decoding error, and such an error seldom names the file. So after an
error that is not recognized, the lake's files themselves are checked (`lake.upkeep.diagnosis`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.lake_errors import DamagedError

Kind = Literal["metadata", "list of manifests", "manifest", "data file"]

PATIENCE = 10.0
"""The time, in seconds, after which a search of a lake for damaged files stops."""


@dataclass(frozen=True)
class Damage:
    """A missing or damaged file of a table; `found` describes the problem."""

    table: str
    kind: Kind
    file: str
    found: str

    def __str__(self) -> str:
        return f"the {self.kind} {self.file} of table {self.table} {self.found}"


def find_damages(lake: Lake, patience: float = PATIENCE) -> Iterator[Damage]:
    """Yield the damaged files in the tables' current snapshots; stop the search after about `patience` seconds.

    Files that every reader needs are checked first: the metadata of all tables, then the manifests, then the sizes and
    footers of data files, and last the pages of data files.
    """
    until = time.monotonic() + patience
    there = list[tuple[str, Table]]()
    for name in lake.tables:
        try:
            there.append((name, lake.table(name)))
        except DamagedError as error:
            yield Damage(name, "metadata", error.file, error.found)
    files = list[tuple[str, FileIO, Any]]()
    for name, table in there:
        if time.monotonic() > until:
            return
        yield from _of_manifests(name, table, files)
    for look in (_footer, _pages):
        for name, io, file in files:
            if time.monotonic() > until:
                return
            if (found := look(io, file)) is not None:
                yield Damage(name, "data file", file.file_path, found)


def _of_manifests(name: str, table: Table, files: list[tuple[str, FileIO, Any]]) -> Iterator[Damage]:
    """Yield the damaged manifests of a table's current snapshot.

    The files to which the intact manifests refer are appended to `files`.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    try:
        listed: list[ManifestFile] = snapshot.manifests(table.io)
    except Exception as error:
        yield Damage(name, "list of manifests", snapshot.manifest_list, _how(table.io, snapshot.manifest_list, error))
        return
    for manifest in listed:
        try:
            entries = manifest.fetch_manifest_entry(table.io)
        except Exception as error:
            yield Damage(name, "manifest", manifest.manifest_path, _how(table.io, manifest.manifest_path, error))
            continue
        files += [(name, table.io, entry.data_file) for entry in entries]


def _footer(io: FileIO, file: Any) -> str | None:
    """Compare a data file's size with the size in its manifest entry, and read the file's footer.

    Returns None if the size matches and the footer is readable, or otherwise a description of the damage.
    """
    import pyarrow.parquet as pq

    try:
        size = len(io.new_input(file.file_path))
        if size != file.file_size_in_bytes:
            return f"is damaged: it has {size:,} bytes, and had {file.file_size_in_bytes:,} when it was written"
        if file.file_format == "PARQUET":
            with closing(io.new_input(file.file_path).open()) as opened:
                pq.read_metadata(opened)
    except Exception as error:
        return _how(io, file.file_path, error)
    return None


def _pages(io: FileIO, file: Any) -> str | None:
    """Read all pages of a data file, one row group after another.

    Returns None if the pages are readable, or otherwise a description of the damage. A file whose footer is damaged is
    skipped.
    """
    import pyarrow.parquet as pq

    if file.file_format != "PARQUET" or _footer(io, file) is not None:
        return None
    try:
        with closing(io.new_input(file.file_path).open()) as opened:
            parts = pq.ParquetFile(opened)
            for number in range(parts.num_row_groups):
                parts.read_row_group(number)
    except Exception as error:
        return _how(io, file.file_path, error)
    return None


def _how(io: FileIO, file: str, error: Exception) -> str:
    """Return a description of a file's damage: the file is missing, or it cannot be read because of `error`."""
    try:
        there = io.new_input(file).exists()
    except OSError:
        there = True
    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return f"is damaged: {first[:200]}" if there else "is missing"
