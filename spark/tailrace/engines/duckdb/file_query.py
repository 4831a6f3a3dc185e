"""Run a query over some data files of a table with DuckDB, in any process.

The process may be a Python worker of an executor, for example. The query needs no lake and no catalog, because it
carries everything that it needs to know about the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io

from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.scans import is_local, parquet_relation
from tailrace.settings import Settings


@dataclass(frozen=True)
class FileQuery:
    """A query, in DuckDB's dialect, over a relation that contains the rows of some files of a table.

    All files have the table's current columns, of which the query reads only the columns in `columns`. `io` contains
    the properties of the file store. `memory` is DuckDB's memory limit (`TAILRACE_MEMORY`). The result of the query has
    the schema `schema`.
    """

    text: str
    relation: str
    columns: pa.Schema
    schema: pa.Schema
    io: Mapping[str, Any]
    memory: str

    def over(self, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Run the query over the rows of the files `files`, on one thread, and yield the result in batches."""
        with closing(_database(self.memory).cursor()) as connection, ExitStack() as held:
            if all(map(is_local, files)):
                connection.execute(f"CREATE TEMP VIEW {self.relation} AS SELECT * FROM {parquet_relation(files)}")
            else:
                fetched = (batch for file in files for batch in self._batches(file))
                reader = pa.RecordBatchReader.from_batches(self.columns, fetched)
                rows = held.enter_context(register(connection, reader))
                connection.execute(f"CREATE TEMP TABLE {self.relation} AS SELECT * FROM {rows}")
            for batch in connection.execute(self.text).to_arrow_reader(_ROWS):
                yield from pa.Table.from_batches([batch]).cast(self.schema).to_batches()

    def _batches(self, file: str) -> Iterator[pa.RecordBatch]:
        with load_file_io(dict(self.io), file).new_input(file).open() as opened, pq.ParquetFile(opened) as read:
            for batch in read.iter_batches(columns=self.columns.names):
                yield batch.cast(self.columns)


@cache
def _database(memory: str) -> duckdb.DuckDBPyConnection:
    """Return the database for this process's queries. The first call opens the database.

    Each query has its own connection.
    """
    return connect(Settings(memory=memory), threads=1)


_ROWS = 100_000
"""The number of rows per batch of a query's result."""
