"""Answer a query over some data files of a table by DuckDB, in whatever process asks: an executor's Python, say.

It needs no lake and no catalog: what it is told of the table is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io

from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.scans import parquet, path_of
from tailrace.settings import Settings


@dataclass(frozen=True)
class FileQuery:
    """A query of DuckDB's dialect over a relation, which the rows of some files of a table are.

    All files have the table's columns as they are now. `columns` are those that the query reads, `io` the properties of
    the files' store, `memory` is what DuckDB may take (`TAILRACE_MEMORY`). The answer has `schema`.
    """

    text: str
    relation: str
    columns: Sequence[str]
    schema: pa.Schema
    io: Mapping[str, Any]
    memory: str

    def over(self, files: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Answer the query over the rows of these files, on one thread."""
        with closing(connect(Settings(memory=self.memory), threads=1)) as connection, ExitStack() as held:
            if all(file.startswith(("file:", "/")) for file in files):
                listed = ", ".join("'" + path_of(file).replace("'", "''") + "'" for file in files)
                connection.execute(f"CREATE VIEW {self.relation} AS SELECT * FROM {parquet(listed)}")
            else:
                rows = held.enter_context(registered(connection, self._fetched(files)))
                connection.execute(f"CREATE TABLE {self.relation} AS SELECT * FROM {rows}")
            for batch in connection.execute(self.text).to_arrow_reader(_ROWS):
                yield from pa.Table.from_batches([batch]).cast(self.schema).to_batches()

    def _fetched(self, files: Sequence[str]) -> pa.RecordBatchReader:
        batches = (batch for file in files for batch in self._batches(file))
        first = next(batches)
        return pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))

    def _batches(self, file: str) -> Iterator[pa.RecordBatch]:
        with load_file_io(dict(self.io), file).new_input(file).open() as opened, pq.ParquetFile(opened) as read:
            yield from read.iter_batches(columns=list(self.columns))


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from (other.cast(first.schema) for other in others)


_ROWS = 100_000
