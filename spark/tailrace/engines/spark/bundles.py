"""The records of a bundle in the forms that Spark can read: a data frame, log files, or an Arrow table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.protocol import BundleRecords
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.engines.spark.workers.worker_queries import LogFiles


@dataclass(frozen=True)
class FiledRecords:
    """The records of a bundle as a Spark data frame, and the log files that hold the same records.

    The executors' Python can read the files without the frame.
    """

    frame: DataFrame
    files: LogFiles

    def toArrow(self) -> pa.Table:  # noqa: N802
        """Collect the records into an Arrow table in this process."""
        return self.frame.toArrow()


def as_frame(spark: SparkSession, rows: BundleRecords) -> DataFrame:
    """Convert the records of a bundle to a Spark data frame, whether DuckDB or Spark has read them."""
    if isinstance(rows, FiledRecords):
        return rows.frame
    return rows if isinstance(rows, DataFrame) else frame_of(spark, rows)
