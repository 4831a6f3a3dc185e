"""Answer a query over a log's files in the executors' Python, by DuckDB: it reads them in a third of Spark's time.

Each task answers it over some of the files; whoever asks puts the answers together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyiceberg.table import FileScanTask, Table
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

MEMORY = "512MB"
"""The memory that DuckDB may take in a task; beyond it, it spills."""


def answered_by_workers(
    spark: SparkSession, lake: Lake, log: Log, where: Filter, snapshot: int | None, text: Query, relation: Relation,
    schema: pa.Schema,
) -> DataFrame | None:  # fmt: skip
    """Return the frame of a text's answers over parts of a landed log's files; None where Spark has to read these.

    `where` says which files, and `relation` how the text calls the log.
    """
    table = lake.table(log.name)
    tasks = list(table.scan(row_filter=where, snapshot_id=snapshot).plan_files())
    if sum(task.file.file_size_in_bytes for task in tasks) < WORTH or not _plain(table, log, tasks):
        return None
    columns = pa.schema([field for field in table.schema().as_arrow() if field.name in text])
    asked = FileQuery(in_duckdb_once(text), relation, columns, schema, dict(table.io.properties), MEMORY)
    cores = spark.sparkContext.defaultParallelism
    parts = shares([t.file.file_path for t in tasks], [t.file.file_size_in_bytes for t in tasks], cores, SHARE)

    def answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for files in batch["files"].to_pylist():
                yield from asked.over(files)

    listed = spark.sparkContext.parallelize([(part,) for part in parts], len(parts))
    return spark.createDataFrame(listed, "files array<string>").mapInArrow(answer, from_arrow_schema(schema))


def _plain(table: Table, log: Log, tasks: Sequence[FileScanTask]) -> bool:
    """Tell whether files hold just the rows and columns that the log declares, under these names."""
    return has_just(table, log) and len(table.schemas()) == 1 and not any(task.delete_files for task in tasks)


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
