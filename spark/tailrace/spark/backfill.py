"""A backfill: one step over everything that the log holds for a range, replacing the range by a minimal diff (V4).

It pins the log at the ledger's epoch, computes the answers of the windows whose timestamp lies in the range (V5), and
writes what differs from the current answers: a changed window is taken back and fired again, one that is not produced
any more is taken back, one that comes out equal is left untouched. The rows go into the ledger in a generation of their
own beside a running stream, and table `p` follows. Windows that a stream can still reach are another run's, which
borrows the stream's lease (`handover`, X4).
"""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tailrace.lake.catalog import Head, Lake
from tailrace.lake.drift import check_definition
from tailrace.lake.errors import MovedError
from tailrace.lake.notices import Outcome, Publication
from tailrace.lake.publish import Branch
from tailrace.lake.runs import Run, Runs
from tailrace.model.pipeline import Pipeline
from tailrace.model.time import END_OF_TIME, moment, text
from tailrace.spark.algebra import quoted
from tailrace.spark.answering import answering
from tailrace.spark.answers import current, differences, in_range, new
from tailrace.spark.backfilled import Backfilled, BackfillError, as_of, done
from tailrace.spark.correcting import pane_rows
from tailrace.spark.follow import Follower
from tailrace.spark.handover import Handover
from tailrace.spark.preparing import viewed
from tailrace.spark.ranges import records, stamp
from tailrace.spark.writing import append

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
    return [part.run(reason, dry_run) for part in _parts(spark, lake, pipeline, first, last)]


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
    """Backfill every stage of a definition, the first one first; each is computed from the log.

    Nothing is changed where one of them cannot be: of several stages the range must be closed in all, and a later one
    closes after those before it.
    """
    stages = [(stage, _parts(spark, lake, stage, first, last)) for stage in pipeline.stages]
    return [(stage, [part.run(reason, dry_run) for part in parts]) for stage, parts in stages]


def _parts(spark: SparkSession, lake: Lake, pipeline: Pipeline, first: int, last: int) -> list[_Closed | Handover]:
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
        parts.append(_Closed(spark, lake, pipeline, first, min(last, closed), pinned))
    if last > closed:
        parts.append(Handover(spark, lake, pipeline, max(first, closed), last, closed))
    return parts


class _Closed:
    """The run of windows that no stream can reach any more."""

    def __init__(
        self, spark: SparkSession, lake: Lake, pipeline: Pipeline, first: int, last: int, pinned: Head
    ) -> None:
        self.spark, self.lake, self.pipeline = spark, lake, pipeline
        self.first, self.last, self.pinned = first, last, pinned
        self.answering = answering(spark, pipeline)
        self.ledger = f"{pipeline.name}__ledger"

    def run(self, reason: str | None, dry_run: bool) -> Backfilled:
        started = time.perf_counter()
        runs = Runs(self.lake, self.pipeline)
        epoch = self.pinned.number("epoch")
        if dry_run:
            draft = Run("", "backfill", "dry_run", 0, self.first, self.last, self.pipeline.fingerprint, epoch)
            _, counts = self._computed()
            return done(draft, counts, started)
        run = runs.start("backfill", self.first, self.last, log_epoch=epoch, reason=reason)
        follower = Follower(self.lake, self.pipeline, f"backfill_{run.run}")
        try:
            follower.follow()
            changes, counts = self._computed()
            above = runs.above(run)
            if above is not None:
                return done(runs.gave_way(run, above), counts, started, above)
            if counts["changed"] or counts["retracted"]:
                written = as_of(run, self.pinned)
                with viewed(self.spark, changes) as view:
                    rows = self.spark.sql(pane_rows(self.pipeline, view, written))
                    published = self._publish(run, rows)
                follower.follow(fresh=None if counts["held"] else published)
            changes.unpersist()
            totals = {name: counts[name] for name in ("changed", "untouched", "retracted")}
            return done(runs.note(run, status="committed", **totals), counts, started)
        except Exception as error:
            runs.failed(run, error)
            raise
        finally:
            follower.close()

    def _computed(self) -> tuple[DataFrame, dict[str, int]]:
        """The differences that are to be written, checkpointed, and how many of each there are."""
        log = records(self.lake, self.answering, self.first, self.last, self.pinned.number("epoch"))
        answers = self.answering.batch(self.answering.assigned(log), in_range(self.first, self.last))
        table = self.lake.spark_name(self.pipeline.name)
        ends = f"window_end > {stamp(self.first)} AND window_end <= {stamp(self.last)}"
        held = current(self.pipeline, f"(SELECT * FROM {table} WHERE {ends})")
        found = self._anything_held()
        text_ = differences(self.pipeline, answers, held) if found else new(self.pipeline, answers)
        seen = Observation()
        counted = self.spark.sql(text_).observe(
            seen,
            F.count_if(F.col("change").isin("changed", "new")).alias("changed"),
            F.count_if(F.col("change") == "same").alias("untouched"),
            F.count_if(F.col("change") == "gone").alias("retracted"),
            F.count_if(F.col("change") != "new").alias("held"),
        )
        changes = counted.where("change <> 'same'").localCheckpoint()
        return changes, seen.get

    def _anything_held(self) -> bool:
        """Whether table `p` may hold rows of the range, by its files' statistics."""
        rows = f"window_end > '{moment(self.first).isoformat()}' and window_end <= '{moment(self.last).isoformat()}'"
        return any(True for _ in self.lake.table(self.pipeline.name).scan(row_filter=rows).plan_files())

    def _publish(self, run: Run, rows: DataFrame) -> int:
        """Append the rows to the ledger beside a running stream, whose epoch and lease are carried on (X1, X3)."""
        branch = Branch(self.lake, self.ledger, f"backfill_{run.run}")
        head = branch.start()
        try:
            append(rows, branch, {**head.said, "run": run.run})
            try:
                return branch.publish()
            except MovedError:
                # The ledger may have gone over to a definition with another meaning meanwhile.
                check_definition(self.lake, self.pipeline)
                # The rows are written; only the commit is made again, on top of where the stream has got to.
                staged = self.lake.table(self.ledger).metadata.refs[branch.name].snapshot_id
                settings = self.lake.settings
                name = f"{settings.namespace}.{self.ledger}"
                call = f"CALL {quoted(settings.catalog)}.system.cherrypick_snapshot('{name}', {staged})"
                snapshot = int(self.spark.sql(call).collect()[0]["current_snapshot_id"])
                self.lake.tell(Publication(self.ledger, branch.writer, Outcome.PUBLISHED))
                return snapshot
        finally:
            branch.drop()
