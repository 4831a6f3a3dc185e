"""The records of a bundle as either engine has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.spark.workers.arrow_frames import frame_of
from tailrace.engines.spark.workers.worker_queries import LogFiles


@dataclass(frozen=True)
class FiledRecords:
    """A bundle's records in files of a log, which executors' Python may read, and as a Spark frame."""

    frame: DataFrame
    files: LogFiles


Bundled: TypeAlias = DataFrame | FiledRecords | pa.Table
"""A bundle's records: a Spark frame, files beside it, or an Arrow table in this process."""


def as_frame(spark: SparkSession, rows: Bundled) -> DataFrame:
    """Convert records of either engine to a Spark frame."""
    if isinstance(rows, FiledRecords):
        return rows.frame
    return frame_of(spark, rows) if isinstance(rows, pa.Table) else rows
