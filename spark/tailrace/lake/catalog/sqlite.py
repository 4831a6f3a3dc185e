"""A catalog in an SQLite file: look-ups are plain queries, and pyiceberg's own catalog makes every change.

Finding a table's metadata takes one row of the file. pyiceberg's catalog reads the row through SQLAlchemy, which takes
a quarter of a second to import: a fifth of the time of a command that looks at a lake and ends.
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

_NAMED = "SELECT {what} FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ?"

_TABLES = f"{_NAMED} AND (iceberg_type = 'TABLE' OR iceberg_type IS NULL)"
"""Selects the tables of a namespace, without its views, as pyiceberg's own catalog tells them apart."""

_KEPT = 16
"""The number of files of metadata that are kept as they were read."""

_TABLE = f"{_TABLES} AND table_name = ?"


class UnreadError(Exception):
    """A file of metadata that the catalog names is missing or damaged: `file` is its address, `found` says how."""

    def __init__(self, file: str, found: str) -> None:
        self.file, self.found = file, found
        super().__init__(f"{file} {found}")


class LookedUp:
    """A catalog of one file that answers look-ups itself, and opens pyiceberg's catalog by `whole` for all else.

    pyiceberg's catalog also answers look-ups of a file that has no catalog yet, or an older one.
    """

    def __init__(
        self, name: str, file: Path, busy: int, properties: Mapping[str, str], whole: Callable[[], Any]
    ) -> None:
        """Open nothing yet. `busy` is the number of seconds that a look-up waits for another process's commit."""
        self.name, self.properties = name, dict(properties)
        self._file, self._busy, self._open = file, busy, whole
        # A file of metadata is never written again: one commit looks at the same several times.
        self._metadata = lru_cache(_KEPT)(self._read_metadata)

    @cached_property
    def whole(self) -> Any:
        """pyiceberg's own catalog, opened at first use."""
        return self._open()

    def __getattr__(self, name: str) -> Any:
        # While a copy of this object is being made, it cannot open the catalog yet.
        if name.startswith("__") or "_open" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.whole, name)

    def supports_server_side_planning(self) -> bool:
        """Return False: only this process plans which files are read."""
        return False

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        """Load a table as it stands now. Raises `NoSuchTableError` where there is none."""
        space, name = _parted(identifier)
        rows = self._rows(_TABLE.format(what="metadata_location"), space, name)
        if rows is None:
            loaded: Table = self.whole.load_table(identifier)
            return loaded
        if not rows or rows[0][0] is None:
            raise NoSuchTableError(f"Table does not exist: {space}.{name}")
        at = str(rows[0][0])
        metadata = self._metadata(at)
        io = load_file_io({**self.properties, **metadata.properties}, at)
        return Table((*space.split("."), name), metadata, at, io, self)  # type: ignore[arg-type]

    def table_exists(self, identifier: str | tuple[str, ...]) -> bool:
        """Tell whether there is such a table."""
        rows = self._rows(_TABLE.format(what="1"), *_parted(identifier))
        return bool(self.whole.table_exists(identifier) if rows is None else rows)

    def view_exists(self, identifier: str | tuple[str, ...]) -> bool:
        """Tell whether there is such a view."""
        text = f"{_NAMED} AND iceberg_type = 'VIEW' AND table_name = ?".format(what="1")
        return bool(self._rows(text, *_parted(identifier)))

    def list_tables(self, namespace: str) -> list[tuple[str, ...]]:
        """List the tables of a namespace."""
        rows = self._rows(_TABLES.format(what="table_name"), namespace)
        if rows is None:
            return list(self.whole.list_tables(namespace))
        return [(*namespace.split("."), name) for (name,) in rows]

    def namespace_exists(self, namespace: str) -> bool:
        """Tell whether there is such a namespace."""
        text = "SELECT 1 FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace = ? LIMIT 1"
        return bool(self._rows(text, namespace) or self.whole.namespace_exists(namespace))

    def _read_metadata(self, at: str) -> TableMetadata:
        try:
            return FromInputFile.table_metadata(load_file_io(self.properties, at).new_input(at))
        except FileNotFoundError as error:
            raise UnreadError(at, "is missing") from error
        except (ValueError, ValidationError) as error:
            # Damaged JSON, text that is no UTF-8, or fields that metadata has to have.
            line = next(iter(str(error).splitlines()), "")
            raise UnreadError(at, f"is damaged: {type(error).__name__}: {line}") from error

    def _rows(self, text: str, *values: str) -> list[tuple[Any, ...]] | None:
        """Return the rows of a query of this catalog; None where the file cannot answer it."""
        if not self._file.is_file():
            return None
        try:
            with closing(sqlite3.connect(self._file, timeout=self._busy)) as connection:
                return connection.execute(text, (self.name, *values)).fetchall()
        except sqlite3.Error:
            # pyiceberg's own catalog mends what is wrong with the file, or reports it.
            return None


def _parted(identifier: str | tuple[str, ...]) -> tuple[str, str]:
    """Split a table's full name into its namespace and its name."""
    *space, name = identifier.split(".") if isinstance(identifier, str) else identifier
    return ".".join(space), name


def changing(catalog: Catalog) -> Catalog:
    """Return the catalog that makes the changes: the given one or, of a `LookedUp`, pyiceberg's own behind it."""
    whole: Catalog = catalog.whole if isinstance(catalog, LookedUp) else catalog
    return whole
