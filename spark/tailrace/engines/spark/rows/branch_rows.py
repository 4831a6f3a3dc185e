"""Read a table's rows at a snapshot, and append rows to a writer's branch of a table (rule X2).

The commit that appends the rows sets properties of the new snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.lake.catalog.lake import PREFIX, Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.column_names import current_columns

_TRIES = 10
"""The maximum number of attempts to write to a branch.

An attempt is repeated if a commit to another branch of the table conflicts with the write.
"""

_OVERTAKEN = "older than last sequence number"
"""A part of a REST catalog's error message if a commit to another branch of the table came first."""

T = TypeVar("T")


def append(rows: DataFrame, branch: Branch, properties: Mapping[str, str], *, at_once: bool = False) -> None:
    """Append rows to a branch in one commit. `properties` become properties of the new snapshot.

    By default, a task sorts its rows by partition and by the table's sort order, so the task has only one file open at
    a time. If `at_once` is true, a task writes rows in the order in which the rows arrive, with one open file per
    partition. The task then saves the time for sorting, which is half of the time for writing many rows.
    """
    writer = rows.writeTo(branch.open_for_spark()).option("fanout-enabled", str(at_once).lower())
    if at_once:
        writer = writer.option("use-table-distribution-and-ordering", "false")
    for name, value in properties.items():
        writer = writer.option(f"snapshot-property.{PREFIX}{name}", value)
    beside_others(writer.append)


def beside_others(write: Callable[[], T]) -> T:
    """Call a function that writes to a branch of a table. Repeat the call if a commit to another branch came first.

    Returns the function's result. Iceberg itself retries such a write, unless a REST catalog refuses the commit with
    status 400.
    """
    for left in reversed(range(_TRIES)):
        try:
            return write()
        except (PySparkException, Py4JJavaError) as error:
            if not left or _OVERTAKEN not in str(error):
                raise
    raise AssertionError("the last try returns or raises")


def as_of_snapshot(spark: SparkSession, lake: Lake, table: str, snapshot: int | None) -> DataFrame:
    """Read a table's rows at a snapshot."""
    reader = spark.read.format("iceberg").option("versionAsOf", snapshot or 0)
    rows = reader.load(lake.identifier(table))
    items = None if snapshot is None else current_columns(lake.table(table), snapshot)
    return rows if items is None else rows.selectExpr(*items)
