"""The stream: a Structured Streaming query in which every micro-batch is an epoch (rules X1 to X3).

An epoch lands its bundles in the logs, folds them into each definition, and publishes: first the logs, then the
ledgers. Three threads each work on one epoch at a time, while the caller's thread (`wait`) watches for failures and for
epochs without records:

    thread       epoch 7                         epoch 8                         epoch 9
    the query's  read, land, publish the logs    read, land, publish the logs    ...
    folding            fold ......... publish the ledgers, report   fold ......... publish the ledgers
    following                                          bring the answers up .....

Folding begins as soon as the bundles have been read, and publishes once the logs have been published. From then on, the
epoch can be folded from the logs, whichever process dies. The query waits if folding is two epochs behind, and folding
waits if the answers are as far behind as is allowed (`fold.follower_pace`). After a crash at any point, the ledgers
first catch up with the logs, using the recorded clocks. If the query repeats a micro-batch that the logs already have,
the micro-batch is skipped.
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
from tailrace.fold.fold_group import FoldGroup, StreamError, landed_logs
from tailrace.fold.task_thread import TaskThread
from tailrace.ingest.checkpoint import CheckpointError
from tailrace.ingest.landing import LandedCounts
from tailrace.ingest.sources import Files, Source
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.migration import widen
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
"""The number of seconds between two checks for a failure of the folds."""

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_STREAMING = "org.apache.spark.sql.execution.streaming"

PULSE = 1.0
"""The number of seconds between two checks whether an epoch without records is needed, while no records arrive."""


class Stream:
    """The streaming writer of logs and of the definitions that read them.

    `source` is the source of the log. If the definitions read several logs, `source` maps the name of each log to its
    source.
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
        self.sources = sources_of(self.logs, source)
        self.query: StreamingQuery | None = None
        self._lock = threading.Lock()
        self._stopped = self._once = self._pausing = False
        self._every = 0.0
        self._failure: BaseException | None = None
        self._query_id = ""
        self._folding = TaskThread("folding", room=2)
        for stage in (stage for definition in pipelines for stage in chain(definition)):
            # The tables are widened before any lease is taken: a definition that cannot run must not stop a running
            # stream.
            widen(lake, stage)
        self.cutter = Cutter(spark, lake, self.logs, self.sources)
        self.lost = LostSources(self.cutter)
        self.checkpoint, self.mended = take_checkpoint(spark, self.cutter.landings, self.sources)
        # If a fold has lost its lease while this stream still holds the lease of the log, another process took over the
        # fold.
        self.folds = FoldGroup(spark, lake, pipelines, follow_every=follow_every, landing=self.cutter.first.log)
        stages = [fold.definition for fold in self.folds]
        self._signals = any(tables_of(stage).signals for stage in stages)
        self.cutter.open(self.folds.engines, signals=self._signals)
        self._started = self._ended = self._looked = time.perf_counter()

    @property
    def epoch(self) -> int:
        """The last epoch in the logs; -1 before the first epoch."""
        return self.cutter.epoch

    def start(self, *, once: bool = False, every: float = 0.0, stop: Callable[[], object] = lambda: False) -> None:
        """Fold the epochs that are in the logs but not in the ledgers, then start the query.

        `stop` is called between two epochs of the catch-up. If `once` is True, the stream drains the source and then
        ends. Otherwise, an epoch starts every `every` seconds as long as input arrives.
        """
        self._once, self._every = once, every
        self.cutter.align()
        for one in self.folds.missed_epochs(self.cutter.epoch):
            self._report(EpochReport.of_missed(one))
            if stop():
                return
        if "://" not in self.checkpoint.folder or self.checkpoint.folder.startswith("file:"):
            # This checkpoint manager renames files, which is instantaneous on a local disk. An empty micro-batch takes
            # half the time with this manager.
            self.spark.conf.set(_FILE_MANAGER, f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager")
        # By default, Spark would list each file of a large epoch in a separate task.
        self.spark.conf.set(_LISTING, str(4 * self.spark.sparkContext.defaultParallelism))
        self._begin()

    def _begin(self) -> None:
        """Start the query on the active sources."""
        writer = self.cutter.stream.writeStream.foreachBatch(self._epoch)
        name = f"tailrace_{'_'.join(self.logs)}"
        writer = writer.option("checkpointLocation", self.checkpoint.folder).queryName(name)
        every = f"{self._every} seconds"
        writer = writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=every)
        self._started = self._ended = time.perf_counter()
        self.cutter.looks.begin(self.checkpoint, self.cutter.active)
        try:
            self.query = writer.start()
        except (PySparkException, Py4JJavaError) as error:
            raise self._explained(error) from error

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the query to end, for at most `seconds`; return True if it has ended.

        Raises the error that made the query fail.
        """
        if self.query is None:
            return True
        until = None if seconds is None else time.perf_counter() + seconds
        while not self._awaited(_POLL if until is None else max(0.01, min(_POLL, until - time.perf_counter()))):
            if self._folding.failure is not None:
                # Without input, the query runs no epoch that would notice the failure.
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
            # The entries of the control tables are also taken, even if no record arrived, and so are the records in
            # flight.
            while self._last_epochs():
                self._settle()
        return True

    def stop(self) -> None:
        """Stop at an epoch boundary: an epoch that has started is finished first."""
        with self._lock:
            self._stopped = True
        # The lock must not be held here: stopping waits for the query's thread, which may be waiting for the lock to
        # start an epoch.
        if self.query is not None:
            self.query.stop()
        self._settle()

    def close(self) -> None:
        """Bring the answers up to date with the ledgers, close the folds, and remove the branches of the logs."""
        self._folding.close()
        self.folds.close()
        self.cutter.close()

    def _settle(self) -> None:
        self._folding.settle()
        self.folds.settle()

    def _awaited(self, seconds: float) -> bool:
        assert self.query is not None
        try:
            # The time-out is typed as a whole number of seconds, but any number is accepted.
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
        """Resume reading the lost sources that can be reached again."""
        if self._once or self.query is None or not (logs := self.lost.returned()):
            return
        with self._lock:
            self._pausing = True
        self.query.stop()
        self._pausing = False
        self.lost.take_back(logs)
        self._begin_again()

    def _begin_again(self) -> None:
        """Continue with a new query on the active sources, from the positions that the logs' commits record."""
        self._folding.settle()
        self._failure = None
        landings = {name: self.cutter.landings[name] for name in self.cutter.active}
        renew_checkpoint(self.spark, self.checkpoint, landings, self.sources)
        self.cutter.open(self.folds.engines, signals=self._signals)
        self._begin()

    def _epoch(self, batch: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._stopped or self._pausing or self._failure is not None:
                raise StreamError("the stream was stopped before this epoch")
            try:
                # A micro-batch that the logs already have was landed before a crash, and the catch-up has folded it.
                if batch_id > self.cutter.batch:
                    self._land(batch, batch_id)
            except BaseException as error:
                self._failure = self._explained(error) if isinstance(error, CheckpointError | duckdb.Error) else error
                raise

    def _pulse(self) -> None:
        """Run an epoch without records if time or the control tables require it while no records arrive."""
        now = time.perf_counter()
        if self._once or not self._folding.idle:
            return
        if now - max(self._looked, self._started) < PULSE and not self.folds.in_flight:
            return
        # While an epoch is being landed, the lock is held and no other epoch is needed.
        if self._lock.acquire(blocking=False):
            try:
                if not self._stopped and self._failure is None:
                    self._without_records(self.folds.due)
            except BaseException as error:
                self._failure = error
                raise
            finally:
                self._lock.release()
                self._looked = time.perf_counter()

    def _last_epochs(self) -> bool:
        """After the end of the input, run an epoch without records if there is a reason; return True if there was."""
        with self._lock:
            return not self._stopped and self._without_records(lambda: None)

    def _without_records(self, due: Callable[[], int | None]) -> bool:
        phases = Phases()
        cut = self.cutter.without_records(due, in_flight=self.folds.in_flight > 0)
        if cut is not None:
            self._take(cut, phases)
        return cut is not None

    def _land(self, batch: DataFrame, batch_id: int) -> None:
        """Land a micro-batch in the logs, while the folding thread folds it."""
        phases = Phases(_since=self._started)
        phases.end("trigger")
        self._query_id = self._query_id or self.checkpoint.query
        offsets = dict(zip(self.cutter.active, self.checkpoint.offsets(batch_id), strict=True))
        files = {
            name: self.checkpoint.files(place, self.cutter.read_up_to(name), offsets[name])
            for place, name in enumerate(self.cutter.active)
            if isinstance(self.sources[name], Files)
        }
        cut = self.cutter.cut(batch, self._query_id, batch_id, offsets, files)
        landed = self._take(cut, phases)
        if not (self._once or self.cutter.full(cut, landed)):
            # The sources have no more records at present. An epoch that is cut now would have few records, and would
            # wait until this epoch is folded. An epoch that is cut later takes all records that arrive in the meantime.
            self._folding.settle()
            self._started = time.perf_counter()

    def _take(self, cut: Cut, phases: Phases) -> Mapping[str, LandedCounts]:
        """Land an epoch, while the folding thread folds it."""
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
