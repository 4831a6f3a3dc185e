"""Our side: the same answers by Tailrace, through the functions that a stream and a backfill are run with."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from statistics import fmean

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.compare import SCHEMA
from benchmarks.data import BEGIN, COLUMNS, DISORDER, WARM, WINDOW, Views
from benchmarks.measure import Outcome, Task, cpu_seconds, serve
from tailrace.backfill.backfill import backfill
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.follower import ProcessFollower
from tailrace.engines.spark.session import open_session
from tailrace.ingest.sources import Files, Format
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.pipeline_tables import answer_contract
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.combiners.basic import Count, Sum
from tailrace.model.definition.definition import Definition, Ranged
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import Log
from tailrace.model.triggers.combinators import Repeat
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import ACCUMULATING
from tailrace.model.windows.windows import Fixed, Global
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream

BEHIND = 10
"""How many epochs table `p` may be behind."""


@dataclass
class Streamed:
    """What a stream took: each epoch from its trigger to the next, and all of it with table `p` brought up at the end.

    In seconds; `cpu` is CPU seconds.
    """

    total: float = 0.0
    cpu: float = 0.0
    epochs: list[EpochReport] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        return [epoch.seconds for epoch in self.epochs]

    def phases(self, skipped: int = 0) -> dict[str, float]:
        """The mean seconds of each phase, over the epochs from the one numbered `skipped` on."""
        return mean_phases([epoch.phases for epoch in self.epochs[skipped:]])


def definition(name: str, log: str = "views") -> Pipeline:
    """Price and number of views by advertiser and 2 minutes; each epoch gives a pane of each window that it touches."""
    return Pipeline(
        name=name,
        log=_log(log),
        key=("advertiser",),
        what={"total": Sum("price"), "views": Count()},
        where=Fixed(WINDOW),
        when=Repeat(AfterCount(1)),
        how=ACCUMULATING,
    )


def run_stream(
    spark: SparkSession,
    lake: Lake,
    pipeline: Definition,
    views: Views,
    per_epoch: int | None,
    behind: int = BEHIND,
    format: Format = "parquet",
) -> Streamed:
    """Drain a folder into a pipeline's tables, in epochs of `per_epoch` files, None for all of them in one."""
    streamed = Streamed()
    source = Files(str(views.folder), format, per_epoch)
    stream = Stream(spark, lake, [pipeline], source, follow_every=behind, watch=streamed.epochs.append)
    started, spent = time.perf_counter(), cpu_seconds()
    stream.start(once=True)
    stream.wait()
    stream.close()
    streamed.total, streamed.cpu = time.perf_counter() - started, cpu_seconds() - spent
    return streamed


def run_backfill(lake: Lake, pipeline: Pipeline, first: datetime, last: datetime) -> tuple[float, dict[str, int]]:
    """Compute a range anew; gives the seconds and how many windows changed, were equal and were taken back."""
    started = time.perf_counter()
    [done] = backfill(lake, pipeline, instant(first), instant(last))
    counts = {"changed": done.changed, "untouched": done.untouched, "retracted": done.retracted}
    return time.perf_counter() - started, counts


def answer_rows(lake: Lake, pipeline: Pipeline) -> pa.Table:
    """The rows of table `p`."""
    return lake.table(pipeline.name).scan(selected_fields=tuple(SCHEMA.names)).to_arrow().select(SCHEMA.names)


def warmed(task: Task) -> Lake:
    """The lake of a job that starts no Spark by itself, with the session that its engine needs."""
    if task.engine == "spark":
        open_session(task.settings)
    return Lake(task.settings)


def deploy(lake: Lake, pipeline: Definition) -> None:
    """Tables of a definition that stands at the log's last epoch with the input at its end, and has no answers yet."""
    assert isinstance(pipeline, Ranged)
    run = Runs(lake, pipeline).start("stream", BEGINNING, END_OF_TIME, log_epoch=None)
    landed = lake.head(pipeline.sources[0].name)
    said = {
        "epoch": str(landed.number("epoch")),
        "watermark": str(END_OF_TIME),
        "processing_time": str(landed.number("processing_time")),
        "generation": str(run.generation),
        "fingerprint": pipeline.fingerprint,
    }
    lake.ensure(tables_of(pipeline).ledger, said)
    if not isinstance(pipeline, Pipeline):
        return
    lake.ensure(answer_contract(pipeline))
    # A stream has stamped table `p` with the snapshot of the ledger.
    with closing(connect(lake.settings)) as connection:
        ProcessFollower(connection, lake, pipeline, "deployed").follow()


def land(task: Task) -> Outcome:
    """The views in the log, in epochs of 25 files, by the stream of a pipeline that only counts them."""
    counted = Pipeline(name="counted", log=_log("views"), what={"views": Count()}, where=Global())
    with_spark = open_session(task.settings)
    return Outcome([run_stream(with_spark, Lake(task.settings), counted, task.views, 25).total])


def batch(task: Task) -> Outcome:
    """Backfill a pipeline without answers over the landed log, `repeats` times in a warm session.

    Once more at the end over answers that are there and equal: fact `again`.
    """
    lake = warmed(task)
    seconds, cpu = [], 0.0
    for repeat in range(-WARM, task.repeats):
        pipeline = definition(f"totals_{task.number}_{repeat + WARM}")
        deploy(lake, pipeline)
        spent = cpu_seconds()
        taken, counts = run_backfill(lake, pipeline, BEGIN, task.views.end)
        if repeat >= 0:
            seconds.append(taken)
            cpu += cpu_seconds() - spent
    task.leave(lambda: answer_rows(lake, pipeline))
    again, untouched = run_backfill(lake, pipeline, BEGIN, task.views.end)
    facts = {"cpu": cpu / task.repeats, **counts, "again": again, "again_untouched": untouched["untouched"]}
    return Outcome(seconds, facts=facts)


def stream(task: Task) -> Outcome:
    """Micro-batches of `per_epoch` files; table `p` at most `BEHIND` epochs behind. Its cost is in the epochs' time."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    pipeline = definition("totals")
    streamed = run_stream(spark, lake, pipeline, task.views, task.per_epoch)
    task.leave(lambda: answer_rows(lake, pipeline))
    facts = {"total": streamed.total, "cpu": streamed.cpu, "landed": spark.table("views").count()}
    return Outcome(streamed.seconds, streamed.phases(len(streamed.epochs) // 2), facts)


def backlog(task: Task) -> Outcome:
    """All the views as a backlog, in epochs of `per_epoch` files, after a small backlog to warm up.

    The time is until the log, the ledger and table `p` have everything.
    """
    spark, lake = open_session(task.settings), Lake(task.settings)
    run_stream(spark, lake, definition("totals_warm_up", "views_warm_up"), task.warm_up, task.per_epoch)
    pipeline = definition("totals")
    streamed = run_stream(spark, lake, pipeline, task.views, task.per_epoch)
    task.leave(lambda: answer_rows(lake, pipeline))
    return Outcome([streamed.total], streamed.phases(), {"cpu": streamed.cpu, "landed": spark.table("views").count()})


def intervals(task: Task) -> Outcome:
    """Backfill every interval on its own, in one session. The start of process and session is the first of `seconds`.

    Fact `one_run` is the whole range in one backfill of another pipeline, in the same session.
    """
    lake = warmed(task)
    pipeline, whole = (definition(f"totals_{which}_{task.number}") for which in ("intervals", "whole"))
    seconds = [time.time() - task.launched]
    for one in (pipeline, whole):
        deploy(lake, one)
    for first, last in task.views.intervals():
        seconds.append(run_backfill(lake, pipeline, first, last)[0])
    cpu = cpu_seconds()
    task.leave(lambda: answer_rows(lake, pipeline))
    in_one, _ = run_backfill(lake, whole, BEGIN, task.views.end)
    return Outcome(seconds, facts={"cpu": cpu, "start": seconds[0], "one_run": in_one})


def mean_phases(epochs: list[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each phase over some epochs, the longest first."""
    names = {name for epoch in epochs for name in epoch}
    means = {name: fmean(epoch.get(name, 0.0) for epoch in epochs) for name in names}
    return dict(sorted(means.items(), key=lambda phase: -phase[1]))


def _log(name: str) -> Log:
    return Log(name=name, columns=COLUMNS, event_time="viewed_at", disorder=DISORDER)


if __name__ == "__main__":
    serve({"land": land, "batch": batch, "stream": stream, "backlog": backlog, "intervals": intervals})
