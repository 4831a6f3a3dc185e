"""Run a query over a log's files with DuckDB in Python workers on the executors.

This takes a third of the time that Spark itself needs. Each task runs the query over some of the files. The caller has
to combine the tasks' results.
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
"""The approximate number of bytes of files per task, if there are enough files for all cores."""

MEMORY = "256MB"
"""DuckDB's memory limit in one task. If a query needs more memory, DuckDB spills to disk."""


@dataclass(frozen=True)
class LogFiles:
    """The paths and sizes of a log's files. No rows were deleted from the files, and their columns are the declared
    columns.

    The sizes are in bytes. `schema` is the schema of the log's table, and `io` contains the properties of the file
    store.
    """

    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    schema: pa.Schema
    io: Mapping[str, Any]

    @classmethod
    def of(cls, table: Table, files: Iterable[DataFile]) -> LogFiles:
        """Build a `LogFiles` from files of a log's table.

        The files must have exactly the columns that the log declares, and no rows may have been deleted from the files.
        """
        each = list(files)
        paths, sizes = (tuple(getattr(file, name) for file in each) for name in ("file_path", "file_size_in_bytes"))
        return cls(paths, sizes, table.schema().as_arrow(), dict(table.io.properties))

    @classmethod
    def scanned(cls, lake: Lake, log: Log, where: Filter, snapshot: int | None) -> LogFiles | None:
        """Return the files of a log that `where` selects.

        Returns None if rows were deleted from some of the files, or if the columns of the files are not exactly the
        columns that the log declares.
        """
        table = lake.table(log.name)
        tasks = list(table.scan(row_filter=where, snapshot_id=snapshot).plan_files())
        if not has_only_declared(table, log) or len(table.schemas()) > 1 or any(task.delete_files for task in tasks):
            return None
        return cls.of(table, (task.file for task in tasks))

    @property
    def worth(self) -> bool:
        """True if the files are large enough that starting Python workers on the executors saves time."""
        return sum(self.sizes) >= WORTH

    def answer(self, spark: SparkSession, text: Query, relation: Relation, schema: pa.Schema) -> DataFrame:
        """Run a query over each part of the files on the executors, and return the results as one data frame.

        `relation` is the name of the log in the query's text.
        """
        return for_each(spark, self._parts(spark), self._asked(text, relation, schema).over, schema)

    def fetched(
        self, spark: SparkSession, text: Query, relation: Relation, schema: pa.Schema, most: int
    ) -> pa.Table | None:
        """Run a query over each part of the files on the executors, and fetch the results into this process.

        Returns None if the results exceed `most` bytes, or are larger than the driver accepts from one job.
        """
        asked = self._asked(text, relation, schema)
        found = fetch_shares(
            spark, self._parts(spark), lambda files: ((0, batch) for batch in asked.over(files)), schema, most
        )
        return None if found is None else found.rows()

    def fetched_shares(
        self, spark: SparkSession, text: Query, relation: Relation, schema: pa.Schema, by: Sequence[str], most: int
    ) -> FetchedShares | None:
        """Run a query over each part of the files on the executors, and fetch the results, divided into shares.

        The shares are computed by a hash of the columns `by`. Returns None in the same cases as `fetched`.
        """
        asked = self._asked(text, relation, schema)
        asked = replace(asked, text=with_share(asked.text, by), schema=schema.append(SHARE_COLUMN))
        return fetch_shares(spark, self._parts(spark), lambda files: in_shares(asked.over(files)), schema, most)

    def write(
        self, spark: SparkSession, text: Query, relation: Relation, table: Table, rows: int
    ) -> list[DataFile] | None:
        """Run a query over each part of the files on the executors, and write the results to new files of a table.

        A new file has about `rows` rows.

        Returns None if a task on an executor fails. The files that other tasks wrote are then not committed, so
        maintenance deletes them.
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
    """Run a query over some files, and write the results to new data files without committing them.

    A new file has about `rows` rows.
    """
    pa.set_cpu_count(1)
    return list(table.write(query.over(files), rows))
