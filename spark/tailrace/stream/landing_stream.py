"""The stream that lands records: a Structured Streaming query in which every micro-batch is an epoch (rules X1 to X3).

In an epoch, the records are written to the logs and folded into each definition. Then the logs are published, and after
the logs the ledgers. Three threads work at the same time, usually on different epochs. The caller's thread (`wait`)
checks for failures, and starts epochs without records:

    thread       epoch 7                         epoch 8                         epoch 9
    the query's  read, land, publish the logs    read, land, publish the logs    ...
    folding            fold ......... publish the ledgers, report   fold ......... publish the ledgers
    following                                          update the answers .......

Folding starts as soon as the records have been read, and its results are published after the logs have been published.
After the logs have been published, the epoch can be folded from the logs if a process dies. The query waits if folding
is two epochs behind. Folding waits if the answers tables are as far behind as is allowed (`fold.follower_pace`). After
a crash at any point, all epochs that the ledgers lack are first folded from the logs, with the recorded clocks. If the
query repeats a micro-batch that the logs already have, the micro-batch is skipped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import duckdb
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.fold.fold import Phases
from tailrace.fold.fold_group import FoldGroup
from tailrace.fold.streamed_definitions import StreamError, landed_logs
from tailrace.fold.task_thread import TaskThread
from tailrace.ingest.checkpoint import CheckpointError
from tailrace.ingest.parsing import WITHOUT_CHECKSUMS
from tailrace.ingest.row_landing import LandedCounts
from tailrace.ingest.sources import Files, Source
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.migration import fit_log, widen
from tailrace.lake.commit.epoch_properties import OFFSET
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.model.base.errors import TailraceError
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.stream.checkpoint_repair import renew_checkpoint, take_checkpoint
from tailrace.stream.cut import Cut, Cutter
from tailrace.stream.epoch import Epoch
from tailrace.stream.epoch_report import EpochReport, Watch
from tailrace.stream.failures import explained
from tailrace.stream.log_sources import sources_of
from tailrace.stream.lost_sources import LostSources

_POLL = 0.2
"""The number of seconds between two checks whether the folding thread has failed."""

_LOCAL_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    **WITHOUT_CHECKSUMS,
}
"""The settings with which a query writes its checkpoint to a local disk.

The checkpoint manager only renames files, which takes almost no time on a local disk, so an empty micro-batch takes
half the time. Without checksum files, half as many files are written, and Hadoop starts half as many processes that run
`chmod`. The commits of the logs also record the query's positions, so the stream rebuilds a damaged checkpoint.
"""

_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"

PULSE = 1.0
"""The number of seconds between two checks whether an epoch without records is needed, as long as no records arrive."""


class Stream:
    """A stream that writes logs from their sources, and folds the logs into the definitions that read them.

    If the definitions read a single log, `source` is the source of this log. If the definitions read several logs,
    `source` maps the name of each log to the log's source.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        pipelines: Sequence[Definition],
        source: Source | Mapping[str, Source],
        *,
        follow_every: int | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.spark, self.lake, self.watch = spark, lake, watch
        self.logs = {log.name: log for log in landed_logs(pipelines)}
        self.sources = sources_of(pipelines, source)
        self.query: StreamingQuery | None = None
        self._lock = threading.Lock()
        self._stopped = self._once = self._pausing = False
        self._every = 0.0
        self._failure: BaseException | None = None
        self._query_id = ""
        self._folding = TaskThread("folding", room=2)
        for stage in (stage for definition in pipelines for stage in chain(definition)):
            # Add new columns to the tables before any lease is taken: a definition that cannot run must not stop
            # another running stream.
            widen(lake, stage)
        for log in self.logs.values():
            fit_log(lake, log)
        self.cutter = Cutter(spark, lake, self.logs, self.sources)
        self.lost = LostSources(self.cutter)
        self.checkpoint, self.mended = take_checkpoint(spark, self.cutter.landings, self.sources)
        # Pass the lease of the first log to the folds. If a fold loses its own lease, but the stream still holds the
        # lease of the first log, the fold can conclude that another process has taken over only this fold.
        self.folds = FoldGroup(spark, lake, pipelines, follow_every=follow_every, landing=self.cutter.first.log)
        stages = [fold.definition for fold in self.folds]
        self._signals = any(tables_of(stage).signals for stage in stages)
        self.cutter.open(self.folds, signals=self._signals)
        self._started = self._ended = self._looked = time.perf_counter()

    @property
    def epoch(self) -> int:
        """The number of the last epoch in the logs; -1 before the first epoch."""
        return self.cutter.epoch

    def start(self, *, once: bool = False, every: float = 0.0, stop: Callable[[], object] = lambda: False) -> None:
        """Fold the epochs that are in the logs but not in the ledgers, then start the query.

        `stop` is called after each epoch that is folded from the logs; if `stop` returns true, the query is not
        started. If `once` is True, the stream ends after it has read all records of its sources. Otherwise, a new epoch
        starts every `every` seconds as long as records arrive.
        """
        self._once, self._every = once, every
        self.cutter.align()
        for one in self.folds.missed_epochs(self.cutter.epoch):
            self._report(EpochReport.of_missed(one))
            if stop():
                return
        # Limit the number of tasks that list files. With the default limit, Spark would list each file of a large epoch
        # in a separate task.
        self.spark.conf.set(_LISTING, str(4 * self.spark.sparkContext.defaultParallelism))
        self._begin()

    def _begin(self) -> None:
        """Start the query that reads the active sources."""
        writer = self.cutter.stream.writeStream.foreachBatch(self._epoch)
        name = f"tailrace_{'_'.join(self.logs)}"
        writer = writer.option("checkpointLocation", self.checkpoint.folder).queryName(name)
        every = f"{self._every} seconds"
        writer = writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=every)
        self._started = self._ended = time.perf_counter()
        self.cutter.looks.begin(self.checkpoint, self.cutter.active)
        # The query keeps the settings that its session has at its start. The session itself must not keep them: Iceberg
        # cannot read tables without checksums of Hadoop.
        folder = self.checkpoint.folder
        settings = _LOCAL_CHECKPOINT if "://" not in folder or folder.startswith("file:") else {}
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        try:
            self.query = writer.start()
        except (PySparkException, Py4JJavaError) as error:
            raise self._explained(error) from error
        finally:
            for name in settings:
                self.spark.conf.unset(name)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most `seconds` until the query has ended; return True if it has ended.

        If the query has failed, its error is raised.
        """
        if self.query is None:
            return True
        until = None if seconds is None else time.perf_counter() + seconds
        while not self._awaited(_POLL if until is None else max(0.01, min(_POLL, until - time.perf_counter()))):
            if self._folding.failure is not None:
                # If no records arrive, the query runs no epoch in which it would notice the failure of the folding
                # thread. So the query is stopped here.
                self.query.stop()
                raise self._folding.failure
            try:
                self._pulse()
                self._read_returned()
            except BaseException:
                self.query.stop()
                raise
            if until is not None and time.perf_counter() >= until:
                return False
        self._settle()
        if self._once:
            self.cutter.looks.settle()
            if self.lost.reasons:
                raise StreamError(
                    f"{'; '.join(self.lost.reasons.values())}: the other logs were read to their end, and nothing is "
                    "lost; start the stream again once it is mended"
                )
            # After the last records, run epochs without new records: they apply new rows that users added to the
            # control tables, and process records that computations fed back.
            while self._last_epochs():
                self._settle()
        return True

    def stop(self) -> None:
        """Stop at an epoch boundary: an epoch that has started is finished first."""
        with self._lock:
            self._stopped = True
        # The lock must be released here: stopping the query waits for the query's thread, which may wait for the lock
        # to start an epoch.
        if self.query is not None:
            self.query.stop()
        self._settle()

    def close(self) -> None:
        """Update the answers tables to the state of the ledgers, close the folds, and remove the branches of the
        logs.
        """
        self._folding.close()
        self.folds.close()
        self.cutter.close()

    def _settle(self) -> None:
        self._folding.settle()
        self.folds.settle()

    def _awaited(self, seconds: float) -> bool:
        assert self.query is not None
        try:
            # PySpark declares the time-out as a whole number of seconds, but accepts any number.
            return bool(self.query.awaitTermination(seconds))  # type: ignore[arg-type]
        except (PySparkException, Py4JJavaError) as error:
            failure = error if self._failure is None else self._failure
            if self.lost.lose(failure):
                self._begin_again()
                return False
            if self._failure is not None and not isinstance(self._failure, Py4JJavaError):
                raise self._failure from None
            raise self._explained(self._failure or error) from error

    def _read_returned(self) -> None:
        """Resume reading the sources that could not be read for some time and can be reached again."""
        if self._once or self.query is None or not (logs := self.lost.returned()):
            return
        with self._lock:
            self._pausing = True
        self.query.stop()
        self._pausing = False
        self.lost.take_back(logs)
        self._begin_again()

    def _begin_again(self) -> None:
        """Start a new query on the active sources, from the positions that the logs' commits record."""
        self._folding.settle()
        self._failure = None
        landings = {name: self.cutter.landings[name] for name in self.cutter.active}
        renew_checkpoint(self.spark, self.checkpoint, landings, self.sources)
        self.cutter.open(self.folds, signals=self._signals)
        self._begin()

    def _epoch(self, batch: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._stopped or self._pausing or self._failure is not None:
                raise StreamError("the stream was stopped before this epoch")
            try:
                # Skip a micro-batch that the logs already have: it was landed before a crash, and its epoch has already
                # been folded from the logs.
                if batch_id > self.cutter.batch:
                    self._land(batch, batch_id)
            except BaseException as error:
                self._failure = self._explained(error) if isinstance(error, CheckpointError | duckdb.Error) else error
                raise

    def _pulse(self) -> None:
        """Run an epoch without records if no records arrive, but time or a new row of a control table requires one.

        Without such an epoch, start the updates of answers that are overdue.
        """
        now = time.perf_counter()
        if self._once or not self._folding.idle:
            return
        if now - max(self._looked, self._started) < PULSE and not self.folds.in_flight:
            return
        # If the lock is not free, an epoch is being landed, so no epoch without records is needed.
        if self._lock.acquire(blocking=False):
            try:
                if not self._stopped and self._failure is None and not self._without_records(self.folds.due):
                    self.folds.follow_idly()
            except BaseException as error:
                self._failure = error
                raise
            finally:
                self._lock.release()
                self._looked = time.perf_counter()

    def _last_epochs(self) -> bool:
        """After the end of the input, run an epoch without records if one is needed; return True if an epoch was
        run.
        """
        with self._lock:
            return not self._stopped and self._without_records(lambda: None)

    def _without_records(self, due: Callable[[], int | None]) -> bool:
        phases = Phases()
        cut = self.cutter.without_records(due, in_flight=self.folds.in_flight > 0)
        if cut is not None:
            self._take(cut, phases)
        return cut is not None

    def _land(self, batch: DataFrame, batch_id: int) -> None:
        """Land a micro-batch in the logs; at the same time, the folding thread folds the micro-batch."""
        phases = Phases(_since=self._started)
        phases.end("trigger")
        self._query_id = self._query_id or self.checkpoint.query
        offsets = dict(zip(self.cutter.active, self.checkpoint.offsets(batch_id), strict=True))
        files = {
            name: self.checkpoint.files(place, self.cutter.landings[name].position[OFFSET], offsets[name])
            for place, name in enumerate(self.cutter.active)
            if isinstance(self.sources[name], Files)
        }
        cut = self.cutter.cut(batch, self._query_id, batch_id, offsets, files)
        landed = self._take(cut, phases)
        if not (self._once or self.cutter.full(cut, landed)):
            # The sources have no more records at present, so wait until this epoch is folded. If the next epoch were
            # cut now, it would have few records and would have to wait anyway. If the next epoch is cut later, it
            # contains all records that arrive in the meantime.
            self._folding.settle()
            self._started = time.perf_counter()

    def _take(self, cut: Cut, phases: Phases) -> Mapping[str, LandedCounts]:
        """Land an epoch; at the same time, the folding thread folds the epoch."""
        epoch = Epoch(cut, self.cutter, self.folds, phases)
        phases.end("read")
        self._folding.submit(partial(self._fold, epoch))
        landed = epoch.land()
        self._started = time.perf_counter()
        return landed

    def _fold(self, epoch: Epoch) -> None:
        try:
            reports = epoch.fold(self._ended)
        except (duckdb.Error, PySparkException, Py4JJavaError) as failure:
            raise self._explained(failure) from failure
        self._ended = time.perf_counter()
        for report in reports:
            self._report(report)

    def _report(self, report: EpochReport) -> None:
        if self.watch is not None:
            self.watch(report)

    def _explained(self, error: Exception) -> TailraceError:
        return explained(error, [landing.log for landing in self.cutter.landings.values()], self.sources)
