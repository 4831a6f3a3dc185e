"""Stream, backfill and hand-written batch SQL give the same answers on real flights (law L1)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace.backfill.backfill import backfill
from tailrace.generate.flights import landing_cuts, write_files
from tailrace.generate.flights import load as load_flights
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import hours, instant
from tailrace.plan.loader import load
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit

PIPELINE = load(str(Path(__file__).parents[2] / "pipelines" / "flights.py"))
FIRST, LAST = date(2013, 3, 7), date(2013, 3, 10)

# What a good engineer would write, with none of ours in it.
BY_HAND = """
SELECT origin, DATE_TRUNC('hour', scheduled) AS window_start, COUNT(*) AS flights, COUNT(delay) AS departures,
       AVG(delay) AS mean_delay
FROM {flights} GROUP BY ALL
"""


@pytest.fixture
def lake(settings: Settings) -> Lake:
    return Lake(settings)


@pytest.fixture
def landed(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    write_files(load_flights(FIRST, LAST), folder, landing_cuts(FIRST, LAST, every=hours(6)))
    return folder


def test_L1_stream_then_backfill_equal_batch_sql_by_hand(lake: Lake, spark: SparkSession, landed: Path) -> None:
    stream = Stream(spark, lake, [PIPELINE], Files(str(landed), "json", per_epoch=1))
    stream.start(once=True)
    stream.wait()
    stream.close()
    spark.read.json(str(landed)).selectExpr(
        "* EXCEPT (scheduled)", "CAST(scheduled AS timestamp) AS scheduled"
    ).createOrReplaceTempView("raw")
    late = (
        "SELECT f.flight_id FROM hourly_departures__ledger l JOIN flights f ON l.source_epoch = f._epoch AND "
        "l.source_partition = f._source AND l.source_offset = f._offset WHERE kind = 'late'"
    )
    end = "TIMESTAMP '2013-03-09 19:00:00'"
    in_time = f"(SELECT * FROM raw WHERE flight_id NOT IN ({late}) AND scheduled < {end})"
    everything = f"(SELECT * FROM raw WHERE scheduled < {end})"

    assert spark.sql(late).count() > 0, "some records came too late"
    assert answers(spark, end) == by_hand(spark, in_time), "stream = batch less late"

    first, last = instant(datetime(2013, 3, 7, tzinfo=UTC)), instant(datetime(2013, 3, 9, 19, tzinfo=UTC))
    [tried] = backfill(lake, PIPELINE, first, last, dry_run=True)
    before = versions(spark)
    [done] = backfill(lake, PIPELINE, first, last)
    assert answers(spark, end) == by_hand(spark, everything), "backfill = batch over the whole log"

    after = versions(spark)
    changed = {place for place in after if after[place] != before.get(place)}
    assert len(changed) == done.changed == tried.changed > 0
    assert all(version[0] == done.run.generation for version in map(after.__getitem__, changed))
    assert done.retracted == 0
    [again] = backfill(lake, PIPELINE, first, last)
    assert (again.changed, again.retracted) == (0, 0), "V4: what comes out equal is left untouched"
    assert versions(spark) == after
    assert audit(lake, PIPELINE).ok


def answers(spark: SparkSession, end: str) -> set[tuple[object, ...]]:
    query = "SELECT origin, window_start, flights, departures, mean_delay FROM hourly_departures"
    return {tuple(row) for row in spark.sql(f"{query} WHERE window_start < {end}").collect()}


def by_hand(spark: SparkSession, flights: str) -> set[tuple[object, ...]]:
    return {tuple(row) for row in spark.sql(BY_HAND.format(flights=flights)).collect()}


def versions(spark: SparkSession) -> dict[tuple[object, ...], tuple[int, ...]]:
    rows = spark.sql("SELECT origin, window_start, generation, epoch, pane_index FROM hourly_departures").collect()
    return {(row[0], row[1]): tuple(row)[2:] for row in rows}
