"""Sessions of ad views as a stream: ours beside hand-written `session_window`, each session told once it is over.

Both give a session when the watermark has passed it, for that is the one way in which Spark streams sessions. The
hand-written side lands the log in a query beside, as for fixed windows.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.compare import DifferentError
from benchmarks.data import DISORDER
from benchmarks.handwritten import TUNED, Streams
from benchmarks.kinds import GAP
from benchmarks.measure import Outcome, Task, cpu_seconds, serve
from benchmarks.ours import definition, run_stream
from tailrace.engines.spark.session import open_session
from tailrace.lake.catalog.lake import Lake
from tailrace.model.triggers.trigger import AtWatermark
from tailrace.model.windows.windows import Sessions

COLUMNS = ["advertiser", "window_start", "window_end", "total", "views"]
FILE = "sessions.parquet"


def ours(task: Task) -> Outcome:
    """A stream of ours, a file an epoch."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    pipeline = replace(definition("totals"), where=Sessions(GAP), when=AtWatermark())
    streamed = run_stream(spark, lake, pipeline, task.views, task.per_epoch)
    pq.write_table(spark.table("totals").select(*COLUMNS).toArrow(), task.home / FILE)
    return Outcome(streamed.seconds, streamed.phases(len(streamed.epochs) // 2), {"cpu": streamed.cpu, "rows": 0})


class Visits(Streams):
    """The sessions in append mode, which are final, and so appended."""

    def aggregated(self, views: DataFrame) -> DataFrame:
        session = F.session_window("viewed_at", f"{int(GAP.total_seconds())} seconds")
        grouped = views.groupBy(session, "advertiser")
        sums = grouped.agg(F.sum("price").alias("total"), F.count(F.lit(1)).alias("views"))
        span = [F.col(f"session_window.{end}").alias(f"window_{end}") for end in ("start", "end")]
        return sums.select("advertiser", *span, "total", "views")

    mode = "append"

    def _merge(self, batch: DataFrame, number: int) -> None:
        batch.writeTo(f"totals{self.suffix}").append()


def handwritten(task: Task) -> Outcome:
    """The same by hand, in micro-batches of as many files."""
    spark = open_session(task.settings, extra=TUNED)
    streams = Visits(spark, task, task.views, "", in_step=True, lands=True)
    spent = cpu_seconds()
    streams.run()
    seconds = [after - before for before, after in zip(streams.begun, streams.begun[1:], strict=False)]
    pq.write_table(spark.table("totals").select(*COLUMNS).toArrow(), task.home / FILE)
    return Outcome(seconds, {}, {"cpu": cpu_seconds() - spent, "median": median(seconds), "rows": 0})


def sessions_before(table: pa.Table, end: datetime) -> pa.Table:
    """The sessions that were over by then, in an order of their own."""
    early = table.filter(pc.less(table["window_end"], pa.scalar(end, table["window_end"].type)))
    return early.sort_by([(name, "ascending") for name in COLUMNS[:2]]).combine_chunks()


def same_sessions(one: pa.Table, other: pa.Table, end: datetime) -> int:
    """How many sessions both have; `end` is that of the data. Raises `DifferentError` where they differ.

    Either side may not have told yet of sessions that were over a few minutes before the data ends.
    """
    until = end - 3 * DISORDER - timedelta(minutes=2)
    left, right = sessions_before(one, until), sessions_before(other, until)
    if not left.equals(right.cast(left.schema)):
        raise DifferentError(f"{left.num_rows} sessions here and {right.num_rows} there, or with other totals")
    return int(left.num_rows)


if __name__ == "__main__":
    serve({"ours": ours, "handwritten": handwritten})
