"""Find the files in a table's folder that belong to no snapshot because a writer crashed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.metadata.commit_times import EARLIEST


def orphans(lake: Lake, table: str, before: datetime) -> list[str]:
    """List the files in a table's local folder that are older than `before` and belong to no snapshot.

    The returned addresses have the same form (a path or a `file:` URL) as the table's location, because Iceberg ignores
    addresses in other forms. A file dated before `EARLIEST` is not listed: its writer's clock was wrong, and the file
    may be committed soon.
    """
    location = lake.table(table).location()
    # The folder is listed before the table is loaded again, so that a file that is committed in the meantime is found
    # in the metadata.
    old = set(_older(Path(_path(location)), before.timestamp()))
    found = sorted(old - set(_named(lake.table(table)))) if old else []
    return [f"{location}{path.removeprefix(_path(location))}" for path in found]


def _older(folder: Path, before: float) -> Iterator[str]:
    for path in folder.rglob("*"):
        # A file that was removed in the meantime is not an orphan.
        with suppress(FileNotFoundError):
            if path.is_file() and EARLIEST / 1000 <= path.stat().st_mtime < before:
                yield str(path)


def _named(table: Table) -> Iterator[str]:
    """Yield the paths of all files to which a loaded table's metadata refers, and the paths of the metadata files."""
    metadata = table.metadata
    own = [table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)]
    yield from map(_path, [*own, *(one.statistics_path for one in metadata.statistics)])
    seen = set()
    for snapshot in metadata.snapshots:
        yield _path(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield _path(manifest.manifest_path)
                yield from (
                    _path(entry.data_file.file_path)
                    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                )


def _path(address: str) -> str:
    return address.removeprefix("file://").removeprefix("file:")
