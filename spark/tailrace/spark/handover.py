"""A backfill of windows that are still open to the stream, which then goes on from the corrected state (rule X4).

It borrows the ledger's lease at an epoch boundary, so that nothing moves under it: the stream lands what comes, and
waits with what it has folded. It computes the windows from all that the log holds up to the ledger's epoch, puts them
beside the open state and the answers (`correcting`), and gives the lease back in the commit of what differs: panes,
retractions and partials in its own generation. The stream reads its state anew from there, and folds its epoch again.
"""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tailrace.lake.catalog import Head, Lake
from tailrace.lake.commits import ONWARD
from tailrace.lake.errors import FencedError, MovedError
from tailrace.lake.lease import Lease
from tailrace.lake.runs import Run, Runs
from tailrace.model.clock import Clock
from tailrace.model.log import Productions
from tailrace.model.pipeline import Pipeline
from tailrace.model.time import END_OF_TIME, text
from tailrace.spark.answering import answering
from tailrace.spark.answers import current, in_range
from tailrace.spark.backfilled import Backfilled, BackfillError, as_of, done
from tailrace.spark.compile import compiled
from tailrace.spark.correcting import As, OpenWindowsCorrected, correcting
from tailrace.spark.follow import Follower
from tailrace.spark.preparing import viewed
from tailrace.spark.ranges import records
from tailrace.spark.writing import append

TRIES = 3
"""How often the lease is borrowed where a stream takes it in between."""


class Handover:
    """The run of the windows that a stream can still reach."""

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: Pipeline, first: int, last: int, closed: int) -> None:
        self.spark, self.lake, self.pipeline = spark, lake, pipeline
        self.first, self.last = first, last
        self.answering, self.execution = answering(spark, pipeline), compiled(spark, pipeline)
        self.ledger = f"{pipeline.name}__ledger"
        alone = pipeline.earlier is None and not isinstance(pipeline.log, Productions)
        if not alone or ONWARD in lake.head(self.ledger).said:
            raise BackfillError(
                f"windows up to {text(last)} are still open to the stream, and a definition that reads another one, or "
                f"is read, is corrected once they are closed: pass a --to of at most {text(closed)}"
            )
        if pipeline.where.merges and (first > closed or last < END_OF_TIME):
            raise BackfillError(
                f"windows that merge and are still open can only be computed together: pass a --from of at most "
                f"{text(closed)} and no --to, or a --to of at most {text(closed)}, up to where they are closed"
            )

    def run(self, reason: str | None, dry_run: bool) -> Backfilled:
        started = time.perf_counter()
        if dry_run:
            return self._tried(started)
        runs = Runs(self.lake, self.pipeline)
        epoch = self.lake.head(self.ledger).number("epoch")
        run = runs.start("backfill", self.first, self.last, log_epoch=epoch, reason=reason)
        follower = Follower(self.lake, self.pipeline, f"backfill_{run.run}")
        try:
            for left in reversed(range(TRIES)):
                lease = Lease.borrow(self.lake, self.ledger, run.run)
                try:
                    return self._handed_over(lease, follower, runs, run, started)
                except FencedError:
                    # A stream started meanwhile, or did not wait any longer.
                    if not left:
                        raise
                finally:
                    lease.hand_back()
                    lease.give_back()
            raise AssertionError("the last try returns or raises")
        except Exception as error:
            runs.failed(run, error)
            raise
        finally:
            follower.close()

    def _handed_over(self, lease: Lease, follower: Follower, runs: Runs, run: Run, started: float) -> Backfilled:
        follower.follow()
        run = runs.note(run, log_epoch=lease.head.number("epoch"))
        one = correcting(self.spark, self.pipeline, as_of(run, lease.head))
        changes, counts = self._computed(one)
        above = runs.above(run)
        if above is not None:
            return done(runs.gave_way(run, above), counts, started, above)
        if counts["changed"] or counts["retracted"]:
            with viewed(self.spark, changes) as view:
                self._publish(lease, self.spark.sql(one.rows(view)), run)
        lease.hand_back()
        follower.follow()
        changes.unpersist()
        totals = {name: counts[name] for name in ("changed", "untouched", "retracted")}
        return done(runs.note(run, status="committed", **totals), counts, started)

    def _tried(self, started: float) -> Backfilled:
        """What the run would do as the tables stand now."""
        head = self.lake.head(self.ledger)
        pinned = head.number("epoch")
        draft = Run("", "backfill", "dry_run", 0, self.first, self.last, self.pipeline.fingerprint, pinned)
        _, counts = self._computed(correcting(self.spark, self.pipeline, as_of(draft, head)), head)
        return done(draft, counts, started)

    def _computed(self, one: OpenWindowsCorrected, head: Head | None = None) -> tuple[DataFrame, dict[str, int]]:
        """What differs, checkpointed, and how many windows there are of each kind."""
        written, within = one.written, in_range(self.first, self.last)
        log = records(self.lake, self.answering, self.first, self.last, written.epoch)
        computed = self.answering.batch(self.answering.assigned(log), within)
        state = f"tailrace_open_{self.pipeline.name}_{written.run}"
        self._state(written, head).where(within).createOrReplaceTempView(state)
        held = current(self.pipeline, self.lake.spark_name(self.pipeline.name))
        seen = Observation()
        counted = one.corrected(computed, state, held, within).observe(
            seen,
            F.count_if(F.expr("change IN ('changed', 'new') OR (change = 'state' AND remains)")).alias("changed"),
            F.count_if(F.expr("change = 'same' AND computed")).alias("untouched"),
            F.count_if(F.expr("change = 'gone' OR (change = 'state' AND NOT remains)")).alias("retracted"),
        )
        changes = counted.where("change <> 'same'").localCheckpoint()
        self.spark.catalog.dropTempView(state)
        return changes, seen.get

    def _state(self, written: As, head: Head | None) -> DataFrame:
        """The open windows as the ledger has them."""
        ledger = self.spark.table(self.lake.spark_name(self.ledger).replace("`", ""))
        if head is not None:
            ledger = (
                self.spark.read.format("iceberg")
                .option("versionAsOf", head.snapshot or 0)
                .load(self.lake.spark_name(self.ledger).replace("`", ""))
            )
        clock = Clock(written.epoch, written.watermark, written.processing_time)
        return self.execution.restore(ledger, clock, written.generation).windows

    def _publish(self, lease: Lease, rows: DataFrame, run: Run) -> None:
        """Commit the rows at the epoch boundary that the lease was borrowed at, and give the lease back with it."""
        while True:
            said = lease.given_back({"run": run.run, "generation": str(run.generation)})
            append(rows, lease.branch, said)
            try:
                lease.publish(said)
                return
            except MovedError:
                # A backfill of closed windows, or maintenance: the same rows on top of it.
                continue
