"""Our side of the Nexmark cases: each query by its definition, through the functions that a stream is run with."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.cases import steady
from benchmarks.data import BEGIN
from benchmarks.measure import Outcome, Task, cpu_seconds, serve
from benchmarks.nexmark.queries import TIMES, Query, beside, query
from benchmarks.ours import deploy, run_stream
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.chain import chain
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.backfill.backfill import backfill_stages
from tailrace.engines.spark.session import open_session

WARM = 2
"""How often a query is answered by a backfill before it counts."""


def leave(spark: SparkSession, task: Task, marks: Mapping[str, str]) -> None:
    """Write what the queries answered, each in tables with a mark, for the comparison: the work is over."""
    task.over.touch()
    for name, mark in marks.items():
        _write(spark, task, query(name), mark)


def _write(spark: SparkSession, task: Task, one: Query, mark: str) -> None:
    """Write what a query answers, and when its windows end, if it has any."""
    ends = ["window_end"] if one.definition.windowed else []
    rows = spark.sql(one.read(mark, *ends))
    named = [F.col(ours).alias(theirs) for theirs, ours in one.columns] + [F.col(name).alias("ends") for name in ends]
    if one.times:
        rows = rows.withColumn("_each", F.explode(F.array_repeat(F.lit(1), F.col(TIMES).cast("int"))))
    pq.write_table(rows.select(*named).toArrow(), task.home / f"{one.name}.parquet")


def stream(task: Task) -> Outcome:
    """An epoch of each query, in seconds, among the facts; each lands a log of its own."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    took, phases, marks = {}, {}, {}
    for place, name in enumerate(("warm_up", *task.variant.split("+"))):
        one = query("q0" if place == 0 else name)
        mark = f"_{place}"
        definition = beside(one.definition, mark, log=True)
        streamed = run_stream(spark, lake, definition, task.views if place else task.warm_up, task.per_epoch)
        took[name], phases[name] = steady(streamed.seconds), streamed.phases(len(streamed.epochs) // 2)
        if place:
            marks[name] = mark
    leave(spark, task, marks)
    return Outcome([], facts={"queries": took, "phases": phases})


def land(task: Task) -> Outcome:
    """The events in the log, in epochs of 25 files, by the stream of the query that has the fewest answers."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    return Outcome([run_stream(spark, lake, beside(query("q2").definition, "_landing"), task.views, 25).total])


def batch(task: Task) -> Outcome:
    """Backfill each query without answers over the landed log, all its stages; seconds among the facts, and CPU's."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    took, cpu, marks = {}, {}, {}
    for name in task.variant.split("+"):
        one, seconds, spent = query(name), [], 0.0
        for repeat in range(-WARM, task.repeats):
            mark = f"_{task.number}_{repeat + WARM}"
            definition = beside(one.definition, mark)
            for stage in chain(definition):
                deploy(lake, stage)
            started, before = time.perf_counter(), cpu_seconds()
            backfill_stages(lake, definition, instant(BEGIN) - 10**8, END_OF_TIME)
            if repeat >= 0:
                seconds.append(time.perf_counter() - started)
                spent += cpu_seconds() - before
        took[name], cpu[name], marks[name] = median(seconds), spent / task.repeats, mark
    leave(spark, task, marks)
    return Outcome([], facts={"queries": took, "cpu": cpu})


if __name__ == "__main__":
    serve({"stream": stream, "land": land, "batch": batch})
