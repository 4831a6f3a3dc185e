"""The definitions of the video ads beside plain SQL over their log (Dataflow Model, 1)."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tailrace import Pipeline
from tailrace.generate.ads import ads
from tailrace.generate.delivery import HOUR, Delivery
from tailrace.model.time import instant
from tailrace.plan.loading import load_all

ROOT = Path(__file__).parents[2]
FIRST = instant(datetime(2026, 1, 1, tzinfo=UTC))
DAY = 24 * HOUR
FILES = [str(ROOT / "pipelines" / f"{name}.py") for name in ("ads", "ad_popularity", "ad_abuse")]

BY_HAND = {
    # A sitting ends where a viewer sees no ad of the advertiser for ten minutes.
    "ad_bills": """
        WITH begun AS (
            SELECT *, COALESCE(at >= LAG(at) OVER one + INTERVAL 10 MINUTES, TRUE) AS begins
            FROM views WINDOW one AS (PARTITION BY advertiser, viewer ORDER BY at)
        ), numbered AS (
            SELECT *, COUNT_IF(begins) OVER (PARTITION BY advertiser, viewer ORDER BY at) AS sitting FROM begun
        ), sittings AS (
            SELECT advertiser, MIN(at) AS at, COUNT(*) AS views, SUM(watched) AS watched, SUM(watched * rate) AS cost
            FROM numbered GROUP BY advertiser, viewer, sitting
        )
        SELECT advertiser, DATE_TRUNC('day', at) AS window_start, COUNT(*) AS sittings, SUM(views) AS views,
               SUM(watched) AS watched, SUM(LEAST(cost, 0.02)) AS owed
        FROM sittings GROUP BY ALL""",
    "unpopular_ads": """
        WITH hourly AS (
            SELECT ad, DATE_TRUNC('hour', at) AS hour, COUNT(*) AS views, COUNT_IF(watched >= length) AS whole
            FROM views GROUP BY ALL
        )
        SELECT ad, DATE_TRUNC('day', hour) AS window_start, COUNT(*) AS hours, SUM(views) AS views, SUM(whole) AS whole
        FROM hourly WHERE views >= 20 AND whole * 5 < views GROUP BY ALL""",
    "ad_abuse": """
        WITH by_minute AS (
            SELECT viewer, DATE_TRUNC('minute', at) AS minute, COUNT(*) AS views FROM views GROUP BY ALL
        )
        SELECT viewer, DATE_TRUNC('day', minute) AS window_start, COUNT(*) AS minutes, SUM(views) AS views,
               MAX(views) AS most
        FROM by_minute WHERE views >= 12 GROUP BY ALL""",
}


def made() -> list[Delivery]:
    """Nine hours of views, and one three days later, which takes the watermark past the others."""
    found = ads(rate=0.3, length=9 * HOUR, seed=5, first=FIRST)
    last = FIRST + 3 * DAY
    return [*found, Delivery(last, dict(found[-1].record) | {"view_id": "view-last", "at": last, "known": last})]


def definitions() -> list[Pipeline]:
    return [one for one in load_all(FILES) if isinstance(one, Pipeline)]


def by_hand(spark: SparkSession, pipeline: Pipeline, *, late: bool) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """The answers out of the log by plain SQL; those that came too late for the first stage only with `late`."""
    first = pipeline.stages[0].name
    left = (
        ""
        if late
        else f"""
        LEFT ANTI JOIN {first}__ledger AS l ON l.kind = 'late' AND l.source_epoch = v._epoch
        AND l.source_partition = v._source AND l.source_offset = v._offset"""
    )
    spark.sql(f"SELECT v.* FROM ad_views AS v {left}").createOrReplaceTempView("views")
    return rows(spark, pipeline, f"({BY_HAND[pipeline.name]})")


def rows(spark: SparkSession, pipeline: Pipeline, table: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    first = datetime.fromtimestamp(FIRST / 1e6, UTC)
    columns = ", ".join([*pipeline.key, "window_start", *pipeline.what])
    found = spark.sql(
        f"SELECT {columns} FROM {table} WHERE window_start < TIMESTAMP '{first:%Y-%m-%d}' + INTERVAL 1 DAY"
    )
    at = len(pipeline.key) + 1
    return {tuple(row)[:at]: tuple(row)[at:] for row in found.collect()}


def paid(spark: SparkSession) -> Any:
    """What all panes of the bills say of the first day, less what they take back."""
    (row,) = spark.sql(
        f"""SELECT SUM(IF(retraction, -owed, owed)) AS owed FROM ad_bills__ledger
        WHERE kind = 'pane' AND UNIX_MICROS(window_start) < {FIRST + DAY}"""
    ).collect()
    return row["owed"]
