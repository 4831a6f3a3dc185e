"""Answer SQL over a lake's tables by Spark, reading only (`tailrace.engines.duckdb.query` is the other engine)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from py4j.java_gateway import is_instance_of
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.metadata.commit_times import refusal
from tailrace.lake.read.query_views import QueryError, first_line, reading

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_READ = ("Describe", "Show", "Explain")


def by_spark(spark: SparkSession, lake: Lake, query: str, epoch: int | None = None) -> pa.Table:
    """Answer a query by Spark, on each table as it is now or as of an epoch.

    Raises `QueryError` for SQL that Spark does not take or that does more than read, and `EpochError` where a table
    has no snapshot of the epoch.
    """
    try:
        _check(spark, query)
        views, snapshots = reading(lake, query, epoch, quote="`")
        for table, snapshot in snapshots.items():
            rows = f"SELECT * FROM {lake.spark_name(table)} VERSION AS OF {snapshot}"
            spark.sql(rows).createOrReplaceTempView(table)
        for name, text in views.items():
            spark.sql(text).createOrReplaceTempView(name)
        return spark.sql(query).toArrow()
    except PySparkException as error:
        raise QueryError(refusal(str(error)) or first_line(str(error))) from None


def _check(spark: SparkSession, query: str) -> None:
    jvm: Any = spark
    plan = jvm._jsparkSession.sessionState().sqlParser().parsePlan(query)
    if _writes(jvm.sparkContext._gateway, plan):
        raise QueryError("expected a statement that reads, such as SELECT: `tailrace sql` changes nothing")


def _writes(gateway: Any, plan: Any) -> bool:
    """Tell whether a parsed statement, or one inside it, is a command or an insert."""
    name = str(plan.getClass().getSimpleName())
    if name.startswith(_READ):
        return False
    acts = any(is_instance_of(gateway, plan, f"{_LOGICAL}.{kind}") for kind in ("Command", "ParsedStatement"))
    children = plan.children()
    return acts or any(_writes(gateway, children.apply(place)) for place in range(children.size()))
