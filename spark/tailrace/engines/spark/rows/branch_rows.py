"""Read a table's rows at a snapshot, and append rows to a writer's branch in a commit with properties (X2)."""

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
"""The maximum number of tries of a write that collides with commits to other branches."""

_OVERTAKEN = "older than last sequence number"
"""The words with which a REST catalog refuses a commit after a commit to another branch."""

T = TypeVar("T")


def append(rows: DataFrame, branch: Branch, properties: Mapping[str, str], *, at_once: bool = False) -> None:
    """Append rows to a branch, with `properties` among the snapshot's.

    A task sorts its rows by partition and the table's order, and so has one file open at a time. With `at_once` it
    writes rows as they come, with a file open for each partition: sorting takes half the time of writing many rows.
    """
    writer = rows.writeTo(branch.open_for_spark()).option("fanout-enabled", str(at_once).lower())
    if at_once:
        writer = writer.option("use-table-distribution-and-ordering", "false")
    for name, value in properties.items():
        writer = writer.option(f"snapshot-property.{PREFIX}{name}", value)
    beside_others(writer.append)


def beside_others(write: Callable[[], T]) -> T:
    """Write to a branch, and again if another branch of the table got a commit meanwhile; return the result.

    Iceberg itself tries again, except where a REST catalog refuses such a commit with status 400.
    """
    for left in reversed(range(_TRIES)):
        try:
            return write()
        except (PySparkException, Py4JJavaError) as error:
            if not left or _OVERTAKEN not in str(error):
                raise
    raise AssertionError("the last try returns or raises")


def as_of_snapshot(spark: SparkSession, lake: Lake, table: str, snapshot: int | None) -> DataFrame:
    """Read a table's rows as of a snapshot."""
    reader = spark.read.format("iceberg").option("versionAsOf", snapshot or 0)
    rows = reader.load(lake.identifier(table))
    items = None if snapshot is None else current_columns(lake.table(table), snapshot)
    return rows if items is None else rows.selectExpr(*items)
