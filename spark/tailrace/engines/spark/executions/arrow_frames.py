"""Make a Spark frame of an Arrow table, with all of its rows."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Make a Spark frame of an Arrow table.

    PySpark drops the rows that follow two empty chunks, or one that is not the first, and fails at a table of no chunk;
    so it is given full ones, or a single one that is empty.
    """
    full = [batch for batch in rows.to_batches() if batch.num_rows]
    return spark.createDataFrame(pa.Table.from_batches(full, rows.schema) if full else rows.schema.empty_table())
