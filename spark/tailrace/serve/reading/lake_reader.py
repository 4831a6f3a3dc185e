"""Read a lake's tables for the pages with DuckDB; only a few pages read at the same time, each with a time limit.

The process keeps an in-memory database, whose size is limited by `TAILRACE_MEMORY`. The process also keeps the
statistics of at most `TAILRACE_SERVE_FILES` files in memory. pyiceberg uses the statistics to decide which files are
read, and DuckDB reads only the columns that a query names.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import BinaryType, FixedType, NestedField, PrimitiveType, StringType, UUIDType

from tailrace.engines.duckdb.database.connection import EngineError, connect
from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.engines.duckdb.database.scans import scan_files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.still_lake import KeptManifests, StillLake
from tailrace.lake.read.file_bounds import bounds
from tailrace.lake.schema.filters import EVERYTHING, Filter
from tailrace.model.base.errors import TailraceError
from tailrace.serve.reading.shown_text import CUT
from tailrace.settings import Settings

AT_ONCE = 4
"""The maximum number of pages that read the lake at the same time; a further page waits until another page is done."""


class SlowError(TailraceError, TimeoutError):
    """A page took longer than its time limit to read the lake, or waited that long for other pages to finish."""


class _TimeIsUp(Exception):  # noqa: N818 - it never leaves this module
    """Raised if a query would start after the page's time limit, for example because finding files took too long."""


@dataclass(frozen=True)
class Reader:
    """A reader that opens the tables of a lake for the pages.

    `rows` is the maximum number of rows on a page; `seconds` is the maximum time for which a page may read the lake.
    """

    lake: Lake
    database: duckdb.DuckDBPyConnection
    gate: threading.BoundedSemaphore
    kept: KeptManifests
    rows: int
    seconds: float

    @classmethod
    def of(cls, lake: Lake) -> Reader:
        """Open a reader with the limits from the lake's settings."""
        settings: Settings = lake.settings
        gate, kept = threading.BoundedSemaphore(AT_ONCE), KeptManifests(settings.serve_files)
        return cls(lake, connect(settings), gate, kept, settings.serve_rows, settings.serve_timeout.total_seconds())

    def close(self) -> None:
        """Close the database and delete its scratch folder."""
        self.database.close()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a session for one page.

        Raises `SlowError` if the page exceeds its time limit, and `EngineError` if DuckDB cannot read.
        """
        if not self.gate.acquire(timeout=self.seconds):
            raise SlowError(f"{AT_ONCE} other pages have been read for {self.seconds:.0f} s: try again later")
        cursor = self.database.cursor()

        def stop() -> None:
            # Ignore errors of the interruption, because the page may have finished reading just before the timer fired.
            with suppress(duckdb.Error):
                cursor.interrupt()

        timer = threading.Timer(self.seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            still = StillLake.freeze(self.lake, self.kept)
            yield Session(still, cursor, self.rows, time.monotonic() + self.seconds)
        except (duckdb.InterruptException, _TimeIsUp):
            raise SlowError(
                f"reading took longer than {self.seconds:.0f} s: look at a shorter range, or set TAILRACE_SERVE_TIMEOUT"
            ) from None
        except duckdb.Error as error:
            raise EngineError.of(error) from None
        finally:
            timer.cancel()
            cursor.close()
            self.gate.release()


@dataclass(frozen=True)
class Session:
    """The queries for one page. All queries of a session read the same snapshot of each table.

    No query starts after the instant `until` of the monotonic clock.
    """

    lake: Lake
    cursor: duckdb.DuckDBPyConnection
    rows: int
    until: float
    _planned: dict[tuple[str, str], list[FileScanTask]] = field(default_factory=dict)

    @contextmanager
    def relation(self, table: Table, where: Filter = EVERYTHING, columns: Sequence[str] = ("*",)) -> Iterator[str]:
        """Yield the name of a relation that contains the given columns of a table.

        The relation is valid within the `with` block.

        `where` only skips whole files; the relation may contain rows that do not match `where`.
        """
        scan = table.scan(row_filter=where, selected_fields=tuple(columns))
        with scan_files(self.cursor, table, scan, self._files(table, where)) as name:
            yield name

    def _files(self, table: Table, where: Filter) -> list[FileScanTask]:
        """Return the files of a table that may contain rows that match `where`.

        A session determines the files only once per table and filter.
        """
        place = table.metadata_location, repr(where)
        if place not in self._planned:
            self._planned[place] = list(table.scan(row_filter=where).plan_files())
        return self._planned[place]

    def bounds(self, table: Table, where: Filter, column: str) -> tuple[int, int] | None:
        """Return the lowest and highest instant of a column, from the statistics of the files that match `where`.

        Returns None if there are no files, if any of the files has deletions, or if the statistics of any file lack the
        bounds. The bounds also cover rows of these files that do not match `where`, unless `where` filters only by
        partition.
        """
        tasks = self._files(table, where)
        if any(task.delete_files for task in tasks):
            return None
        return bounds((task.file for task in tasks), table.schema().find_field(column))

    def all(self, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[dict[str, Any]]:
        """Run a query and return all of its rows; the caller must limit the number of rows."""
        if time.monotonic() > self.until:
            raise _TimeIsUp
        given = dict(values) if isinstance(values, Mapping) else list(values)
        found: list[dict[str, Any]] = self.cursor.execute(query, given).to_arrow_table().to_pylist()
        return found

    def one(self, query: str, values: Sequence[object] = ()) -> dict[str, Any]:
        """Run a query whose result has exactly one row, and return that row."""
        return self.all(query, values)[0]

    def known_as(self, name: str, rows: pa.Table) -> str:
        """Register an Arrow table as a relation with this name, and return the name."""
        self.cursor.register(name, rows)
        return name


def cut_columns(schema: Schema, names: Sequence[str], prefix: str = "") -> list[str]:
    """Return the SELECT items for some columns. DuckDB cuts long texts, so that a page never loads a whole text."""
    return [f"{_cut(schema.find_field(name), prefix)} AS {name_of(name)}" for name in names]


def _cut(field: NestedField, prefix: str) -> str:
    column = prefix + name_of(field.name)
    whole = isinstance(field.field_type, PrimitiveType)
    if isinstance(field.field_type, BinaryType | FixedType):
        return f"hex({column}[1:{CUT + 1}])"
    if isinstance(field.field_type, StringType):
        return f"left({column}, {CUT + 1})"
    if whole and not isinstance(field.field_type, UUIDType):
        return column
    return f"left(CAST({column} AS VARCHAR), {CUT + 1})"


def digest_of(names: Sequence[str], prefix: str = "") -> str:
    """Return the SQL for a key's digest.

    Links contain the digest because a key may have any length and any characters.

    The digest is computed from a text in which the length of each key part is written before the part. Different keys
    therefore never have the same text.
    """
    texts = (f"CAST({prefix}{name_of(name)} AS VARCHAR)" for name in names)
    parts = (f"coalesce(strlen({text}) || ':' || {text}, '-')" for text in texts)
    return f"md5({' || '.join([*parts, repr('')])})"
