"""Their side: the same answers by hand-written PySpark, as a good engineer would write and tune it.

Same session settings, catalog and file format as ours, and of what was tried the faster is kept. What it does not give:
panes, a record of late views, a backfill that merges with the stream, a log that is exactly once after a crash.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.data import COLUMNS, DISORDER, WARM, WINDOW, Views
from benchmarks.measure import ROOT, Outcome, Task, cpu_seconds, serve
from tailrace.engines.spark.session import open_session, process_conf, session_conf
from tailrace.toolchain import quiet_home, require_java

TUNED = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Commit what changed instead of a snapshot of the store, and do not count the keys for the metrics.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # Update mode has said everything already when the watermark moves on.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

LOG_PROPERTIES = "'write.parquet.compression-codec' = 'zstd', 'write.distribution-mode' = 'none'"
RESULT_PROPERTIES = (
    f"{LOG_PROPERTIES}, 'format-version' = '2', 'write.merge.mode' = 'merge-on-read', "
    "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '20'"
)
SECONDS = f"{int(WINDOW.total_seconds())} seconds"


def make_tables(spark: SparkSession, suffix: str = "") -> None:
    """The log and the result table."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS main")
    columns = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
    spark.sql(f"CREATE TABLE views{suffix} ({columns}) USING iceberg TBLPROPERTIES ({LOG_PROPERTIES})")
    make_result(spark, f"totals{suffix}")


def make_result(spark: SparkSession, name: str, partitioned: str = "") -> None:
    """A result table."""
    spark.sql(
        f"CREATE TABLE {name} (advertiser bigint, window_start timestamp, window_end timestamp, total bigint, "
        f"views bigint) USING iceberg {partitioned} TBLPROPERTIES ({RESULT_PROPERTIES})"
    )


def aggregated(views: DataFrame) -> DataFrame:
    """The answers of a batch or a stream of views."""
    grouped = views.groupBy(F.window("viewed_at", SECONDS), "advertiser")
    return grouped.agg(F.sum("price").alias("total"), F.count(F.lit(1)).alias("views")).select(
        "advertiser",
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "total",
        "views",
    )


def batch(task: Task) -> Outcome:
    """Read the landed log, aggregate, overwrite the result, `repeats` times in a warm session."""
    spark = open_session(task.settings)
    seconds, cpu = [], 0.0
    for repeat in range(-WARM, task.repeats):
        started, spent = time.perf_counter(), cpu_seconds()
        aggregated(spark.table("views")).writeTo("totals").overwrite(F.lit(True))
        if repeat >= 0:
            seconds.append(time.perf_counter() - started)
            cpu += cpu_seconds() - spent
    task.leave(lambda: spark.table("totals").toArrow())
    return Outcome(seconds, facts={"cpu": cpu / task.repeats})


def land(task: Task) -> Outcome:
    """The views in the log, in appends of 25 files, and empty result tables."""
    spark = open_session(task.settings)
    make_tables(spark)
    make_result(spark, "totals_by_interval", "PARTITIONED BY (window_start)")
    files = sorted(map(str, task.views.folder.glob("*.parquet")))
    started = time.perf_counter()
    for place in range(0, len(files), 25):
        spark.read.parquet(*files[place : place + 25]).writeTo("views").append()
    return Outcome([time.perf_counter() - started])


def intervals(task: Task) -> Outcome:
    """A `spark-submit` for each interval, one after the other; `seconds` are theirs."""
    conf = task.home / "spark.properties"
    command = [str(Path(sys.executable).parent / "spark-submit"), "--properties-file", str(conf)]
    fixed = {"spark.master": task.settings.spark_master, **process_conf(task.settings), **session_conf(task.settings)}
    conf.write_text("".join(f"{name} {value}\n" for name, value in fixed.items()))
    java = quiet_home(require_java(task.settings.java_home), task.settings.jars)
    given = {name: value for name, value in os.environ.items() if name not in ("JDK_JAVA_OPTIONS", "SPARK_HOME")}
    given |= {"JAVA_HOME": str(java), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    seconds, before = [], cpu_seconds()
    for first, last in task.views.intervals():
        started = time.perf_counter()
        job = [str(ROOT / "benchmarks" / "submitted.py"), first.isoformat(), last.isoformat(), SECONDS]
        subprocess.run([*command, *job], env=given, check=True)
        seconds.append(time.perf_counter() - started)
    cpu = cpu_seconds() - before
    task.leave(lambda: open_session(task.settings).table("totals_by_interval").toArrow())
    return Outcome(seconds, facts={"cpu": cpu})


Write = Callable[[DataFrame, int], None]
"""What is done with a micro-batch and its number."""


class Streams:
    """The two queries of one stream: one lands the views in the log, one keeps the totals and merges what changed."""

    def __init__(
        self, spark: SparkSession, task: Task, views: Views, suffix: str, *, in_step: bool, lands: bool
    ) -> None:
        self.spark, self.task, self.views, self.suffix, self.lands = spark, task, views, suffix, lands
        self.begun: list[float] = []
        self.merged: list[float] = []
        parties = 2 if lands else 1
        self.barrier = threading.Barrier(parties, action=self._begin) if in_step else None
        self.make_tables()

    def make_tables(self) -> None:
        """The log and the result table."""
        make_tables(self.spark, self.suffix)

    def run(self) -> float:
        """Drain the folder and give how long it took."""
        started = time.perf_counter()
        queries = [self._query(self.aggregated(self._read(watermark=True)), "totals", self._merge, self.mode)]
        if self.lands:
            queries.append(self._query(self._read(watermark=False), "views", self._append, "append"))
        for query in queries:
            query.awaitTermination()
        ended = time.perf_counter()
        self.begun.append(ended)
        return ended - started

    def aggregated(self, views: DataFrame) -> DataFrame:
        """The answers of a stream of views."""
        return aggregated(views)

    mode = "update"

    def _begin(self) -> None:
        self.begun.append(time.perf_counter())

    def _read(self, *, watermark: bool) -> DataFrame:
        schema = ", ".join(f"{name} {type}" for name, type in COLUMNS.items())
        reader = self.spark.readStream.schema(schema)
        if self.task.per_epoch:
            reader = reader.option("maxFilesPerTrigger", self.task.per_epoch)
        views = reader.parquet(str(self.views.folder))
        return views.withWatermark("viewed_at", f"{int(DISORDER.total_seconds())} seconds") if watermark else views

    def _query(self, frame: DataFrame, name: str, write: Write, mode: str) -> StreamingQuery:
        def epoch(batch: DataFrame, number: int) -> None:
            if self.barrier is not None:
                self.barrier.wait(600)
            write(batch, number)

        checkpoint = self.task.home / "checkpoints" / f"{name}{self.suffix}"
        writer = frame.writeStream.foreachBatch(epoch).outputMode(mode).option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).start()

    def _append(self, batch: DataFrame, number: int) -> None:
        batch.writeTo(f"views{self.suffix}").append()

    def _merge(self, batch: DataFrame, number: int) -> None:
        started = time.perf_counter()
        batch.createOrReplaceTempView("changed")
        batch.sparkSession.sql(
            f"MERGE INTO totals{self.suffix} t USING changed s "
            "ON t.advertiser = s.advertiser AND t.window_start = s.window_start "
            "WHEN MATCHED THEN UPDATE SET t.total = s.total, t.views = s.views WHEN NOT MATCHED THEN INSERT *"
        )
        self.merged.append(time.perf_counter() - started)


class Adding(Streams):
    """One query without state: each batch is aggregated by itself and added to the result by MERGE.

    The log is written in a thread beside. The number of the batch keeps one that is brought again after a crash from
    being added twice, but not from being landed twice; and there is no watermark, nothing that is late or final.
    """

    def run(self) -> float:
        """Drain the folder and give how long it took."""
        self.spark.sql(f"ALTER TABLE totals{self.suffix} ADD COLUMN batch bigint")
        started = time.perf_counter()
        with ThreadPoolExecutor(1) as self.pool:
            self._query(self._read(watermark=False), "both", self._add, "append").awaitTermination()
        ended = time.perf_counter()
        self.begun.append(ended)
        return ended - started

    def _add(self, batch: DataFrame, number: int) -> None:
        landing = self.pool.submit(self._append, batch, number)
        started = time.perf_counter()
        aggregated(batch).withColumn("batch", F.lit(number).cast("bigint")).createOrReplaceTempView("gained")
        batch.sparkSession.sql(
            f"MERGE INTO totals{self.suffix} t USING gained s "
            "ON t.advertiser = s.advertiser AND t.window_start = s.window_start "
            "WHEN MATCHED AND t.batch < s.batch THEN UPDATE SET "
            "t.total = t.total + s.total, t.views = t.views + s.views, t.batch = s.batch WHEN NOT MATCHED THEN INSERT *"
        )
        self.merged.append(time.perf_counter() - started)
        landing.result()


def stream(task: Task) -> Outcome:
    """Micro-batches of `per_epoch` files; the time of one is from a trigger to the next, for both queries together.

    The queries run side by side, in step: a batch begins when both have done the one before it. (Left to themselves the
    log's query would be done early, and the second half of the totals' would run without it.) One after the other they
    take longer. Variant `no_log` runs without the query that lands the log, `adding` is the class of that name.
    """
    spark = open_session(task.settings, extra=TUNED)
    kind, lands = (Adding, False) if task.variant == "adding" else (Streams, task.variant != "no_log")
    streams = kind(spark, task, task.views, "", in_step=True, lands=lands)
    spent = cpu_seconds()
    total = streams.run()
    cpu = cpu_seconds() - spent
    seconds = [after - before for before, after in zip(streams.begun, streams.begun[1:], strict=False)]
    half = len(seconds) // 2
    task.leave(lambda: spark.table("totals").toArrow())
    phases = {"aggregate_and_merge": median(streams.merged[half:])}
    return Outcome(seconds, phases, {"total": total, "cpu": cpu, **_landed(spark, task)})


def backlog(task: Task) -> Outcome:
    """All the views as a backlog, in micro-batches of `per_epoch` files, after a small backlog to warm up.

    The two queries run side by side, each as fast as it can; the time is until both are done.
    """
    spark = open_session(task.settings, extra=TUNED)
    Streams(spark, task, task.warm_up, "_warm_up", in_step=False, lands=True).run()
    streams = Streams(spark, task, task.views, "", in_step=False, lands=True)
    spent = cpu_seconds()
    total = streams.run()
    cpu = cpu_seconds() - spent
    task.leave(lambda: spark.table("totals").toArrow())
    phases = {"aggregate_and_merge": sum(streams.merged)}
    return Outcome([total], phases, {"cpu": cpu, **_landed(spark, task)})


def _landed(spark: SparkSession, task: Task) -> dict[str, int]:
    return {"landed": 0 if task.variant == "no_log" else spark.table("views").count()}


if __name__ == "__main__":
    serve({"land": land, "batch": batch, "stream": stream, "backlog": backlog, "intervals": intervals})
