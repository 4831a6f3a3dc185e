"""A computation that feeds records back, on real tables: every epoch is a cut with what is in flight."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace import Count, Fixed, Pipeline, days
from tailrace.fold.streamed_definitions import StreamError
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.restoration import restore
from tailrace.lake.read.status import status
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tests.support.cases.groups import LINKS, Groups, by_hand
from tests.support.checks.ledgers import on

GROUPS = Groups(name="groups", log=LINKS, key="one")
CHANGES = Pipeline(name="changes", log=GROUPS.produced, key="group", what={"n": Count()}, where=Fixed(days(1)))
CHAIN = [("a", "b"), ("c", "b"), ("d", "c"), ("e", "f")]
BRIDGE = [("f", "d"), ("x", "y")]


def land(folder: Path, number: int, links: list[tuple[str, str]]) -> None:
    folder.mkdir(exist_ok=True)
    rows = [
        {"one": one, "other": other, "at": f"2024-01-01T0{number}:00:{n:02}Z"} for n, (one, other) in enumerate(links)
    ]
    file = folder / f"{number}.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


class DiedError(RuntimeError):
    """The process is gone, as far as the stream is concerned."""


def run(spark: SparkSession, lake: Lake, folder: Path, *, dies_after: int | None = None) -> list[EpochReport]:
    """Drain what there is, or die after an epoch."""
    reports: list[EpochReport] = []

    def watch(report: EpochReport) -> None:
        reports.append(report)
        if report.epoch == dies_after:
            raise DiedError

    stream = Stream(spark, lake, [CHANGES], Files(str(folder), "json", 1), watch=watch)
    try:
        stream.start(once=True)
        stream.wait()
    finally:
        stream.close()
    return reports


def groups(spark: SparkSession) -> dict[str, str]:
    place = "ROW_NUMBER() OVER (PARTITION BY one ORDER BY epoch DESC) AS place"
    latest = f"SELECT *, {place} FROM groups__ledger WHERE kind = 'partial'"
    return {row[0]: row[1] for row in spark.sql(f"SELECT one, state.group FROM ({latest}) WHERE place = 1").collect()}


def in_flight(spark: SparkSession, epoch: int) -> list[tuple[object, ...]]:
    text = f"SELECT one, feedback.* FROM groups__ledger WHERE kind = 'feedback' AND epoch = {epoch} ORDER BY ALL"
    return [tuple(row) for row in spark.sql(text).collect()]


def clean(spark: SparkSession, lake: Lake) -> None:
    found = audit(lake, GROUPS)
    assert found.ok, [check for check in found.checks if not check.ok]
    assert audit(lake, CHANGES).ok


def test_X2_a_loop_comes_to_rest_whatever_dies_and_whatever_is_restored(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    folder, lake = tmp_path / "landing", Lake(settings)
    land(folder, 1, CHAIN)
    with pytest.raises((DiedError, StreamError)):
        run(plain, lake, folder, dies_after=1)
    cut, flying = lake.head("groups__ledger").number("epoch"), in_flight(plain, 1)
    assert cut == 1
    assert flying, "it died while records were in flight"
    own = status(lake, GROUPS).own
    assert own is not None
    assert own.keys is not None
    assert own.keys.in_flight == len(flying)
    # Those who read what it produces wait for what is in flight.
    assert own.onward <= own.watermark
    clean(plain, lake)
    reports = run(plain, on(lake, "spark"), folder)
    assert {report.folded["groups"].engine for report in reports} == {"spark"}, "what DuckDB left is in flight there"
    assert {report.landed.records for report in reports} == {0}, "what is left has no record of the log"
    assert groups(plain) == by_hand(CHAIN)
    assert len({*by_hand(CHAIN).values()}) == 2
    assert in_flight(plain, lake.head("groups__ledger").number("epoch")) == []
    clean(plain, lake)
    land(folder, 2, BRIDGE)
    run(plain, lake, folder)
    assert groups(plain) == by_hand([*CHAIN, *BRIDGE])
    last, table = lake.head("groups__ledger").number("epoch"), plain.sql("SELECT * FROM changes ORDER BY ALL").collect()
    # Back to the cut of before: what was in flight then is in flight again, and comes to the same.
    restore(lake, [CHANGES], cut)
    assert lake.head("groups__ledger").number("epoch") == cut
    assert in_flight(plain, cut) == flying
    assert in_flight(plain, cut + 1) == []
    again = run(plain, lake, folder)
    assert {report.recovered for report in again} == {True}
    assert lake.head("groups__ledger").number("epoch") == last
    assert groups(plain) == by_hand([*CHAIN, *BRIDGE])
    columns = "window_start, window_end, `group`, n"
    assert plain.sql(f"SELECT {columns} FROM changes ORDER BY ALL").collect() == [
        tuple(row[name.strip("` ")] for name in columns.split(",")) for row in table
    ]
    clean(plain, lake)
