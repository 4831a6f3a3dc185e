"""Land an epoch's files with Python on the executors.

pyarrow reads and writes plain files at a quarter of Spark's cost. Python needs only one pass over the source
(`landing_task`). Spark needs one pass to find the latest times of the records, and one pass for each reader of the
records. If a file is not plain (`plain_files`), Spark reads the whole epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.choose import WORTH
from tailrace.engines.spark.bundles import FiledRecords
from tailrace.engines.spark.executions.preparation import empty_frame, schema_of
from tailrace.engines.spark.workers.python_tasks import call_results, files_in_parts
from tailrace.engines.spark.workers.worker_queries import LogFiles
from tailrace.ingest.landing_task import LandedPart, LandingTask
from tailrace.ingest.process_landing import RESTS, LandedRecords, merge_parts
from tailrace.ingest.sources import Files, SizeLookup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import declared_types
from tailrace.model.logs.log import Log
from tailrace.sql.terms import quoted

PART = 64 * 2**20
"""The number of bytes of files that one task reads, if there are enough files for all cores."""

LARGEST = {"json": 256 * 2**20, "csv": 256 * 2**20, "parquet": 2**30, "avro": 2**30}
"""The maximum size in bytes of a file that one task reads, by format.

Spark can divide a larger file among several tasks.
"""


class WorkerLanding:
    """An object that lands the epochs of a log with Python on the executors."""

    def __init__(self, spark: SparkSession, lake: Lake, source: Files, log: Log) -> None:
        self.spark, self.lake, self.source, self.log = spark, lake, source, log
        self._rests = 0

    def land(self, files: Sequence[str], sized: SizeLookup, epoch: int, *, large: bool = False) -> LandedRecords | None:
        """Read an epoch's files and write their records to data files; return None if Spark must land the epoch.

        `sized` returns the sizes of the files. `large` is True if the files contain many records although the files are
        small, so that using the executors is worthwhile. If a task fails, no commit contains the data files that the
        other tasks have written, and maintenance deletes these data files later.
        """
        if self._rests:
            self._rests -= 1
            return None
        found = sized()
        if not files or (sum(found) < WORTH and not large) or max(found) > LARGEST[self.source.format]:
            return None
        task = LandingTask.of(self.lake, self.log, self.source.format, epoch)
        parts = files_in_parts(files, found, self.spark.sparkContext.defaultParallelism, PART)
        made = None if task is None else self._made(task, parts)
        if made is None:
            self._rests = RESTS
            return None
        return merge_parts(self.log, made, epoch)

    def _made(self, task: LandingTask, parts: Sequence[Sequence[str]]) -> list[LandedPart] | None:
        """Run the task on the executors, once for each part of the files; return None if a part could not be landed."""
        made = call_results(self.spark, parts, partial(_land_alone, task))
        if made is None:
            return None
        whole = [part for part in made if part is not None]
        if len(whole) == len(made):
            return whole
        store = self.lake.table(self.log.name).io
        for file in (file for part in whole for file in part.files):
            store.delete(file.file_path)
        return None


def _land_alone(task: LandingTask, paths: Sequence[str]) -> LandedPart | None:
    """Land files in a Python worker of an executor, which has one core."""
    pa.set_cpu_count(1)
    return task.land(paths)


def filed_records(spark: SparkSession, lake: Lake, log: Log, files: Sequence[DataFile], epoch: int) -> FiledRecords:
    """Return the records of an epoch in data files in the form in which definitions on Spark read them."""
    frame = _frame(spark, log, files).withColumn("_epoch", F.lit(epoch).cast("bigint"))
    return FiledRecords(frame, LogFiles.of(lake.table(log.name), files))


def _frame(spark: SparkSession, log: Log, files: Sequence[DataFile]) -> DataFrame:
    columns = declared_types(log)
    schema = schema_of(columns)
    if not files:
        return empty_frame(spark, schema)
    # Files that Python writes use the proleptic Gregorian calendar for all times. Without this option, Spark would not
    # assume this calendar.
    reader = spark.read.schema(schema).option("datetimeRebaseMode", "CORRECTED")
    # Select only the log's columns: Spark adds further columns, derived from the names of partition folders (such as
    # `day=1`).
    return reader.parquet(*(file.file_path for file in files)).select(*map(quoted, columns))
