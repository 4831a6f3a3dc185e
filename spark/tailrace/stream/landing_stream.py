"""The stream: a Structured Streaming query whose every micro-batch is an epoch (rules X1 to X3).

An epoch lands its bundle in the log, folds it into each pipeline, and publishes: the log first, then the ledgers. Three
threads have an epoch each in hand, while the caller's own (`wait`) looks for failures and for epochs without records:

    thread       epoch 7                         epoch 8                         epoch 9
    the query's  read, land, publish the log     read, land, publish the log     ...
    folding            fold ......... publish the ledgers, report   fold ......... publish the ledgers
    following                                          bring the answers up .....

Folding begins as soon as the bundle is read, and publishes once the log is published: from then on the epoch can be
folded from the log, whatever dies. The query waits where folding is two epochs behind, and folding where the answers
are as far behind as they may be (`fold.follower_pace`). After a crash anywhere the ledgers first catch up with the log,
with the recorded clocks, and a micro-batch that the query brings again is skipped if the log has it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import duckdb
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.engines.spark.executions.execution import lost_with_an_executor
from tailrace.fold.fold import EpochResult, Fold, Phases
from tailrace.fold.fold_engines import Sides
from tailrace.fold.fold_group import FoldGroup, StreamError, only_log
from tailrace.fold.task_thread import TaskThread
from tailrace.ingest.checkpoint import CheckpointError
from tailrace.ingest.landing import Landed, Landing
from tailrace.ingest.sources import Source
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import READ
from tailrace.model.base.errors import TailraceError
from tailrace.model.definition.chain import Definition, chain
from tailrace.model.definition.pipeline import Pipeline
from tailrace.stream.checkpoint_repair import take_checkpoint
from tailrace.stream.epoch_report import EpochReport, Watch
from tailrace.stream.failures import explained
from tailrace.stream.intake import Bundle, Intake

_POLL = 0.2
"""Seconds between two looks for a failure of the folds."""

_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_STREAMING = "org.apache.spark.sql.execution.streaming"

PULSE = 1.0
"""Seconds between two looks, while no record comes, for a reason for an epoch without records."""


class Stream:
    """The streaming writer of a log, and of the definitions that read it."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        pipelines: Sequence[Definition],
        source: Source,
        *,
        follow_every: int | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.spark, self.lake, self.source, self.watch = spark, lake, source, watch
        self.log = only_log(pipelines)
        self.query: StreamingQuery | None = None
        self._lock = threading.Lock()
        self._stopped = self._once = False
        self._failure: BaseException | None = None
        self._query_id = ""
        self._folding = TaskThread("folding", room=2)
        for stage in (stage for definition in pipelines for stage in chain(definition)):
            # Before any lease is taken, as a stream that runs is not to stop for a definition that cannot run.
            check_definition(lake, stage)
        self.landing = Landing(spark, lake, self.log)
        self.checkpoint, self.mended = take_checkpoint(spark, self.landing, source)
        # A fold that is lost while the log is still ours was taken over by another process.
        self.sides = Sides(spark, lake)
        self.folds = FoldGroup(
            spark, lake, pipelines, follow_every=follow_every, landing=self.landing.log, sides=self.sides
        )
        stages = [fold.definition for fold in self.folds]
        waits = any(stage.when.signals() for stage in stages if isinstance(stage, Pipeline))
        self.intake = Intake(spark, lake, source, self.landing, self.sides, signals=waits)
        self._started = self._ended = self._looked = time.perf_counter()

    def start(self, *, once: bool = False, every: float = 0.0) -> None:
        """Fold the epochs that the ledgers lack of the log, then start the query.

        `once` drains what the source has now and ends; else an epoch starts each `every` seconds while there is input.
        """
        self._once = once
        self.folds.catch_up(self.landing.epoch, self._caught_up)
        if "://" not in self.checkpoint.folder or self.checkpoint.folder.startswith("file:"):
            # This manager renames files, which a local disk does at once: it halves the time of an empty micro-batch.
            self.spark.conf.set(_FILE_MANAGER, f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager")
        writer = self.source.stream(self.spark).writeStream.foreachBatch(self._epoch)
        writer = writer.option("checkpointLocation", self.checkpoint.folder).queryName(f"tailrace_{self.log.name}")
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every} seconds")
        self._started = self._ended = time.perf_counter()
        try:
            self.query = writer.start()
        except (PySparkException, Py4JJavaError) as error:
            raise self._explained(error) from error

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the query to end, at most `seconds`; tell whether it has. Raises the error that made it fail."""
        if self.query is None:
            return True
        until = None if seconds is None else time.perf_counter() + seconds
        while not self._awaited(_POLL if until is None else max(0.01, min(_POLL, until - time.perf_counter()))):
            if self._folding.failure is not None:
                # Without input the query runs no epoch that would see the failure.
                self.query.stop()
                raise self._folding.failure
            try:
                self._pulse()
            except BaseException:
                self.query.stop()
                raise
            if until is not None and time.perf_counter() >= until:
                return False
        self._settle()
        if self._once:
            # The control tables' entries are taken, too, whether or not a record came, and the records in flight.
            while self._last_epochs():
                self._settle()
        return True

    def stop(self) -> None:
        """Stop at an epoch boundary: an epoch that has begun is finished first."""
        with self._lock:
            self._stopped = True
        # Not under the lock: stopping waits for the query's thread, which may wait for the lock to begin an epoch.
        if self.query is not None:
            self.query.stop()
        self._settle()

    def close(self) -> None:
        """Bring the answers up with the ledgers, and give the leases back."""
        self._folding.close()
        self.folds.close()
        self.landing.close()

    def _settle(self) -> None:
        self._folding.settle()
        self.folds.settle()

    def _awaited(self, seconds: float) -> bool:
        assert self.query is not None
        try:
            # The time-out is typed as whole seconds, but takes any number.
            return bool(self.query.awaitTermination(seconds))  # type: ignore[arg-type]
        except (PySparkException, Py4JJavaError) as error:
            if self._failure is not None:
                raise self._failure from None
            raise self._explained(error) from error

    def _epoch(self, batch: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._stopped or self._failure is not None:
                raise StreamError("the stream was stopped before this epoch")
            try:
                # A micro-batch that the log has was landed before a crash, and the catch-up has folded it.
                if batch_id > self.landing.batch:
                    self._land(batch, batch_id)
            except BaseException as error:
                self._failure = self._explained(error) if isinstance(error, CheckpointError | duckdb.Error) else error
                raise

    def _pulse(self) -> None:
        """Take an epoch without records, where time or the control tables give a reason while no record comes."""
        now = time.perf_counter()
        if self._once or not self._folding.idle:
            return
        if now - max(self._looked, self._started) < PULSE and not self.folds.in_flight:
            return
        # While an epoch is being landed it holds the lock, and no other one is needed.
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
        """Take an epoch without records as the input has ended; tell whether there was a reason for one."""
        with self._lock:
            return not self._stopped and self._without_records(lambda: None)

    def _without_records(self, due: Callable[[], int | None]) -> bool:
        phases = Phases()
        bundle = self.intake.without_records(due, in_flight=self.folds.in_flight > 0)
        if bundle is not None:
            self._take(bundle, phases)
        return bundle is not None

    def _land(self, batch: DataFrame, batch_id: int) -> None:
        """Land a micro-batch in the log, and have it folded beside."""
        phases = Phases(_since=self._started)
        phases.end("trigger")
        self._query_id = self._query_id or self.checkpoint.query
        read = dict(zip(READ, (self._query_id, str(batch_id), self.checkpoint.offset(batch_id)), strict=True))
        bundle = self.intake.bundle(batch, read)
        landed = self._take(bundle, phases)
        brought = landed.records + landed.rejected + landed.duplicates
        if not (self._once or self.source.full(bundle.files, brought)):
            # The source has nothing left, so records that come meanwhile are better taken all at once after this epoch
            # than in an epoch that is cut now and waits for it.
            self._folding.settle()
            self._started = time.perf_counter()

    def _take(self, bundle: Bundle, phases: Phases) -> Landed:
        """Land a bundle, and have it folded beside."""
        published: Future[Landed] = Future()
        phases.end("read")
        self._folding.submit(lambda: self._fold(bundle, published, phases))
        try:
            landed = replace(self.landing.write(bundle.stamped, bundle.properties), duplicates=bundle.duplicates)
            self.landing.publish()
        except BaseException as error:
            published.set_exception(error)
            raise
        phases.end("land")
        published.set_result(landed)
        self._started = time.perf_counter()
        return landed

    def _fold(self, bundle: Bundle, published: Future[Landed], before: Phases) -> None:
        """Fold an epoch into each pipeline, and publish once the log has it (X2)."""
        phases = Phases()

        def stage(fold: Fold) -> EpochResult:
            earlier = self.folds.earlier(fold)
            if earlier is None:
                return fold.stage(bundle.records, bundle.clock, phases)
            return fold.stage_after(earlier, phases)

        try:
            folded = self.folds.each(stage)
            landed = published.result()
            phases.end("wait")
            folded |= self.folds.publish(stage)
        except duckdb.Error as error:
            raise self._explained(error) from error
        except Exception as error:
            if not lost_with_an_executor(error):
                raise
            # The log has the epoch, and the ledgers the state before it: the epoch is folded as after a start.
            landed = published.result()
            self.folds.anew()
            self.folds.catch_up(bundle.clock.epoch, partial(self._caught_up, landed=landed))
            bundle.let_go()
            return
        bundle.let_go()
        phases.end("publish")
        self.folds.follow()
        phases.end("follow")
        folded = {fold.definition.name: folded[fold.definition.name] for fold in self.folds}
        last, self._ended = self._ended, time.perf_counter()
        seconds = {**before.seconds, **phases.seconds}
        self._report(
            EpochReport(bundle.clock.epoch, landed, folded, self._ended - last, seconds, progress=bundle.progress)
        )

    def _report(self, report: EpochReport) -> None:
        if self.watch is not None:
            self.watch(report)

    def _caught_up(
        self, epoch: int, folded: dict[str, EpochResult], seconds: float, phases: Phases, landed: Landed | None = None
    ) -> None:
        self._report(EpochReport(epoch, landed or Landed(0, 0), folded, seconds, phases.seconds, recovered=True))

    def _explained(self, error: Exception) -> TailraceError:
        return explained(error, self.landing.log, self.source)
