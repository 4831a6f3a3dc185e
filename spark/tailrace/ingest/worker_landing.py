"""Land an epoch's files by the executors' Python: pyarrow reads and writes plain files at a quarter of Spark's cost.

One pass over the source does all (`landing_task`), where Spark's way takes one for the progress and one for each
reader. What is not plain (`plain_files`) is Spark's to judge: odd lines are handed back to it, and one odd Parquet file
leaves it the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.choose import WORTH
from tailrace.engines.spark.bundles import FiledRecords
from tailrace.engines.spark.executions.preparation import empty_frame, schema_of
from tailrace.engines.spark.workers.python_tasks import files_in_parts, results
from tailrace.engines.spark.workers.worker_queries import LogFiles
from tailrace.ingest.landing import LandedFiles
from tailrace.ingest.landing_task import LandingTask, Part
from tailrace.ingest.parsing import read_left
from tailrace.ingest.partitions import joined, latest_in
from tailrace.ingest.sources import Files, Sized
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import declared_types
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import Seen
from tailrace.sql.terms import quoted

PART = 64 * 2**20
"""The bytes of files that a task is given, where there are so many for each core."""

LARGEST = {"json": 256 * 2**20, "parquet": 2**30}
"""The bytes of one file that a task still takes: Spark shares a larger one out among several."""

RESTS = 16
"""The number of epochs for which Spark reads by itself once an epoch was not plain, or its executors lack Python."""


@dataclass(frozen=True)
class ByWorkers:
    """An epoch that the executors' Python has read and written: its files, its records in them, how far they go."""

    landed: LandedFiles
    records: FiledRecords
    seen: Mapping[str, Seen]
    blank: int


class WorkerLanding:
    """The landing of one log's epochs by the executors' Python."""

    def __init__(self, spark: SparkSession, lake: Lake, source: Files, log: Log) -> None:
        self.spark, self.lake, self.source, self.log = spark, lake, source, log
        self._rests = 0

    def land(self, files: Sequence[str], sized: Sized, epoch: int, *, large: bool = False) -> ByWorkers | None:
        """Read an epoch's files, of the sizes that `sized` returns, and write their records; None where Spark has to.

        Files that are `large` once they are read are worth it, however small they are. What tasks wrote beside one that
        failed no commit lists, and maintenance deletes it.
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
        return self._judged(made, epoch)

    def _made(self, task: LandingTask, parts: Sequence[Sequence[str]]) -> list[Part] | None:
        """Have the executors take their parts of the files; None where one could not."""
        made = results(self.spark, parts, task.land)
        if made is None:
            return None
        whole = [part for part in made if part is not None]
        if len(whole) == len(made):
            return whole
        store = self.lake.table(self.log.name).io
        for file in (file for part in whole for file in part.files):
            store.delete(file.file_path)
        return None

    def _judged(self, parts: Sequence[Part], epoch: int) -> ByWorkers:
        """Put the parts together, once Spark has judged the lines that are not plain."""
        files, seen = tuple(file for part in parts for file in part.files), [part.seen for part in parts]
        records, bad = sum(part.records for part in parts), None
        left = pa.concat_tables([part.left for part in parts])
        if left.num_rows:
            rows = read_left(self.spark, self.log, left).toArrow()
            rows = rows.append_column("_epoch", pa.repeat(pa.scalar(epoch, pa.int64()), rows.num_rows))
            good = rows.filter(pc.is_null(rows["_error"])).select([*log_contract(self.log).columns])
            bad = rows.filter(pc.is_valid(rows["_error"]))
            files += tuple(self.lake.written(self.log.name, good))
            records += good.num_rows
            seen.append(latest_in(self.log, good))
        landed = LandedFiles(files, records, bad)
        frame = self._frame(files).withColumn("_epoch", F.lit(epoch).cast("bigint"))
        filed = FiledRecords(frame, LogFiles.of(self.lake.table(self.log.name), files))
        return ByWorkers(landed, filed, joined(seen), sum(part.blank for part in parts))

    def _frame(self, files: Sequence[DataFile]) -> DataFrame:
        columns = declared_types(self.log)
        schema = schema_of(columns)
        if not files:
            return empty_frame(self.spark, schema)
        # What Python writes has today's calendar for all times; of files of others Spark would ask.
        reader = self.spark.read.schema(schema).option("datetimeRebaseMode", "CORRECTED")
        # The names of folders say the partitions, which are no columns of the log.
        return reader.parquet(*(file.file_path for file in files)).select(*map(quoted, columns))
