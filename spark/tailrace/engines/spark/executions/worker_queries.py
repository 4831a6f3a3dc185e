"""Answer a query over a log's files in the executors' Python, by DuckDB: it reads them in a third of Spark's time.

Each task answers it over some of the files; whoever asks puts the answers together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tailrace.engines.duckdb.database.dialect import in_duckdb_once
from tailrace.engines.duckdb.file_query import FileQuery
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import has_just
from tailrace.lake.schema.filters import Filter
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Query, Relation

Found = TypeVar("Found")

SHARE = 32 * 2**20
"""The bytes of files that a task is given, where there are so many for each core."""

WORTH = 24 * 2**20
"""The bytes of files from which on the executors' Python is worth its start."""

MEMORY = "256MB"
"""The memory that DuckDB may take in a task; beyond it, it spills."""


@dataclass(frozen=True)
class LogFiles:
    """Files of a log that hold just the rows and columns that it declares, by their paths and sizes in bytes.

    `schema` is the table's, and `io` are the properties of its files' store.
    """

    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    schema: pa.Schema
    io: Mapping[str, Any]

    @classmethod
    def of(cls, table: Table, files: Iterable[DataFile]) -> LogFiles:
        """Describe files of a table that are known to be such."""
        each = list(files)
        paths, sizes = (tuple(getattr(file, name) for file in each) for name in ("file_path", "file_size_in_bytes"))
        return cls(paths, sizes, table.schema().as_arrow(), dict(table.io.properties))

    @classmethod
    def scanned(cls, lake: Lake, log: Log, where: Filter, snapshot: int | None) -> LogFiles | None:
        """Find the files of a log that `where` asks for; None where some hold other rows or columns."""
        table = lake.table(log.name)
        tasks = list(table.scan(row_filter=where, snapshot_id=snapshot).plan_files())
        if not has_just(table, log) or len(table.schemas()) > 1 or any(task.delete_files for task in tasks):
            return None
        return cls.of(table, (task.file for task in tasks))

    def answer(self, spark: SparkSession, text: Query, relation: Relation, schema: pa.Schema) -> DataFrame | None:
        """Return the frame of a text's answers over parts of the files; None where these are too small for it.

        `relation` is how the text calls the log.
        """
        if sum(self.sizes) < WORTH:
            return None
        columns = pa.schema([field for field in self.schema if field.name in text])
        asked = FileQuery(in_duckdb_once(text), relation, columns, schema, self.io, MEMORY)
        parts = shares(self.paths, self.sizes, spark.sparkContext.defaultParallelism, SHARE)
        return for_each(spark, parts, asked.over, schema)


def for_each(
    spark: SparkSession, parts: Sequence[Sequence[str]], call: Callable[[Sequence[str]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:  # fmt: skip
    """Return the frame of what a call makes of each part, in a task of the executors' Python for each.

    All such work goes this way, as Spark keeps Python processes of their own for each way to ask for some.
    """

    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch["id"].to_pylist():
                yield from call(parts[place])

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(made, from_arrow_schema(schema))


def tried(job: Callable[[], Found]) -> Found | None:
    """Have the executors' Python do a job; None where one of them lacks the package, or memory: Spark goes on itself.

    Raises the error of a job that was cancelled.
    """
    try:
        return job()
    except (Py4JJavaError, PySparkException) as error:
        if "cancelled" in str(error):
            raise
        return None


def shares(files: Sequence[str], sizes: Sequence[int], cores: int, share: int) -> list[list[str]]:
    """Share files out among tasks in their order: a few tasks a core, or more of about `share` bytes.

    >>> shares(["a", "b", "c", "d"], [5, 5, 5, 5], cores=1, share=5)
    [['a'], ['b'], ['c'], ['d']]
    >>> shares(["a", "b", "c", "d"], [4, 1, 1, 6], cores=1, share=100)
    [['a'], ['b', 'c', 'd']]
    """
    tasks = max(1, min(len(files), max(3 * cores, sum(sizes) // share)))
    ends, done = [0], 0
    for place, size in enumerate(sizes, 1):
        done += size
        if done * tasks >= sum(sizes) * len(ends) or place == len(files):
            ends.append(place)
    return [list(files[start:end]) for start, end in pairwise(ends)]
