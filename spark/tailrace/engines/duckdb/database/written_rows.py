"""Write rows to files that a table does not list yet. Only the rows of a few files are in memory at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import duckdb
import pyarrow as pa
from pyiceberg.manifest import DataFile

from tailrace.engines.choose import in_bytes
from tailrace.engines.duckdb.database.connection import read_batches
from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.engines.duckdb.database.literal_columns import append_literals, split_literals
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.layouts import in_one_span, span_columns
from tailrace.sql.terms import Query

ROWS_A_FILE = 245_760
"""The number of rows per file: two whole row groups (`lake.catalog.data_files.ROWS_A_GROUP`)."""

SHARE = 8
"""The rows that wait to be written take at most this part of `TAILRACE_MEMORY`: an eighth."""


class FileRows(NamedTuple):
    """The rows of one file, the name of their table, and a table of one row with the columns that are the same in all
    rows.
    """

    table: str
    rows: pa.Table
    literals: pa.Table | None = None


def write_rows(
    connection: duckdb.DuckDBPyConnection, text: Query, lake: Lake, table: str, times: tuple[int, int] | None = None
) -> list[DataFile]:
    """Write the rows of a query to new files that the table does not list yet.

    `times` are bounds of the rows' times in microseconds, if they are known (`rows_of_files`).
    """
    return write_parts(lake, rows_of_files(connection, text, lake, table, times=times)).get(table, [])


def rows_of_files(
    connection: duckdb.DuckDBPyConnection,
    text: Query,
    lake: Lake,
    table: str,
    order: Sequence[str] = (),
    times: tuple[int, int] | None = None,
) -> Iterator[FileRows]:
    """Compute a query, and yield the rows of one file after the other.

    The rows are in the order of the columns `order`; without `order`, they are sorted only if the table is partitioned
    by time. The rows of a file are split by partition, so rows from the same range of time must be adjacent. They need
    not be sorted if all `times` lie in one partition: the first files are then written while later rows are computed.
    """
    target, (rest, apart) = lake.table(table), split_literals(text)
    literals = None if apart is None else connection.execute(apart).to_arrow_table()
    alike = () if literals is None else literals.column_names
    by = order or [name for name in span_columns(target.spec(), target.schema()) if name not in alike]
    if not order and times is not None and in_one_span(target.spec(), target.schema(), *times):
        by = []
    if by:
        rest = f"SELECT * FROM ({rest}) ORDER BY {', '.join(map(name_of, by))}"
    for batch in read_batches(connection, rest, ROWS_A_FILE):
        yield FileRows(table, pa.Table.from_batches([batch]), literals)


def write_parts(lake: Lake, parts: Iterable[FileRows]) -> dict[str, list[DataFile]]:
    """Write each part's rows to new files; return the files of each table, in the order of the parts.

    Up to `TAILRACE_THREADS` parts are written in parallel, while the rows of the next part are computed. All of this is
    native code. The rows of the parts that are being written take at most `1 / SHARE` of `TAILRACE_MEMORY`; a larger
    part is written alone.
    """
    files: dict[str, list[DataFile]] = {}
    most, room, held = lake.settings.threads, in_bytes(lake.settings.memory) // SHARE, 0
    writing: deque[tuple[FileRows, Future[Sequence[DataFile]]]] = deque()

    def settle() -> int:
        part, future = writing.popleft()
        files.setdefault(part.table, []).extend(future.result())
        return int(part.rows.nbytes)

    with ThreadPoolExecutor(most) as pool:
        for part in parts:
            while writing and (len(writing) == most or held + part.rows.nbytes > room):
                held -= settle()
            held += part.rows.nbytes
            writing.append((part, pool.submit(_write, lake, part)))
        while writing:
            settle()
    return files


def _write(lake: Lake, part: FileRows) -> Sequence[DataFile]:
    return lake.write_files(part.table, append_literals(part.rows, part.literals))
