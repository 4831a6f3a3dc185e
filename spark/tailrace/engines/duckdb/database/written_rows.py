"""Write rows to files that a table does not list yet. Only the rows of a few files are in memory at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import duckdb
import pyarrow as pa
from pyiceberg.manifest import DataFile

from tailrace.engines.duckdb.database.dialect import name_of
from tailrace.engines.duckdb.database.literal_columns import append_literals, split_literals
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.layouts import span_columns
from tailrace.sql.terms import Query

Rows = TypeVar("Rows")

ROWS_A_FILE = 250_000
"""The approximate number of rows per file."""

WRITERS = 2
"""The number of files that are written in parallel. At most the rows of `WRITERS` + 1 files are in memory at a time."""


def write_rows(connection: duckdb.DuckDBPyConnection, text: Query, lake: Lake, table: str) -> list[DataFile]:
    """Write the rows of a query to new files that the table does not list yet."""
    target, (rest, apart) = lake.table(table), split_literals(text)
    literals = None if apart is None else connection.execute(apart).to_arrow_table()
    alike = () if literals is None else literals.column_names
    if spans := [name_of(name) for name in span_columns(target.spec(), target.schema()) if name not in alike]:
        # Sort the rows by time. Each file's rows are split by partition, so rows from the same range of time must be
        # adjacent.
        rest = f"SELECT * FROM ({rest}) ORDER BY {', '.join(spans)}"

    def write(batch: pa.RecordBatch) -> Sequence[DataFile]:
        return lake.write_files(table, append_literals(pa.Table.from_batches([batch]), literals))

    return some_at_once(write, connection.execute(rest).to_arrow_reader(ROWS_A_FILE))


def some_at_once(write: Callable[[Rows], Sequence[DataFile]], parts: Iterable[Rows]) -> list[DataFile]:
    """Write each part to files, up to `WRITERS` parts in parallel, while the rows of the next part are computed.

    Writing and computing can run in parallel, because both are native code.
    """
    files: list[DataFile] = []
    writing: deque[Future[Sequence[DataFile]]] = deque()
    with ThreadPoolExecutor(WRITERS) as pool:
        for part in parts:
            if len(writing) == WRITERS:
                files += writing.popleft().result()
            writing.append(pool.submit(write, part))
    for one in writing:
        files += one.result()
    return files
