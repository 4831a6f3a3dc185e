"""The hand-written job of one interval, as `spark-submit` is given it: pyspark alone, nothing of Tailrace.

Reads the interval of the landed log, aggregates it, and overwrites that range of the result table.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main(first: str, last: str, window: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    start, end = (F.lit(bound).cast("timestamp") for bound in (first, last))
    views = spark.table("views").where((F.col("viewed_at") >= start) & (F.col("viewed_at") < end))
    totals = (
        views.groupBy(F.window("viewed_at", window), "advertiser")
        .agg(F.sum("price").alias("total"), F.count(F.lit(1)).alias("views"))
        .selectExpr("advertiser", "window.start AS window_start", "window.end AS window_end", "total", "views")
    )
    within = (F.col("window_start") >= start) & (F.col("window_start") < end)
    totals.writeTo("totals_by_interval").overwrite(within)


if __name__ == "__main__":
    main(*sys.argv[1:])
