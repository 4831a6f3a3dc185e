"""A backfill: one step over everything that the log holds for a range, replacing the range by a minimal diff (V4).

It pins the log at the ledger's epoch, computes the answers of the windows whose timestamp lies in the range (V5), and
writes what differs from the current answers: a changed window is taken back and fired again, one that is not produced
any more is taken back, one that comes out equal is left untouched. The rows go into the ledger in a generation of their
own beside a running stream, and table `p` follows. Windows that a stream can still reach are another run's, which
borrows the stream's lease (`handover`, X4).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from tailrace.lake.catalog import Lake
from tailrace.lake.drift import check_definition
from tailrace.lake.publish import Branch
from tailrace.lake.replacing import Ended, Replacing
from tailrace.lake.runs import Run, Runs
from tailrace.lake.tables import Head
from tailrace.model.pipeline import Pipeline
from tailrace.model.time import END_OF_TIME, moment, text
from tailrace.spark.backfilled import Backfilled, BackfillError, Found, as_of, draft, ended
from tailrace.spark.execution import free
from tailrace.spark.follow import Follower
from tailrace.spark.handover import Handover
from tailrace.spark.preparing import viewed
from tailrace.spark.ranges import stamp
from tailrace.spark.sharing import Shared
from tailrace.spark.writing import append
from tailrace.sql.answers import current, differences, new
from tailrace.sql.corrections import pane_rows

__all__ = ["BackfillError", "Backfilled", "backfill", "backfill_stages"]


def backfill(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    first: int,
    last: int = END_OF_TIME,
    *,
    reason: str | None = None,
    dry_run: bool = False,
) -> list[Backfilled]:
    """Compute the range `[first, last)` of window timestamps anew, in microseconds.

    It is one run of the windows that are closed, and one of those that a stream can still reach, as far as the range
    has any. A dry run says what would change and changes nothing. Raises `BackfillError` for a range that is empty or
    that cannot be had, and `OtherDefinitionError` where the tables are another definition's.
    """
    with closing(Shared(spark, lake, pipeline, first, last)) as shared:
        return [part.run(reason, dry_run) for part in _parts(spark, lake, pipeline, first, last, shared)]


def backfill_stages(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    first: int,
    last: int = END_OF_TIME,
    *,
    reason: str | None = None,
    dry_run: bool = False,
) -> list[tuple[Pipeline, list[Backfilled]]]:
    """Backfill every stage of a definition, the first one first; what one answers is computed once, from the log.

    Nothing is changed where one of them cannot be: of several stages the range must be closed in all, and a later one
    closes after those before it.
    """
    with closing(Shared(spark, lake, pipeline, first, last)) as shared:
        stages = [(stage, _parts(spark, lake, stage, first, last, shared)) for stage in pipeline.stages]
        return [(stage, [part.run(reason, dry_run) for part in parts]) for stage, parts in stages]


def _parts(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, first: int, last: int, shared: Shared
) -> list[_Closed | Handover]:
    """The runs that a range takes, checked but not begun."""
    if first >= last:
        raise BackfillError(f"the range from {text(first)} to {text(last)} is empty: pass a --to later than --from")
    check_definition(lake, pipeline)
    pinned = lake.head(f"{pipeline.name}__ledger")
    if pinned.number("epoch") < 0:
        raise BackfillError(f"{pipeline.name}__ledger has no epoch yet: run a stream of the definition first")
    closed = pipeline.closed_until(pinned.number("watermark"))
    parts: list[_Closed | Handover] = []
    if first < closed:
        parts.append(_Closed(spark, lake, pipeline, first, min(last, closed), pinned, shared))
    if last > closed:
        parts.append(Handover(spark, lake, pipeline, max(first, closed), last, closed))
    return parts


class _Closed:
    """The run of windows that no stream can reach any more."""

    direct = False

    def __init__(
        self, spark: SparkSession, lake: Lake, pipeline: Pipeline, first: int, last: int, pinned: Head, shared: Shared
    ) -> None:
        self.spark, self.lake, self.pipeline = spark, lake, pipeline
        self.first, self.last, self.pinned, self.shared = first, last, pinned, shared

    def run(self, reason: str | None, dry_run: bool) -> Backfilled:
        started, epoch = time.perf_counter(), self.pinned.number("epoch")
        if dry_run:
            one = draft(self.pipeline, self.first, self.last, epoch)
            return ended(Ended(one, self._computed(epoch).counts), started)
        runs = Runs(self.lake, self.pipeline)
        run = runs.start("backfill", self.first, self.last, log_epoch=epoch, reason=reason)
        self.follower = Follower(self.lake, self.pipeline, f"backfill_{run.run}")
        try:
            return ended(Replacing(self.lake, runs, self).closed(run), started)
        except Exception as error:
            runs.failed(run, error)
            raise
        finally:
            self.follower.close()

    def follow(self) -> int:
        return self.follower.follow()

    def compute(self, run: Run, pinned: Head) -> Found:
        return self._computed(pinned.number("epoch"))

    def write(self, found: Found, run: Run, pinned: Head, branch: Branch, said: Mapping[str, str]) -> None:
        with viewed(self.spark, found.changes) as view:
            append(self.spark.sql(pane_rows(self.pipeline, view, as_of(run, pinned))), branch, said)

    def published(self, found: Found, snapshot: int) -> None:
        self.follower.follow(fresh=None if found.counts["held"] else snapshot)

    def forget(self, found: Found) -> None:
        free(found.changes)

    def _computed(self, epoch: int) -> Found:
        answers = self.shared.answers(self.pipeline, epoch, self.first, self.last)
        finished, table = self.pipeline.finished, self.lake.spark_name(self.pipeline.name)
        ends = f"window_end > {stamp(self.first)} AND window_end <= {stamp(self.last)}"
        held = current(self.pipeline, f"(SELECT * FROM {table} WHERE {ends})")
        found = self._anything_held()
        text_ = differences(finished, answers, held) if found else new(finished, answers)
        seen = Observation()
        counted = self.spark.sql(text_).observe(
            seen,
            F.count_if(F.col("change").isin("changed", "new")).alias("changed"),
            F.count_if(F.col("change") == "same").alias("untouched"),
            F.count_if(F.col("change") == "gone").alias("retracted"),
            F.count_if(F.col("change") != "new").alias("held"),
        )
        changes = counted.where("change <> 'same'").localCheckpoint()
        return Found(changes, seen.get)

    def _anything_held(self) -> bool:
        """Whether table `p` may hold rows of the range, by its files' statistics."""
        rows = f"window_end > '{moment(self.first).isoformat()}' and window_end <= '{moment(self.last).isoformat()}'"
        return any(True for _ in self.lake.table(self.pipeline.name).scan(row_filter=rows).plan_files())
