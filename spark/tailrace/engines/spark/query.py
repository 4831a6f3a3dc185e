"""Answer a person's query over the lake's tables on Spark (on DuckDB: `tailrace.engines.duckdb.query`)."""

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
"""The settings that make Spark run a query exactly as it is written: no variables are replaced, and no path is a
table.
"""


def by_spark(spark: SparkSession, lake: Lake, query: str, epoch: int | None = None) -> pa.Table:
    """Answer a query on Spark. The query reads each table as it is now, or as it was at `epoch` if that is given.

    Raises `QueryError` if Spark refuses the SQL or if the query does more than read. Raises `EpochError` if a table has
    no snapshot of the epoch.
    """
    try:
        with _settings(spark):
            views, snapshots = plan_reading(lake, query, epoch, quote="`")
            # For a query at an epoch, names with a namespace are refused, because Spark would read the present state of
            # a table that is named with its namespace.
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
