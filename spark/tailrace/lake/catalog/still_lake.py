"""A lake that stands still: each of its tables is loaded once, and files are planned by statistics that are kept.

A page reads the same tables for each of its parts, and the next page the same manifests but for those of the epochs
since. A manifest never changes once it is written, so that what it says may be kept for as long as there is room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, cast

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import DataScan, FileScanTask, ManifestGroupPlanner, Table

from tailrace.lake.catalog.lake import Lake


class KeptManifests:
    """The entries of the manifests that were read last, of at most so many data files; all threads share them."""

    def __init__(self, files: int) -> None:
        self.files = files
        self._found: OrderedDict[str, list[ManifestEntry]] = OrderedDict()
        self._held = 0
        self._lock = Lock()

    def __len__(self) -> int:
        """Return the number of data files whose statistics are kept."""
        return self._held

    def of(self, manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
        """Return a manifest's entries of files that are there; a reader changes nothing in them."""
        with self._lock:
            if (found := self._found.get(manifest.manifest_path)) is not None:
                self._found.move_to_end(manifest.manifest_path)
                return found
        read = manifest.fetch_manifest_entry(io, discard_deleted=True)
        with self._lock:
            if manifest.manifest_path not in self._found:
                self._found[manifest.manifest_path] = read
                self._held += len(read)
            while self._held > self.files:
                self._held -= len(self._found.popitem(last=False)[1])
        return read


@dataclass(frozen=True)
class StillLake(Lake):
    """A lake as it stood when each of its tables was first asked for; it is for reading, and for a short while.

    `of` is the lake that it was made of, and `kept` outlives it.
    """

    of: Lake | None = None
    kept: KeptManifests | None = None
    _loaded: dict[str, Table | None] = field(default_factory=dict, compare=False, repr=False)
    _rows: dict[str, tuple[int | None, list[dict[str, Any]]]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def made(cls, lake: Lake, kept: KeptManifests) -> StillLake:
        """Make a still lake of a lake, whose catalog it shares."""
        return cls(lake.settings, lake.tell, lake.looks, lake, kept)

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog of the lake that it was made of."""
        assert self.of is not None
        return self.of.catalog

    def find(self, table: str) -> Table | None:
        """Load a table, at most once; None where there is none."""
        if table not in self._loaded:
            found = super().find(table)
            self._loaded[table] = None if found is None or self.kept is None else _KeptTable(found, self.kept)
        return self._loaded[table]

    def has(self, table: str) -> bool:
        """Tell whether there is such a table."""
        return self.find(table) is not None

    def rows(self, table: str) -> tuple[int | None, list[dict[str, Any]]]:
        """Read all rows of a small table, at most once."""
        if table not in self._rows:
            self._rows[table] = super().rows(table)
        return self._rows[table]


class _KeptTable(Table):
    """A table whose files are planned by manifests that are kept."""

    def __init__(self, table: Table, kept: KeptManifests) -> None:
        super().__init__(
            table.name(), table.metadata, table.metadata_location, table.io, table.catalog, config=table.config
        )
        self.kept = kept

    def scan(self, *args: Any, **kwargs: Any) -> DataScan:
        return _KeptScan(self.kept, super().scan(*args, **kwargs))


class _KeptScan(DataScan):
    def __init__(self, kept: KeptManifests, scan: DataScan) -> None:
        self.__dict__.update(scan.__dict__)
        self._kept = kept

    def plan_files(self) -> Iterable[FileScanTask]:
        """Plan the files that have rows for the scan."""
        snapshot = self.snapshot()
        if snapshot is None or (self.catalog is not None and self.catalog.supports_server_side_planning()):
            return super().plan_files()
        planner = ManifestGroupPlanner(self.table_metadata, self.io, self.row_filter, self.case_sensitive, self.options)
        manifests = (_KeptManifest(self._kept, one) for one in snapshot.manifests(self.io))
        return planner.plan_files(cast("Iterable[ManifestFile]", manifests))


class _KeptManifest:
    """A manifest as the planner asks it, whose entries are those that are kept."""

    def __init__(self, kept: KeptManifests, manifest: ManifestFile) -> None:
        self._kept, self._manifest = kept, manifest

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manifest, name)

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        """Return the entries of files that are there."""
        assert discard_deleted
        return self._kept.of(self._manifest, io)
