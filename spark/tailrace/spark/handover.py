"""A backfill of windows that are still open to the stream, which then goes on from the corrected state (rule X4).

It borrows the ledger's lease at an epoch boundary, so that nothing moves under it: the stream lands what comes, and
waits with what it has folded. It computes the windows from all that the log holds up to the ledger's epoch, puts them
beside the open state and the answers (`correcting`), and gives the lease back in the commit of what differs: panes,
retractions and partials in its own generation. The stream reads its state anew from there, and folds its epoch again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tailrace.lake.catalog import Lake
from tailrace.lake.commits import ONWARD
from tailrace.lake.publish import Branch
from tailrace.lake.replacing import Ended, Replacing
from tailrace.lake.runs import Run, Runs
from tailrace.lake.tables import Head
from tailrace.model.clock import Clock
from tailrace.model.log import Productions
from tailrace.model.pipeline import Pipeline
from tailrace.model.time import END_OF_TIME, text
from tailrace.spark.answering import answering
from tailrace.spark.backfilled import Backfilled, BackfillError, Found, as_of, draft, ended
from tailrace.spark.compile import compiled
from tailrace.spark.correcting import OpenWindowsCorrected, correcting
from tailrace.spark.execution import free
from tailrace.spark.follow import Follower
from tailrace.spark.preparing import viewed
from tailrace.spark.ranges import records
from tailrace.spark.writing import append, as_of_snapshot
from tailrace.sql.answers import current, in_range
from tailrace.sql.corrections import As


class Handover:
    """The run of the windows that a stream can still reach."""

    direct = False

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
        started, head = time.perf_counter(), self.lake.head(self.ledger)
        if dry_run:
            one = draft(self.pipeline, self.first, self.last, head.number("epoch"))
            return ended(Ended(one, self._computed(self._correcting(one, head), head).counts), started)
        runs = Runs(self.lake, self.pipeline)
        run = runs.start("backfill", self.first, self.last, log_epoch=head.number("epoch"), reason=reason)
        self.follower = Follower(self.lake, self.pipeline, f"backfill_{run.run}")
        try:
            return ended(Replacing(self.lake, runs, self).open(run), started)
        except Exception as error:
            runs.failed(run, error)
            raise
        finally:
            self.follower.close()

    def follow(self) -> int:
        return self.follower.follow()

    def compute(self, run: Run, pinned: Head) -> Found:
        return self._computed(self._correcting(run, pinned))

    def write(self, found: Found, run: Run, pinned: Head, branch: Branch, said: Mapping[str, str]) -> None:
        with viewed(self.spark, found.changes) as view:
            rows = self.spark.sql(self._correcting(run, pinned).rows(view))
            append(rows, branch, said)

    def published(self, found: Found, snapshot: int) -> None:
        self.follower.follow()

    def forget(self, found: Found) -> None:
        free(found.changes)

    def _correcting(self, run: Run, pinned: Head) -> OpenWindowsCorrected:
        return correcting(self.spark, self.pipeline, as_of(run, pinned))

    def _computed(self, one: OpenWindowsCorrected, head: Head | None = None) -> Found:
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
        return Found(changes, seen.get)

    def _state(self, written: As, head: Head | None) -> DataFrame:
        """The open windows as the ledger has them."""
        ledger = self.spark.table(self.lake.spark_name(self.ledger).replace("`", ""))
        if head is not None:
            ledger = as_of_snapshot(self.spark, self.lake, self.ledger, head.snapshot)
        clock = Clock(written.epoch, written.watermark, written.processing_time)
        return self.execution.restore(ledger, clock, written.generation).windows
