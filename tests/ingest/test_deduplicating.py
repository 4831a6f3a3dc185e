"""A record that comes again within the horizon is dropped before the log, and counted (rule X5)."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tailrace import AfterCount, AfterWatermark, Count, Fixed, Log, Pipeline, Sum, days, hours, minutes
from tailrace.ingest.landing import Landing
from tailrace.ingest.row_landing import LandedCounts
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.status import log_status
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit

START = datetime(2026, 1, 1, tzinfo=UTC)
# When each became known is in the records, so the processing time is theirs and not the machine's.
ORDERS = Log(
    name="orders",
    columns={"shop": "string", "number": "bigint", "cents": "bigint", "at": "timestamp", "seen": "timestamp"},
    event_time="at",
    arrival_time="seen",
    disorder=hours(100),
    record_id=("shop", "number"),
    remembered=days(1),
)
SALES = Pipeline(
    name="sales", log=ORDERS, key="shop", what={"n": Count(), "cents": Sum("cents")}, where=Fixed(minutes(60)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)), allowed_lateness=days(9),
)  # fmt: skip


class Shop:
    def __init__(self, spark: SparkSession, settings: Settings, folder: Path, pipeline: Pipeline = SALES) -> None:
        self.spark, self.lake, self.folder, self.count = spark, Lake(settings), folder, 0
        self.pipeline, self.reports = pipeline, list[EpochReport]()
        folder.mkdir()

    def land(self, rows: Iterable[dict[str, Any]]) -> None:
        file = self.folder / f"{self.count:03}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + self.count, 1_700_000_000 + self.count))
        self.count += 1

    def drain(self) -> None:
        stream = Stream(
            self.spark, self.lake, [self.pipeline], Files(str(self.folder), "json", 1), watch=self.reports.append
        )
        stream.start(once=True)
        stream.wait()
        stream.close()

    def ids(self) -> list[tuple[str, int]]:
        return sorted((row["shop"], row["number"]) for row in self.spark.table("orders").collect())

    def sound(self) -> bool:
        found = audit(self.lake, self.pipeline)
        assert found.ok, [check for check in found.checks if not check.ok]
        return True


def order(shop: str, number: int, hour: float, cents: int = 5) -> dict[str, Any]:
    seen = START + timedelta(hours=hour)
    times = {"at": (seen - timedelta(minutes=number % 90)).isoformat(), "seen": seen.isoformat()}
    return {"shop": shop, "number": number, "cents": cents, **times}


def test_X5_what_comes_again_is_dropped_in_the_bundle_across_epochs_and_after_a_restart(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    shop = Shop(plain, settings, tmp_path / "landing")
    one, two, three, four = (order("a", number, 1) for number in range(4))
    shop.land([one, two, one, order("b", 0, 1), one])
    shop.land([three, two])
    shop.drain()
    assert [(report.landed.records, report.landed.duplicates) for report in shop.reports] == [(3, 2), (1, 1)]
    # Another process knows only what is in the log.
    shop.land([one, three, four, order("b", 0, 2)])
    shop.land([one | {"number": None}, {"shop": "a"}])
    shop.drain()
    last = [(r.landed.records, r.landed.rejected, r.landed.duplicates) for r in shop.reports[2:]]
    assert last == [(1, 0, 3), (0, 2, 0)]
    assert shop.ids() == [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0)]
    errors = {row["error"] for row in plain.table("orders__rejected").collect()}
    assert errors == {"the record id number is missing", "the event time at is missing"}
    status = log_status(shop.lake, "orders", ORDERS)
    assert (status.records, status.rejected, status.duplicates) == (5, 2, 6)
    assert plain.sql("SELECT SUM(n) FROM sales").collect()[0][0] == 5
    assert shop.sound()


def leaves(plan: Any) -> list[Any]:
    """Where a plan's rows come from."""
    found = plan.collectLeaves()
    return [found.apply(place) for place in range(found.size())]


def test_an_epoch_with_records_that_came_again_reads_its_source_once(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_spark = settings.model_copy(update={"engine": "spark"})
    shop, plans, write = Shop(plain, on_spark, tmp_path / "landing"), list[Any](), Landing.write

    def written(landing: Landing, stamped: DataFrame, said: Mapping[str, str]) -> LandedCounts:
        plans.append(stamped._jdf.queryExecution().executedPlan())
        return write(landing, stamped, said)

    monkeypatch.setattr(Landing, "write", written)
    shop.land([order("a", 1, 1), {"shop": "a"}])
    shop.land([order("a", 1, 2), order("a", 2, 2), order("a", 2, 2), {"shop": "b"}])
    shop.drain()
    assert [(r.landed.records, r.landed.rejected, r.landed.duplicates) for r in shop.reports] == [(1, 1, 0), (1, 1, 2)]
    for plan in plans:
        kept = [leaf for leaf in leaves(plan) if leaf.nodeName() != "LocalTableScan"]
        assert {leaf.nodeName() for leaf in kept} == {"InMemoryTableScan"}
    # What is left of the second one is made of what was read, too.
    made = {leaf.nodeName() for one in kept for leaf in leaves(one.relation().cachedPlan())}
    assert made == {"InMemoryTableScan", "Scan ExistingRDD"}


def test_X5_of_a_record_that_a_bundle_has_twice_the_first_counts(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    shop = Shop(plain, settings, tmp_path / "landing")
    shop.land([order("a", 1, 1, cents=7), order("a", 1, 1, cents=8)])
    shop.land([order("a", 1, 2, cents=9), order("a", 2, 2, cents=1), order("a", 2, 2, cents=2)])
    shop.drain()
    assert sorted((row["number"], row["cents"]) for row in plain.table("orders").collect()) == [(1, 7), (2, 1)]


def test_X5_within_the_horizon_nothing_counts_twice_whatever_is_delivered_again(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    """Deliveries that repeat what came before, over more epochs than are kept apart, with a restart among them."""
    chance = random.Random(20260101)
    shop, made, delivered = Shop(plain, settings, tmp_path / "landing"), list[dict[str, Any]](), 0
    for epoch in range(13):
        hour = epoch * 0.5
        new = [order(chance.choice("abc"), len(made) + place, hour) for place in range(chance.randrange(4, 9))]
        again = chance.sample(made, min(len(made), chance.randrange(5)))
        made += new
        rows = [*new, *again, *chance.sample(new, chance.randrange(3))]
        chance.shuffle(rows)
        delivered += len(rows)
        shop.land(rows)
        if epoch == 10:
            shop.drain()
    shop.drain()
    assert shop.ids() == sorted((row["shop"], row["number"]) for row in made)
    assert sum(report.landed.duplicates for report in shop.reports) == delivered - len(made) > 0
    assert shop.sound()


def test_X5_what_comes_again_after_the_horizon_is_a_record_of_its_own(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    log = replace(ORDERS, remembered=hours(2))
    shop = Shop(plain, settings, tmp_path / "landing", replace(SALES, log=log))
    shop.land([order("a", 1, 0)])
    shop.land([order("a", 2, 1.5), order("a", 1, 1.9)])
    shop.land([order("a", 3, 3)])
    shop.drain()
    shop.land([order("a", 1, 3.1), order("a", 2, 3.2)])
    shop.drain()
    assert [report.landed.duplicates for report in shop.reports] == [0, 1, 0, 1]
    assert shop.ids() == [("a", 1), ("a", 1), ("a", 2), ("a", 3)]
    assert shop.sound()


def test_X5_the_audit_finds_a_record_that_is_there_twice(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    shop = Shop(plain, settings, tmp_path / "landing", replace(SALES, log=replace(ORDERS, record_id=())))
    shop.land([order("a", 1, 1)])
    shop.land([order("a", 1, 2), order("a", 2, 2)])
    shop.drain()
    assert shop.sound()
    found = audit(shop.lake, SALES)
    assert [(check.name, check.detail) for check in found.checks if not check.ok] == [
        ("no record came again within the horizon", "1 of 3 records had come within 1 day before"),
    ]
