"""Answer a query over a log's files by DuckDB in the executors' Python, which takes a third of Spark's time.

Each task answers the query over some of the files; the caller combines the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.choose import WORTH
from tailrace.engines.duckdb.database.dialect import in_duckdb_once
from tailrace.engines.duckdb.database.shares import SHARE_COLUMN, in_shares, with_share
from tailrace.engines.duckdb.file_query import FileQuery
from tailrace.engines.spark.workers.python_tasks import (
    FetchedShares,
    call_results,
    fetch_shares,
    files_in_parts,
    for_each,
)
from tailrace.lake.catalog.detached_table import DetachedTable
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import has_only_declared
from tailrace.lake.schema.filters import Filter
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Query, Relation

PART = 32 * 2**20
"""The bytes of files for a task, where there are as many for each core."""

MEMORY = "256MB"
"""The memory limit of DuckDB in a task; beyond it, DuckDB spills."""


@dataclass(frozen=True)
class LogFiles:
    """The files of a log that hold just the rows and columns that it declares, by their paths and sizes in bytes.

    `schema` is the schema of the table, and `io` are the properties of the files' store.
    """

    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    schema: pa.Schema
    io: Mapping[str, Any]

    @classmethod
    def of(cls, table: Table, files: Iterable[DataFile]) -> LogFiles:
        """Describe files of a table that hold just the declared rows and columns."""
        each = list(files)
        paths, sizes = (tuple(getattr(file, name) for file in each) for name in ("file_path", "file_size_in_bytes"))
        return cls(paths, sizes, table.schema().as_arrow(), dict(table.io.properties))

    @classmethod
    def scanned(cls, lake: Lake, log: Log, where: Filter, snapshot: int | None) -> LogFiles | None:
        """Find the files of a log that `where` selects; None where some hold other rows or columns."""
        table = lake.table(log.name)
        tasks = list(table.scan(row_filter=where, snapshot_id=snapshot).plan_files())
        if not has_only_declared(table, log) or len(table.schemas()) > 1 or any(task.delete_files for task in tasks):
            return None
        return cls.of(table, (task.file for task in tasks))

    @property
    def worth(self) -> bool:
        """True if the files are large enough to be worth starting Python on the executors."""
        return sum(self.sizes) >= WORTH

    def answer(self, spark: SparkSession, text: Query, relation: Relation, schema: pa.Schema) -> DataFrame:
        """Return the frame of a query's answers over parts of the files.

        `relation` is the name of the log in the query.
        """
        return for_each(spark, self._parts(spark), self._asked(text, relation, schema).over, schema)

    def fetched(
        self, spark: SparkSession, text: Query, relation: Relation, schema: pa.Schema, most: int
    ) -> pa.Table | None:
        """Bring a query's answers over parts of the files to this process; None where they are more than `most` bytes.

        Also None where they are more than the driver takes from one job.
        """
        asked = self._asked(text, relation, schema)
        found = fetch_shares(
            spark, self._parts(spark), lambda files: ((0, batch) for batch in asked.over(files)), schema, most
        )
        return None if found is None else found.rows()

    def fetched_shares(
        self, spark: SparkSession, text: Query, relation: Relation, schema: pa.Schema, by: Sequence[str], most: int
    ) -> FetchedShares | None:
        """Bring a query's answers over parts of the files to this process like `fetched`, in shares by some columns."""
        asked = self._asked(text, relation, schema)
        asked = replace(asked, text=with_share(asked.text, by), schema=schema.append(SHARE_COLUMN))
        return fetch_shares(spark, self._parts(spark), lambda files: in_shares(asked.over(files)), schema, most)

    def write(
        self, spark: SparkSession, text: Query, relation: Relation, table: Table, rows: int
    ) -> list[DataFile] | None:
        """Write a query's answers over parts of the files as new files of a table, about `rows` in each.

        None where an executor fails; maintenance deletes the files of the other executors, which no commit lists.
        """
        asked = self._asked(text, relation, table.schema().as_arrow())
        writing = partial(_write_answers, asked, DetachedTable.of(table), rows)
        written = call_results(spark, self._parts(spark), writing)
        return None if written is None else [file for files in written for file in files]

    def _asked(self, text: Query, relation: Relation, schema: pa.Schema) -> FileQuery:
        columns = pa.schema([field for field in self.schema if field.name in text])
        return FileQuery(in_duckdb_once(text), relation, columns, schema, self.io, MEMORY)

    def _parts(self, spark: SparkSession) -> list[list[str]]:
        return files_in_parts(self.paths, self.sizes, spark.sparkContext.defaultParallelism, PART)


def _write_answers(query: FileQuery, table: DetachedTable, rows: int, files: Sequence[str]) -> list[DataFile]:
    """Write the answers over some files as files that a table does not list yet, about `rows` in each."""
    pa.set_cpu_count(1)
    return list(table.write(query.over(files), rows))
