"""Land an epoch's files by the executors' Python: pyarrow reads and writes plain files at a quarter of Spark's cost.

One pass over the source is enough (`landing_task`), where Spark needs one for the progress and one for each reader.
Lines that are not plain (`plain_files`) are left to Spark; if a Parquet file is not plain, Spark reads the whole epoch.
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
from tailrace.ingest.landing_task import LandedPart, LandingTask
from tailrace.ingest.parsing import read_left
from tailrace.ingest.partitions import latest_in, merge_seen
from tailrace.ingest.sources import Files, SizeLookup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_names import declared_types
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import Seen
from tailrace.sql.terms import quoted

PART = 64 * 2**20
"""The bytes of files for each task, if there are enough for each core."""

LARGEST = {"json": 256 * 2**20, "parquet": 2**30}
"""The maximum size of a file for one task, by format: Spark divides a larger file among several tasks."""

RESTS = 16
"""The number of epochs that Spark reads after an epoch that was not plain, or if the executors lack Python."""


@dataclass(frozen=True)
class LandedEpoch:
    """An epoch that the executors' Python has written: its files, its records in them, and their latest times."""

    landed: LandedFiles
    records: FiledRecords
    seen: Mapping[str, Seen]
    blank: int


class WorkerLanding:
    """Lands one log's epochs by the executors' Python."""

    def __init__(self, spark: SparkSession, lake: Lake, source: Files, log: Log) -> None:
        self.spark, self.lake, self.source, self.log = spark, lake, source, log
        self._rests = 0

    def land(self, files: Sequence[str], sized: SizeLookup, epoch: int, *, large: bool = False) -> LandedEpoch | None:
        """Read an epoch's files, whose sizes `sized` returns, and write their records; None if Spark has to do it.

        `large` says that small files hold many records, so workers pay off. If one task fails, the files of the other
        tasks are in no commit, and maintenance deletes them.
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

    def _made(self, task: LandingTask, parts: Sequence[Sequence[str]]) -> list[LandedPart] | None:
        """Have the executors land their parts of the files; None if one of them could not."""
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

    def _judged(self, parts: Sequence[LandedPart], epoch: int) -> LandedEpoch:
        """Merge the parts, after Spark has judged the lines that are not plain."""
        files, seen = tuple(file for part in parts for file in part.files), [part.seen for part in parts]
        records, bad = sum(part.records for part in parts), None
        left = pa.concat_tables([part.left for part in parts])
        if left.num_rows:
            rows = read_left(self.spark, self.log, left).toArrow()
            rows = rows.append_column("_epoch", pa.repeat(pa.scalar(epoch, pa.int64()), rows.num_rows))
            good = rows.filter(pc.is_null(rows["_error"])).select([*log_contract(self.log).columns])
            bad = rows.filter(pc.is_valid(rows["_error"]))
            files += tuple(self.lake.write_files(self.log.name, good))
            records += good.num_rows
            seen.append(latest_in(self.log, good))
        landed = LandedFiles(files, records, bad)
        frame = self._frame(files).withColumn("_epoch", F.lit(epoch).cast("bigint"))
        filed = FiledRecords(frame, LogFiles.of(self.lake.table(self.log.name), files))
        return LandedEpoch(landed, filed, merge_seen(seen), sum(part.blank for part in parts))

    def _frame(self, files: Sequence[DataFile]) -> DataFrame:
        columns = declared_types(self.log)
        schema = schema_of(columns)
        if not files:
            return empty_frame(self.spark, schema)
        # Files that Python writes use today's calendar for all times; without this option Spark would not trust them.
        reader = self.spark.read.schema(schema).option("datetimeRebaseMode", "CORRECTED")
        # Spark takes partition columns from the folders' names, but the log has no such columns.
        return reader.parquet(*(file.file_path for file in files)).select(*map(quoted, columns))
