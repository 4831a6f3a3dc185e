"""Nested orders in JSON as a stream: ours beside hand-written Spark, which explodes the items and sums doubles.

Both land the orders in a log with their items, and keep the revenue of each product in two minutes. The hand-written
sums depend on the order of addition, so the comparison has a tolerance; ours are exact.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.compare import DifferentError
from benchmarks.data import DISORDER, WINDOW
from benchmarks.handwritten import LOG_PROPERTIES, RESULT_PROPERTIES, SECONDS, TUNED, Streams
from benchmarks.measure import Outcome, Task, cpu_seconds, serve
from benchmarks.ours import run_stream
from tailrace.engines.spark.session import open_session
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.expressions import Col
from tailrace.model.combiners.basic import Count, Sum
from tailrace.model.definition.packed_columns import Explode
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive
from tailrace.model.logs.log import Log
from tailrace.model.triggers.combinators import Repeat
from tailrace.model.triggers.trigger import AfterCount
from tailrace.model.windows.panes import ACCUMULATING
from tailrace.model.windows.windows import Fixed

KEY = ["sku", "window_start"]
FILE = "sales.parquet"
ITEM = "struct<sku:string,unitPrice:double,quantity:int>"


def definition(suffix: str = "") -> Pipeline:
    """Revenue and pieces by product and 2 minutes; each epoch gives a pane of each window that it touches."""
    log = Log(
        name=f"orders{suffix}",
        columns={"order_id": "string", "country": "string", "at": "timestamp"}
        | {"items": "array<struct<sku:string,price:double,quantity:int>>"},
        fields={"order_id": "orderId", "country": "user.country", "at": "createdAt", "items.price": "unitPrice"},
        instants={"at": "milliseconds"},
        event_time="at",
        disorder=DISORDER,
        unknown="ignore",
    )
    amount = Derive({"sku": Col("item.sku"), "amount": Col("item.price") * Col("item.quantity")})
    return Pipeline(
        name=f"sales{suffix}",
        log=log,
        each=[Explode("items", into="item"), amount],
        key=("sku",),
        what={"revenue": Sum("amount"), "lines": Count()},
        where=Fixed(WINDOW),
        when=Repeat(AfterCount(1)),
        how=ACCUMULATING,
    )


def ours(task: Task) -> Outcome:
    """A stream of ours, in epochs of `per_epoch` files; a backlog comes after a small one to warm up."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    backlog = task.job.endswith("backlog")
    if backlog:
        run_stream(spark, lake, definition("_warm_up"), task.warm_up, None, format="json")
    streamed = run_stream(spark, lake, definition(), task.views, task.per_epoch, format="json")
    phases = streamed.phases(len(streamed.epochs) // 2)
    _leave(task, spark.table("sales"))
    seconds = [streamed.total] if backlog else streamed.seconds
    return Outcome(seconds, phases, {"cpu": streamed.cpu, "rows": 0})


class Orders(Streams):
    """The two queries over orders."""

    def make_tables(self) -> None:
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS main")
        columns = f"orderId string, country string, createdAt timestamp, items array<{ITEM}>"
        self.spark.sql(f"CREATE TABLE views{self.suffix} ({columns}) USING iceberg TBLPROPERTIES ({LOG_PROPERTIES})")
        columns = "sku string, window_start timestamp, window_end timestamp, revenue double, lines bigint"
        self.spark.sql(f"CREATE TABLE sales{self.suffix} ({columns}) USING iceberg TBLPROPERTIES ({RESULT_PROPERTIES})")

    def aggregated(self, views: DataFrame) -> DataFrame:
        sold = views.select("createdAt", F.explode("items").alias("item"))
        amount = F.col("item.unitPrice") * F.col("item.quantity")
        grouped = sold.groupBy(F.window("createdAt", SECONDS), F.col("item.sku").alias("sku"))
        sums = grouped.agg(F.sum(amount).alias("revenue"), F.count(F.lit(1)).alias("lines"))
        span = [F.col(f"window.{end}").alias(f"window_{end}") for end in ("start", "end")]
        return sums.select("sku", *span, "revenue", "lines")

    def _read(self, *, watermark: bool) -> DataFrame:
        schema = f"orderId string, createdAt bigint, user struct<country:string>, items array<{ITEM}>"
        reader = self.spark.readStream.schema(schema)
        if self.task.per_epoch:
            reader = reader.option("maxFilesPerTrigger", self.task.per_epoch)
        at = F.timestamp_millis("createdAt").alias("createdAt")
        orders = reader.json(str(self.views.folder)).select("orderId", "user.country", at, "items")
        return orders.withWatermark("createdAt", f"{int(DISORDER.total_seconds())} seconds") if watermark else orders

    def _merge(self, batch: DataFrame, number: int) -> None:
        batch.createOrReplaceTempView("changed")
        batch.sparkSession.sql(
            f"MERGE INTO sales{self.suffix} t USING changed s ON t.sku = s.sku AND t.window_start = s.window_start "
            "WHEN MATCHED THEN UPDATE SET t.revenue = s.revenue, t.lines = s.lines WHEN NOT MATCHED THEN INSERT *"
        )


def handwritten(task: Task) -> Outcome:
    """Hand-written Spark: both queries in step, or a backlog, after a small backlog to warm up."""
    spark = open_session(task.settings, extra=TUNED)
    in_step = not task.job.endswith("backlog")
    if not in_step:
        Orders(spark, task, task.warm_up, "_warm_up", in_step=False, lands=True).run()
    streams = Orders(spark, task, task.views, "", in_step=in_step, lands=True)
    spent, began = cpu_seconds(), time.perf_counter()
    streams.run()
    total, cpu = time.perf_counter() - began, cpu_seconds() - spent
    _leave(task, spark.table("sales"))
    seconds = [after - before for before, after in zip(streams.begun, streams.begun[1:], strict=False)]
    return Outcome(seconds if in_step else [total], {}, {"cpu": cpu, "rows": 0})


def _leave(task: Task, sales: DataFrame) -> None:
    task.over.touch()
    pq.write_table(sales.select(*KEY, "revenue", "lines").toArrow(), task.home / FILE)


def same_sales(ours: Path, theirs: Path) -> int:
    """How many sales both have; raises `DifferentError` where they differ by more than doubles do."""
    one, other = (
        pq.read_table(file).sort_by([(name, "ascending") for name in KEY]).combine_chunks() for file in (ours, theirs)
    )
    columns = [*KEY, "lines"]
    if not one.select(columns).equals(other.select(columns).cast(one.select(columns).schema)):
        raise DifferentError(f"{one.num_rows} sales here and {other.num_rows} there, or of other numbers")
    gap = pc.abs(pc.divide(pc.subtract(one["revenue"], other["revenue"]), one["revenue"]))
    if (widest := pc.max(gap).as_py()) > 1e-9:
        raise DifferentError(f"revenues differ by a share of {widest}")
    return int(one.num_rows)


if __name__ == "__main__":
    serve(
        {f"ours_{way}": ours for way in ("stream", "backlog")}
        | {f"handwritten_{way}": handwritten for way in ("stream", "backlog")}
    )
