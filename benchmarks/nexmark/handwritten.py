"""Their side of the Nexmark cases: each query by hand-written PySpark, as a good engineer would write and tune it.

What a query takes from rows as they come (q0 to q2) is appended. What is told of a window is told once, as it is over:
one aggregate in append mode, and what is left to do with a window's rows done with the micro-batch that has them all.
Of several bids that are the highest q7 gives one. The log is landed beside, as with the ad views.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from statistics import median

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.cases import steady
from benchmarks.data import Views
from benchmarks.handwritten import LOG_PROPERTIES, RESULT_PROPERTIES, TUNED
from benchmarks.measure import Outcome, Task, cpu_seconds, serve
from benchmarks.nexmark.ours import WARM
from benchmarks.nexmark.queries import query
from tailrace.engines.spark.session import open_session

COLUMNS = ", ".join(f"{name} {type}" for name, type in query("q0").definition.sources[0].columns.items())
DISORDER, TEN = "4 seconds", "10 seconds"
BID = "kind = 'bid'"


@dataclass(frozen=True)
class By:
    """A query: what is asked of a stream of events, what is left to do with the rows, and the answer's columns."""

    columns: str
    asked: Callable[[DataFrame], DataFrame]
    ended: Callable[[DataFrame], DataFrame] = lambda rows: rows
    state: bool = True


def _bids(events: DataFrame, *items: str | Column) -> DataFrame:
    return events.where(BID).select(*items)


def _counted(events: DataFrame) -> DataFrame:
    counts = events.where(BID).groupBy(F.window("date_time", TEN, "2 seconds"), "auction").count()
    return counts.select("auction", F.col("count").alias("num"), F.col("window.end").alias("ends"))


def _most(counts: DataFrame) -> DataFrame:
    most = F.max("num").over(Window.partitionBy("ends"))
    return counts.withColumn("most", most).where("num = most").drop("most")


def _highest(events: DataFrame) -> DataFrame:
    most = F.max(F.struct("price", "auction", "bidder", "date_time")).alias("bid")
    highest = events.where(BID).groupBy(F.window("date_time", TEN)).agg(most)
    return highest.select("bid.auction", "bid.price", "bid.bidder", "bid.date_time", F.col("window.end").alias("ends"))


def _joined(events: DataFrame) -> DataFrame:
    who = F.coalesce("seller", "id").alias("id")
    either = events.where("kind <> 'bid'").groupBy(F.window("date_time", TEN), who)
    joined = either.agg(F.max("name").alias("name"), F.count("seller").alias("sold"))
    joined = joined.where("name IS NOT NULL AND sold > 0")
    return joined.select("id", "name", F.col("window.start").alias("starttime"), F.col("window.end").alias("ends"))


def _sessions(events: DataFrame) -> DataFrame:
    counts = events.where(BID).groupBy(F.session_window("date_time", TEN), "bidder").count()
    named = {"starttime": "start", "endtime": "end", "ends": "end"}
    span = [F.col(f"session_window.{bound}").alias(name) for name, bound in named.items()]
    return counts.select("bidder", F.col("count").alias("bids"), *span)


_IDS = "auction bigint, bidder bigint"
BY = {
    "q0": By(
        f"{_IDS}, price bigint, date_time timestamp",
        lambda events: _bids(events, "auction", "bidder", "price", "date_time"),
        state=False,
    ),
    "q1": By(
        f"{_IDS}, price decimal(24,3), date_time timestamp",
        lambda events: _bids(
            events, "auction", "bidder", (F.col("price") * F.lit(Decimal("0.908"))).alias("price"), "date_time"
        ),
        state=False,
    ),
    "q2": By(
        "auction bigint, price bigint",
        lambda events: _bids(events, "auction", "price").where(F.col("auction").isin(1007, 1020, 2001, 2019, 2087)),
        state=False,
    ),
    "q5": By("auction bigint, num bigint, ends timestamp", _counted, _most),
    "q7": By("auction bigint, price bigint, bidder bigint, date_time timestamp, ends timestamp", _highest),
    "q8": By("id bigint, name string, starttime timestamp, ends timestamp", _joined),
    "q11": By("bidder bigint, bids bigint, starttime timestamp, endtime timestamp, ends timestamp", _sessions),
}


def make_tables(spark: SparkSession, name: str, log: str) -> None:
    """The log and the result table of a query."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS main")
    spark.sql(f"CREATE TABLE {log} ({COLUMNS}) USING iceberg TBLPROPERTIES ({LOG_PROPERTIES})")
    make_result(spark, name)


def make_result(spark: SparkSession, name: str) -> None:
    """A result table."""
    columns = BY[name.partition("_")[0]].columns
    spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg TBLPROPERTIES ({RESULT_PROPERTIES})")


class Streams:
    """A query's stream: it appends what it answers, and the events to a log."""

    def __init__(self, spark: SparkSession, task: Task, views: Views, name: str) -> None:
        self.spark, self.task, self.views, self.name = spark, task, views, name
        self.by, self.log = BY[name.partition("_")[0]], f"events_{name}"
        self.begun: list[float] = []
        # With state, the log has a query of its own that goes in step; else both are written of one micro-batch.
        self.barrier = threading.Barrier(2, action=self._begin) if self.by.state else None
        make_tables(spark, name, self.log)

    def run(self) -> list[float]:
        """Drain the folder; gives what each micro-batch took, in seconds."""
        with ThreadPoolExecutor(1) as self.pool:
            if self.by.state:
                asked = self.by.asked(self._read().withWatermark("date_time", DISORDER))
                queries = [self._query(asked, self.name, self._append), self._query(self._read(), self.log, self._land)]
            else:
                queries = [self._query(self._read(), self.name, self._both)]
            for one in queries:
                one.awaitTermination()
        self._begin()
        return [after - before for before, after in zip(self.begun, self.begun[1:], strict=False)]

    def _begin(self) -> None:
        self.begun.append(time.perf_counter())

    def _read(self) -> DataFrame:
        reader = self.spark.readStream.schema(COLUMNS)
        if self.task.per_epoch:
            reader = reader.option("maxFilesPerTrigger", self.task.per_epoch)
        return reader.parquet(str(self.views.folder))

    def _query(self, frame: DataFrame, name: str, write: Callable[[DataFrame], None]) -> StreamingQuery:
        def epoch(batch: DataFrame, number: int) -> None:
            self.barrier.wait(600) if self.barrier is not None else self._begin()
            write(batch)

        checkpoint = str(self.task.home / "checkpoints" / name)
        writer = frame.writeStream.foreachBatch(epoch).outputMode("append").option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start()

    def _land(self, batch: DataFrame) -> None:
        batch.writeTo(self.log).append()

    def _append(self, batch: DataFrame) -> None:
        self.by.ended(batch).writeTo(self.name).append()

    def _both(self, batch: DataFrame) -> None:
        landing = self.pool.submit(self._land, batch)
        self.by.asked(batch).writeTo(self.name).append()
        landing.result()


def leave(spark: SparkSession, task: Task, tables: Mapping[str, str]) -> None:
    """Write what the queries answered, each in its table, for the comparison: the work is over."""
    task.over.touch()
    for name, table in tables.items():
        pq.write_table(spark.table(table).toArrow(), task.home / f"{name}.parquet")


def stream(task: Task) -> Outcome:
    """A micro-batch of each query, in seconds, among the facts; each lands a log of its own."""
    spark = open_session(task.settings, extra=TUNED)
    took = {"warm_up": steady(Streams(spark, task, task.warm_up, "q0_w").run())}
    for name in task.variant.split("+"):
        took[name] = steady(Streams(spark, task, task.views, name).run())
    leave(spark, task, {name: name for name in task.variant.split("+")})
    return Outcome([], facts={"queries": took})


def land(task: Task) -> Outcome:
    """The events in the log, in appends of 25 files."""
    spark = open_session(task.settings)
    make_tables(spark, "q0_landing", "events")
    files = sorted(map(str, task.views.folder.glob("*.parquet")))
    started = time.perf_counter()
    for place in range(0, len(files), 25):
        spark.read.parquet(*files[place : place + 25]).writeTo("events").append()
    return Outcome([time.perf_counter() - started])


def batch(task: Task) -> Outcome:
    """Read the landed log, answer each query, overwrite the result; seconds among the facts, and CPU's."""
    spark = open_session(task.settings)
    took, cpu = {}, {}
    tables = {name: f"{name}_{task.number}" for name in task.variant.split("+")}
    for name, table in tables.items():
        by, seconds, spent = BY[name], [], 0.0
        make_result(spark, table)
        for repeat in range(-WARM, task.repeats):
            started, before = time.perf_counter(), cpu_seconds()
            by.ended(by.asked(spark.table("events"))).writeTo(table).overwrite(F.lit(True))
            if repeat >= 0:
                seconds.append(time.perf_counter() - started)
                spent += cpu_seconds() - before
        took[name], cpu[name] = median(seconds), spent / task.repeats
    leave(spark, task, tables)
    return Outcome([], facts={"queries": took, "cpu": cpu})


if __name__ == "__main__":
    serve({"stream": stream, "land": land, "batch": batch})
