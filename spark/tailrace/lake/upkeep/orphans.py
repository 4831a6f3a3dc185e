"""Tell whether a table's folder holds files that no snapshot of the table names: leftovers of dead writers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake


def may_have_orphans(lake: Lake, table: str, before: datetime) -> bool:
    """Tell whether there may be a file older than `before` that no snapshot of a table names.

    A folder of this machine is searched; a folder in S3 is not listed for this, so there may be one.
    """
    if lake.settings.on_s3:
        return True
    # Files are listed before the table is read: a file that is committed meanwhile is named by then.
    old = set(_older(Path(_path(lake.table(table).location())), before.timestamp()))
    return bool(old) and bool(old - set(_named(lake.table(table))))


def _older(folder: Path, before: float) -> Iterator[str]:
    for path in folder.rglob("*"):
        # A file that is removed meanwhile is no orphan.
        with suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime < before:
                yield str(path)


def _named(table: Table) -> Iterator[str]:
    """Yield the files that a loaded table's metadata names, the metadata's own files among them."""
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
