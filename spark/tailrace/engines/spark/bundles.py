"""The records of a bundle in the forms that Spark takes: a frame, files beside a frame, or an Arrow table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.protocol import BundleRecords
from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.engines.spark.workers.worker_queries import LogFiles


@dataclass(frozen=True)
class FiledRecords:
    """The records of a bundle as a Spark frame, and the log's files that hold them, for the executors' Python."""

    frame: DataFrame
    files: LogFiles

    def toArrow(self) -> pa.Table:  # noqa: N802
        """Bring the records into this process."""
        return self.frame.toArrow()


def as_frame(spark: SparkSession, rows: BundleRecords) -> DataFrame:
    """Convert a bundle of either engine to a Spark frame."""
    if isinstance(rows, FiledRecords):
        return rows.frame
    return rows if isinstance(rows, DataFrame) else frame_of(spark, rows)
