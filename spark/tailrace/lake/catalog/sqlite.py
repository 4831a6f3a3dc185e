"""Look up tables directly in a catalog's SQLite file with SQL queries; pyiceberg's own catalog makes every change.

The location of a table's metadata is in one row of the catalog's SQLite file. pyiceberg's catalog reads this row with
SQLAlchemy. Importing SQLAlchemy takes a quarter of a second, which is a fifth of the running time of a short command.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from tailrace.lake.schema.lake_errors import DamagedError

_NAMED = "SELECT {what} FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?"

_TABLES = f"{_NAMED} AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
"""An SQL condition for a namespace's tables, excluding views; pyiceberg's catalog uses the same condition."""

_KEPT = 40_000
"""The maximum number of snapshots in the metadata that is cached, which has the latest metadata of each table.

A snapshot takes about 5 kB of memory. A stream of some hundred definitions commits to several hundred tables in turn.
"""

_TABLE = f"{_TABLES} AND table_name = ?"


class SqliteLookups:
    """A catalog that answers look-ups from its SQLite file; `whole` opens pyiceberg's catalog for all other operations.

    If the file contains no catalog yet, or a catalog of an older version, pyiceberg's catalog answers the look-ups,
    too.
    """

    def __init__(
        self, name: str, file: Path, busy: int, properties: Mapping[str, str], whole: Callable[[], Any]
    ) -> None:
        """Prepare the catalog without opening it; `busy` is the maximum time in seconds that a look-up waits for a
        commit.
        """
        self.name, self.properties = name, dict(properties)
        self._file, self._busy, self._open = file, busy, whole
        # The latest metadata of each table is cached, with its location, because a metadata file never changes, and one
        # commit reads the same file several times.
        self._kept = dict[str, tuple[str, TableMetadata]]()

    @cached_property
    def whole(self) -> Any:
        """pyiceberg's own catalog, opened at first use.

        It looks tables up in this object. What it writes in a commit is cached, so that nobody reads the new metadata
        file in this process.
        """
        whole = self._open()
        load, write = whole.load_table, whole._write_metadata

        def load_table(identifier: str | tuple[str, ...]) -> Table:
            found = self._found(identifier)
            return load(identifier) if found is None else found

        def write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
            write(metadata, io, metadata_path)
            self._keep(metadata_path, metadata)

        vars(whole).update(load_table=load_table, _write_metadata=write_metadata)
        return whole

    def __getattr__(self, name: str) -> Any:
        # While Python copies this object, the attribute `_open` does not exist yet, and a look-up of `_open` here would
        # never end.
        if name.startswith("__") or "_open" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.whole, name)

    def supports_server_side_planning(self) -> bool:
        """Return False, because this process itself plans which files a scan reads."""
        return False

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        """Load a table's current state.

        Raises `NoSuchTableError` if the table does not exist, and `DamagedError` if its metadata file is missing or
        damaged.
        """
        found = self._found(identifier)
        if found is None:
            loaded: Table = self.whole.load_table(identifier)
            return loaded
        return found

    def _found(self, identifier: str | tuple[str, ...]) -> Table | None:
        """Load a table's current state; return None if the file cannot answer the query."""
        space, name = _parted(identifier)
        rows = self._rows(_TABLE.format(what="metadata_location"), space, name)
        if rows is None:
            return None
        if not rows or rows[0][0] is None:
            raise NoSuchTableError(f"Table does not exist: {space}.{name}")
        at = str(rows[0][0])
        metadata = self._metadata(name, at)
        io = load_file_io({**self.properties, **metadata.properties}, at)
        return Table((*space.split("."), name), metadata, at, io, self)  # type: ignore[arg-type]

    def table_exists(self, identifier: str | tuple[str, ...]) -> bool:
        """Return True if the table exists."""
        rows = self._rows(_TABLE.format(what="1"), *_parted(identifier))
        return bool(self.whole.table_exists(identifier) if rows is None else rows)

    def view_exists(self, identifier: str | tuple[str, ...]) -> bool:
        """Return True if the view exists."""
        text = f"{_NAMED} AND iceberg_type = 'VIEW' AND table_name = ?".format(what="1")
        return bool(self._rows(text, *_parted(identifier)))

    def list_tables(self, namespace: str) -> list[tuple[str, ...]]:
        """List the tables of a namespace."""
        rows = self._rows(_TABLES.format(what="table_name"), namespace)
        if rows is None:
            return list(self.whole.list_tables(namespace))
        return [(*namespace.split("."), name) for (name,) in rows]

    def namespace_exists(self, namespace: str) -> bool:
        """Return True if the namespace exists."""
        text = "SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ? LIMIT 1"
        return bool(self._rows(text, namespace) or self.whole.namespace_exists(namespace))

    def _metadata(self, table: str, at: str) -> TableMetadata:
        kept, metadata = self._kept.get(_folder(at), ("", None))
        if metadata is None or kept != at:
            self._keep(at, metadata := self._read_metadata(table, at))
        return metadata

    def _keep(self, at: str, metadata: TableMetadata) -> None:
        """Cache a table's metadata in place of earlier metadata of the table."""
        self._kept.pop(_folder(at), None)
        self._kept[_folder(at)] = at, metadata
        # Other threads may change the cache meanwhile, so the loop uses copies.
        for folder in tuple(self._kept)[:-1]:
            if sum(len(one.snapshots) for _, one in tuple(self._kept.values())) <= _KEPT:
                break
            self._kept.pop(folder, None)

    def _read_metadata(self, table: str, at: str) -> TableMetadata:
        what = f"the metadata of table {table}"
        try:
            return FromInputFile.table_metadata(load_file_io(self.properties, at).new_input(at))
        except FileNotFoundError as error:
            raise DamagedError(what, at, "is missing") from error
        except (ValueError, ValidationError) as error:
            # These errors mean that the metadata file contains damaged JSON or text that is not UTF-8, or lacks
            # required fields.
            line = next(iter(str(error).splitlines()), "")
            raise DamagedError(what, at, f"is damaged: {type(error).__name__}: {line}") from error

    def _rows(self, text: str, *values: str) -> list[tuple[Any, ...]] | None:
        """Run a query on the catalog's SQLite file; return its rows, or None if the file cannot answer the query."""
        if not self._file.is_file():
            return None
        try:
            with closing(sqlite3.connect(self._file, timeout=self._busy)) as connection:
                return connection.execute(text, (self.name, *values)).fetchall()
        except sqlite3.Error:
            # The caller then uses pyiceberg's own catalog, which repairs the file or reports the error.
            return None


def _parted(identifier: str | tuple[str, ...]) -> tuple[str, str]:
    """Split a table's full name into its namespace and the table's name in this namespace."""
    *space, name = identifier.split(".") if isinstance(identifier, str) else identifier
    return ".".join(space), name


def _folder(at: str) -> str:
    """Return the folder of a metadata file; each table has a folder of its own."""
    return at.rpartition("/")[0]


def changing_catalog(catalog: Catalog) -> Catalog:
    """Return the catalog that makes changes: for a `SqliteLookups`, pyiceberg's catalog; otherwise the given
    catalog.
    """
    whole: Catalog = catalog.whole if isinstance(catalog, SqliteLookups) else catalog
    return whole
