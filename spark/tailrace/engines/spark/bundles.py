"""The records of a bundle in the forms that Spark can read: a data frame, log files, or an Arrow table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.protocol import BundleRecords, RecordFiles
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.engines.spark.workers.worker_queries import LogFiles


@dataclass(frozen=True)
class FiledRecords:
    """The records of a bundle as a Spark data frame, and the log files that contain the same records.

    Python workers on the executors can read these files directly, without the data frame.
    """

    frame: DataFrame
    files: LogFiles

    def toArrow(self) -> pa.Table:  # noqa: N802
        """Collect the records into an Arrow table in this process."""
        return self.frame.toArrow()


def as_frame(spark: SparkSession, rows: BundleRecords) -> DataFrame:
    """Return a bundle's records as a Spark data frame. An Arrow table is converted."""
    if isinstance(rows, RecordFiles):
        rows = rows.on_spark()
    if isinstance(rows, FiledRecords):
        return rows.frame
    return rows if isinstance(rows, DataFrame) else frame_of(spark, rows)
