"""Move rows between this process and Spark. No row is lost, and the driver's heap does not overflow."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

_TOO_LARGE = "spark.driver.maxResultSize"
"""The setting that Spark names in the error for results that are larger than the driver accepts."""


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

    PySpark drops the rows after two empty chunks, or after an empty chunk that is not the first chunk. It fails on a
    table without chunks. So PySpark gets only chunks that have rows, or a single empty chunk.
    """
    full = [batch for batch in rows.to_batches() if batch.num_rows]
    return spark.createDataFrame(pa.Table.from_batches(full, rows.schema) if full else rows.schema.empty_table())
