"""Move rows between this process and Spark, without losing rows and without filling the driver's heap."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

_TOO_LARGE = "spark.driver.maxResultSize"
"""The setting whose name is in Spark's error message if a job's results are larger than the driver accepts."""


def arrow_of(frame: DataFrame) -> pa.Table | None:
    """Compute a data frame and fetch its rows as an Arrow table.

    Returns None if the rows are larger than the driver accepts from one job.
    """
    try:
        return frame.toArrow()
    except (Py4JJavaError, PySparkException) as error:
        if _TOO_LARGE in str(error):
            return None
        raise


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Convert an Arrow table to a Spark data frame.

    PySpark drops the rows that follow two empty chunks, or an empty chunk that is not the table's first chunk. PySpark
    also fails on a table without chunks. Therefore only chunks with rows, or a single empty chunk, are passed to
    PySpark.
    """
    full = [batch for batch in rows.to_batches() if batch.num_rows]
    return spark.createDataFrame(pa.Table.from_batches(full, rows.schema) if full else rows.schema.empty_table())
