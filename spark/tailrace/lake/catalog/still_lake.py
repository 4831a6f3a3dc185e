"""Define a lake in a fixed state: each table is loaded once, and cached manifests are used to find the table's files.

While a page of the web interface is built, all its parts read the same state of the tables. The next page reads mostly
the same manifests. A manifest never changes, so its entries stay in the cache until other entries need the room.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, cast

from cachetools import LRUCache, cachedmethod
from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import DataScan, FileScanTask, ManifestGroupPlanner, Table

from tailrace.lake.catalog.lake import Lake


class KeptManifests:
    """A thread-safe cache of the entries of recently read manifests. The cached entries list at most `files` data files
    in all.
    """

    def __init__(self, files: int) -> None:
        self._found = LRUCache[str, list[ManifestEntry]](files, getsizeof=len)
        self._lock = Lock()

    def __len__(self) -> int:
        """Return the number of data files in the cache."""
        return int(self._found.currsize)

    @cachedmethod(lambda self: self._found, lambda self, manifest, io: manifest.manifest_path, lambda self: self._lock)
    def of(self, manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
        """Return a manifest's entries, without the entries for deleted files; callers must not change the returned
        list.
        """
        return manifest.fetch_manifest_entry(io, discard_deleted=True)


@dataclass(frozen=True)
class StillLake(Lake):
    """A short-lived, read-only lake in which each table remains in the state in which it was first loaded.

    `of` is the underlying lake. The cache `kept` is shared with later objects of this class.
    """

    of: Lake = field(kw_only=True)
    kept: KeptManifests = field(kw_only=True)
    _loaded: dict[str, Table | None] = field(default_factory=dict, compare=False, repr=False)
    _rows: dict[str, tuple[int | None, list[dict[str, Any]]]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def freeze(cls, lake: Lake, kept: KeptManifests) -> StillLake:
        """Create a `StillLake` from the given lake; both use the same catalog. The manifests are cached in `kept`."""
        return cls(lake.settings, lake.tell, lake.looks, of=lake, kept=kept)

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog of the underlying lake."""
        return self.of.catalog

    def find(self, table: str) -> Table | None:
        """Return a table in the state in which it was first loaded, or None if the table does not exist."""
        if table not in self._loaded:
            found = super().find(table)
            self._loaded[table] = None if found is None else _KeptTable(found, self.kept)
        return self._loaded[table]

    def has(self, table: str) -> bool:
        """Return True if the table exists."""
        return self.find(table) is not None

    def rows(self, table: str) -> tuple[int | None, list[dict[str, Any]]]:
        """Return the id of the snapshot from which a small table was first read, and all rows of this snapshot."""
        if table not in self._rows:
            self._rows[table] = super().rows(table)
        return self._rows[table]


class _KeptTable(Table):
    """A table whose scans are planned with cached manifests."""

    def __init__(self, table: Table, kept: KeptManifests) -> None:
        self.__dict__.update(table.__dict__)
        self._kept = kept

    def scan(self, *args: Any, **kwargs: Any) -> DataScan:
        return _KeptScan(self._kept, super().scan(*args, **kwargs))


class _KeptScan(DataScan):
    def __init__(self, kept: KeptManifests, scan: DataScan) -> None:
        self.__dict__.update(scan.__dict__)
        self._kept = kept

    def plan_files(self) -> Iterable[FileScanTask]:
        """Return the files that may contain rows that match the scan's filter."""
        snapshot = self.snapshot()
        if snapshot is None or (self.catalog is not None and self.catalog.supports_server_side_planning()):
            return super().plan_files()
        planner = ManifestGroupPlanner(self.table_metadata, self.io, self.row_filter, self.case_sensitive, self.options)
        manifests = (_KeptManifest(self._kept, one) for one in snapshot.manifests(self.io))
        return planner.plan_files(cast("Iterable[ManifestFile]", manifests))


class _KeptManifest:
    """A manifest whose entries come from the cache."""

    def __init__(self, kept: KeptManifests, manifest: ManifestFile) -> None:
        self._kept, self._manifest = kept, manifest

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manifest, name)

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        """Return the manifest's entries, without the entries for deleted files."""
        assert discard_deleted
        return self._kept.of(self._manifest, io)
