"""A backfill: one step over everything that the log holds for a range, replacing the range by a minimal diff (V4).

It pins the log at the ledger's epoch, computes the answers of the windows whose timestamp lies in the range (V5), and
writes what differs from the current answers: a changed window is taken back and fired again, one that is not produced
any more is taken back, one that comes out equal is left untouched. The rows go into the ledger in a generation of their
own beside a running stream, and table `p` follows. Windows that a stream can still reach are refused (X4).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tailrace.lake.catalog import PREFIX, Head, Lake
from tailrace.lake.contracts import PANE, ledger_contract, spark_type
from tailrace.lake.drift import check_definition
from tailrace.lake.errors import MovedError
from tailrace.lake.publish import Branch
from tailrace.lake.runs import Run, Runs
from tailrace.model.errors import TailraceError
from tailrace.model.pipeline import Pipeline
from tailrace.model.time import instant, moment, text
from tailrace.spark.algebra import null, quoted
from tailrace.spark.answering import answering
from tailrace.spark.answers import current, differences, events_from, events_until, in_range, new
from tailrace.spark.assigning import listed
from tailrace.spark.follow import Follower


class BackfillError(TailraceError, RuntimeError):
    """A backfill that cannot be done, or not yet; nothing was changed."""


@dataclass(frozen=True)
class Backfilled:
    """What a backfill did: windows fired again or for the first time, left alone, and taken back for good."""

    run: Run
    changed: int
    untouched: int
    retracted: int
    seconds: float
    gave_way: Run | None = None


def backfill(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    first: int,
    last: int,
    *,
    reason: str | None = None,
    dry_run: bool = False,
) -> Backfilled:
    """Compute the range `[first, last)` of window timestamps anew, in microseconds.

    A dry run says what would change and changes nothing. Raises `BackfillError` for a range that is empty or holds
    windows that the stream can still reach, and `OtherDefinitionError` where the tables are another definition's.
    """
    return _Backfill(spark, lake, pipeline, first, last).run(reason, dry_run)


def backfill_stages(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    first: int,
    last: int,
    *,
    reason: str | None = None,
    dry_run: bool = False,
) -> list[Backfilled]:
    """Backfill every stage of a definition, the first one first; each is computed from the log.

    Nothing is changed where one of them is not closed yet: a later stage closes after those before it.
    """
    stages = [_Backfill(spark, lake, stage, first, last) for stage in pipeline.stages]
    return [stage.run(reason, dry_run) for stage in stages]


class _Backfill:
    def __init__(self, spark: SparkSession, lake: Lake, pipeline: Pipeline, first: int, last: int) -> None:
        self.spark, self.lake, self.pipeline = spark, lake, pipeline
        self.first, self.last = first, last
        self.answering = answering(spark, pipeline)
        self.ledger = f"{pipeline.name}__ledger"
        check_definition(lake, pipeline)
        self.pinned = lake.head(self.ledger)
        self._check_range()

    def run(self, reason: str | None, dry_run: bool) -> Backfilled:
        started = time.perf_counter()
        runs = Runs(self.lake, self.pipeline)
        epoch = self.pinned.number("epoch")
        if dry_run:
            draft = Run("", "backfill", "dry_run", 0, self.first, self.last, self.pipeline.fingerprint, epoch)
            _, counts = self._computed(draft)
            return _done(draft, counts, started)
        run = runs.start("backfill", self.first, self.last, log_epoch=epoch, reason=reason)
        follower = Follower(self.lake, self.pipeline, f"backfill_{run.run}")
        try:
            follower.follow()
            changes, counts = self._computed(run)
            above = runs.above(run)
            if above is not None:
                note = f"generation {above.generation} (run {above.run}) covers the range"
                return _done(runs.note(run, status="gave_way", reason=note), counts, started, above)
            if counts["changed"] or counts["retracted"]:
                published = self._publish(run, self._rows(changes, run))
                follower.follow(fresh=None if counts["held"] else published)
            changes.unpersist()
            totals = {name: counts[name] for name in ("changed", "untouched", "retracted")}
            return _done(runs.note(run, status="committed", **totals), counts, started)
        except Exception as error:
            runs.note(run, status="failed", reason=str(error).split("\n", 1)[0][:500])
            raise
        finally:
            follower.close()

    def _check_range(self) -> None:
        if self.first >= self.last:
            raise BackfillError(
                f"the range from {text(self.first)} to {text(self.last)} is empty: pass a --to later than --from"
            )
        if self.pinned.number("epoch") < 0:
            raise BackfillError(f"{self.ledger} has no epoch yet: run a stream of the definition first")
        watermark = self.pinned.number("watermark")
        until = self.pipeline.closed_until(watermark)
        if self.last > until:
            raise BackfillError(
                f"windows up to {text(self.last)} are still open to the stream: the watermark is at {text(watermark)} "
                f"and a window stays within reach for its allowed lateness; pass a --to of at most {text(until)}, or "
                "wait until the watermark has passed"
            )

    def _computed(self, run: Run) -> tuple[DataFrame, dict[str, int]]:
        """The differences that are to be written, checkpointed, and how many of each there are."""
        answers = self.answering.batch(self.answering.assigned(self._log()), in_range(self.first, self.last))
        table = self.lake.spark_name(self.pipeline.name)
        ends = f"window_end > {_stamp(self.first)} AND window_end <= {_stamp(self.last)}"
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

    def _log(self) -> str:
        """The log's records that the range's windows may hold, as of the pinned epoch."""
        log = self.pipeline.source
        table = self.lake.spark_name(log.name)
        since, until = events_from(self.pipeline, self.first), events_until(self.pipeline, self.last)
        if self.pipeline.where.merges and since is not None:
            since = self._reached_back(since)
        bounds = [f"_epoch <= {self.pinned.number('epoch')}L"]
        if since is not None:
            bounds.append(f"{quoted(log.event_time)} >= {_stamp(since)}")
        if until is not None:
            bounds.append(f"{quoted(log.event_time)} < {_stamp(until)}")
        return f"(SELECT * FROM {table} WHERE {' AND '.join(bounds)})"

    def _reached_back(self, since: int) -> int:
        """How far back sessions that end in the range reach, in microseconds (rule V5).

        The span read doubles until no session that ends in the range begins within a gap of its edge.
        """
        log, where = self.pipeline.log, self.pipeline.where
        table, gap = self.lake.spark_name(log.name), where.reach
        earliest, back = instant(log.earliest), 4 * gap
        while since > earliest:
            since = max(earliest, self.first - back)
            bounds = f"_epoch <= {self.pinned.number('epoch')}L AND {quoted(log.event_time)} >= {_stamp(since)} "
            bounds += f"AND {quoted(log.event_time)} < {_stamp(self.last)}"
            rows = self.answering.assigned(f"(SELECT * FROM {table} WHERE {bounds})")
            edge = f"{in_range(self.first, self.last)} AND window_start < {since + gap}L"
            if not self.spark.sql(f"{self.answering.batch(rows, edge)} LIMIT 1").collect():
                break
            back *= 2
        return since

    def _rows(self, changes: DataFrame, run: Run) -> DataFrame:
        """The ledger rows of the differences: retractions of what was held, panes of what is computed."""
        pipeline = self.pipeline
        view = f"tailrace_changes_{run.run}"
        changes.createOrReplaceTempView(view)
        types = {name: spark_type(column.shape) for name, column in ledger_contract(pipeline).columns.items()}
        common = {
            "kind": f"'{PANE}'",
            "window_start": "TIMESTAMP_MICROS(window_start)",
            "window_end": "TIMESTAMP_MICROS(window_end)",
            "generation": f"{run.generation}L",
            "epoch": f"{self.pinned.number('epoch')}L",
            "pane_index": "0L",
            "timing": "'correction'",
            "watermark": f"TIMESTAMP_MICROS({self.pinned.number('watermark')}L)",
            "processing_time": f"TIMESTAMP_MICROS({self.pinned.number('processing_time')}L)",
            "writer": "'backfill'",
            **{name: quoted(name) for name in pipeline.key},
        }
        texts = []
        for which, retraction, holds in (("old", "true", "change <> 'new'"), ("new", "false", "change <> 'gone'")):
            values = common | {"retraction": retraction}
            values |= {name: quoted(f"{which}_{name}") for name in pipeline.results}
            if "answer" in types:
                inside = ", ".join(f"'{name}', {quoted(f'{which}_{name}')}" for name in pipeline.results)
                values["answer"] = f"NAMED_STRUCT({inside})"
                if which == "new":
                    parts = ", ".join(f"'{name}', {quoted(f'part_{name}')}" for name in pipeline.parts)
                    values["pending"] = f"NAMED_STRUCT({parts})"
            items = [f"{values.get(name, null(type))} AS {quoted(name)}" for name, type in types.items()]
            texts.append(f"SELECT {listed(items)} FROM {view} WHERE {holds}")
        return self.spark.sql(" UNION ALL ".join(texts))

    def _publish(self, run: Run, rows: DataFrame) -> int:
        """Append the rows to the ledger beside a running stream, whose epoch and lease are carried on (X1, X3)."""
        branch = Branch(self.lake, self.ledger, f"backfill_{run.run}")
        head = branch.start()
        try:
            self._write(branch, rows, head, run)
            try:
                return branch.publish()
            except MovedError:
                # The rows are written; only the commit is made again, on top of where the stream has got to.
                staged = self.lake.table(self.ledger).metadata.refs[branch.name].snapshot_id
                settings = self.lake.settings
                name = f"{settings.namespace}.{self.ledger}"
                call = f"CALL {quoted(settings.catalog)}.system.cherrypick_snapshot('{name}', {staged})"
                return int(self.spark.sql(call).collect()[0]["current_snapshot_id"])
        finally:
            branch.drop()

    def _write(self, branch: Branch, rows: DataFrame, head: Head, run: Run) -> None:
        writer = rows.writeTo(branch.target)
        for name, value in {**head.said, "run": run.run}.items():
            writer = writer.option(f"snapshot-property.{PREFIX}{name}", value)
        writer.append()


def _done(run: Run, counts: dict[str, int], started: float, gave_way: Run | None = None) -> Backfilled:
    totals = (counts["changed"], counts["untouched"], counts["retracted"])
    return Backfilled(run, *totals, time.perf_counter() - started, gave_way)


def _stamp(micros: int) -> str:
    return f"TIMESTAMP_MICROS({micros}L)"
