"""Read a table's rows as of a snapshot, and append rows to a writer's branch in a commit with properties (X2)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from tailrace.lake.catalog.lake import PREFIX, Lake
from tailrace.lake.commit.branch import Branch


def append(rows: DataFrame, branch: Branch, properties: Mapping[str, str]) -> None:
    """Append rows to a branch, with `properties` among the snapshot's."""
    writer = rows.writeTo(branch.target)
    for name, value in properties.items():
        writer = writer.option(f"snapshot-property.{PREFIX}{name}", value)
    writer.append()


def as_of_snapshot(spark: SparkSession, lake: Lake, table: str, snapshot: int | None) -> DataFrame:
    """Read a table's rows as of a snapshot, whatever is committed meanwhile."""
    reader = spark.read.format("iceberg").option("versionAsOf", snapshot or 0)
    return reader.load(lake.identifier(table))
