"""Move rows between this process and Spark, without losing a row and without exceeding the driver's heap."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

_TOO_LARGE = "spark.driver.maxResultSize"
"""The setting in Spark's error about results that are more than the driver takes."""


def arrow_of(frame: DataFrame) -> pa.Table | None:
    """Compute a frame and bring its rows here; None where they are more than the driver takes from one job."""
    try:
        return frame.toArrow()
    except (Py4JJavaError, PySparkException) as error:
        if _TOO_LARGE in str(error):
            return None
        raise


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Make a Spark frame of an Arrow table.

    PySpark drops the rows after two empty chunks, or after an empty chunk that is not the first, and fails on a table
    without chunks. So it gets only full chunks, or one empty chunk.
    """
    full = [batch for batch in rows.to_batches() if batch.num_rows]
    return spark.createDataFrame(pa.Table.from_batches(full, rows.schema) if full else rows.schema.empty_table())
