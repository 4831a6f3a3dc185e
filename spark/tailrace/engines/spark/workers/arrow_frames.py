"""Take rows over from this process to Spark, and back: no row is lost, and the driver's heap is not exceeded."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

_TOO_LARGE = "spark.driver.maxResultSize"
"""The setting that Spark's error names where results are more than the driver takes."""


def arrow_of(frame: DataFrame) -> pa.Table | None:
    """Compute a frame, and bring its rows over; None where they are more than the driver takes of one job."""
    try:
        return frame.toArrow()
    except (Py4JJavaError, PySparkException) as error:
        if _TOO_LARGE in str(error):
            return None
        raise


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Make a Spark frame of an Arrow table.

    PySpark drops the rows that follow two empty chunks, or one that is not the first, and fails at a table of no chunk;
    so it is given full ones, or a single one that is empty.
    """
    full = [batch for batch in rows.to_batches() if batch.num_rows]
    return spark.createDataFrame(pa.Table.from_batches(full, rows.schema) if full else rows.schema.empty_table())
