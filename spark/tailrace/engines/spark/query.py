"""Run a user's query over the lake's tables on Spark. `tailrace.engines.duckdb.query` does the same on DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.engines.spark.allowed_sql import check
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.metadata.commit_times import explain_refusal
from tailrace.lake.read.query_views import QueryError, first_line, plan_reading, tables

_TAKEN_AS_WRITTEN = {"spark.sql.variable.substitute": "false", "spark.sql.runSQLOnFiles": "false"}
"""The settings that make Spark run a query exactly as it is written.

Spark then replaces no variables in the query, and does not read a path as a table.
"""


def by_spark(spark: SparkSession, lake: Lake, query: str, epoch: int | None = None) -> pa.Table:
    """Run a query on Spark and return its rows. Tables are read as they are now, or as they were after `epoch`.

    Raises `QueryError` if Spark refuses the SQL or if the query does more than read. Raises `EpochError` if a table has
    no snapshot of the epoch.
    """
    try:
        with _settings(spark):
            views, snapshots = plan_reading(lake, query, epoch, quote="`")
            # If an epoch is given, table names with a namespace are refused: for such a name, Spark would read the
            # table's current state instead of its state at the epoch.
            check(spark, lake, query, [*tables(lake), *views], bare=epoch is not None)
            for table, snapshot in snapshots.items():
                rows = f"SELECT * FROM {lake.spark_name(table)} VERSION AS OF {snapshot}"
                spark.sql(rows).createOrReplaceTempView(table)
            for name, text in views.items():
                spark.sql(text).createOrReplaceTempView(name)
            return spark.sql(query).toArrow()
    except PySparkException as error:
        raise QueryError(explain_refusal(str(error)) or first_line(str(error))) from None


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in _TAKEN_AS_WRITTEN}
    try:
        for name, value in _TAKEN_AS_WRITTEN.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
