"""Look up tables directly in a catalog's SQLite file with SQL queries; pyiceberg's own catalog makes every change.

The location of a table's metadata is in one row of the catalog's SQLite file. pyiceberg's catalog reads this row with
SQLAlchemy. Importing SQLAlchemy takes a quarter of a second, which is a fifth of the running time of a short command.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, ValidationError
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from tailrace.lake.schema.lake_errors import DamagedError

_NAMED = "SELECT {what} FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?"

_TABLES = f"{_NAMED} AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
"""An SQL condition for a namespace's tables, excluding views; pyiceberg's catalog uses the same condition."""

_KEPT = 16
"""The maximum number of metadata files that are cached."""

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
        # The metadata is cached because a metadata file never changes, and one commit reads the same file several
        # times.
        self._metadata = lru_cache(_KEPT)(self._read_metadata)

    @cached_property
    def whole(self) -> Any:
        """pyiceberg's own catalog, opened at first use."""
        return self._open()

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
        space, name = _parted(identifier)
        rows = self._rows(_TABLE.format(what="metadata_location"), space, name)
        if rows is None:
            loaded: Table = self.whole.load_table(identifier)
            return loaded
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


def changing_catalog(catalog: Catalog) -> Catalog:
    """Return the catalog that makes changes: for a `SqliteLookups`, pyiceberg's catalog; otherwise the given
    catalog.
    """
    whole: Catalog = catalog.whole if isinstance(catalog, SqliteLookups) else catalog
    return whole
