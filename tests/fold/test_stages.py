"""A definition of two stages on real tables: streamed, stopped, audited, backfilled; bills follow what is corrected."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import (
    EARLIEST,
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Count,
    Fixed,
    Log,
    Max,
    Pipeline,
    Sessions,
    Sum,
    minutes,
    seconds,
)
from tailrace.backfill.backfill import backfill_stages
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake, lineage, properties_of
from tailrace.lake.read.late_report import late_report
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, instant
from tailrace.model.step.reference import fold_stages
from tailrace.model.step.step import WindowsState
from tailrace.model.windows.panes import Answers, answers
from tailrace.model.windows.windows import Window
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tests.support.checks.batch_answers import batch
from tests.support.depth import deep
from tests.support.engines.spark_runs import said_by_ledger, said_by_reference

CLICKS = Log(
    name="clicks",
    columns={"id": "bigint", "advertiser": "string", "who": "string", "cents": "bigint", "at": "timestamp"}
    | {"seen": "timestamp"},
    event_time="at",
    arrival_time="seen",
    disorder=seconds(30),
)
VISITS = Pipeline(
    name="visits",
    log=CLICKS,
    key=("advertiser", "who"),
    what={"clicks": Count(), "cents": Sum("cents")},
    where=Sessions(seconds(40)),
    when=AfterWatermark(early=AfterCount(4), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=minutes(1),
)
BILLS = Pipeline(
    name="bills",
    log=VISITS.panes,
    key="advertiser",
    what={"visits": Count(), "cents": Sum("cents"), "dearest": Max("cents")},
    where=Fixed(minutes(1)),
    when=AfterWatermark(early=AfterCount(3), late=AfterCount(1)),
    how=RETRACTING,
)
BY_LENGTH = Pipeline(
    name="visits_by_length",
    log=replace(VISITS, timestamp=EARLIEST, name="begun").panes,
    key="clicks",
    what={"visits": Count(), "cents": Sum("cents")},
    where=Fixed(minutes(1)),
    when=AfterWatermark(early=AfterCount(3), late=AfterCount(1)),
    how=RETRACTING,
)
START = datetime(2024, 1, 1, tzinfo=UTC)


def clicks(count: int, chance: random.Random) -> list[dict[str, Any]]:
    """Clicks in the order in which they became known; one in eight a minute or more behind."""
    made = list[dict[str, Any]]()
    for number in range(count):
        seen = START + timedelta(seconds=2 * number)
        behind = chance.choice([1, 2, 5, 10, 20, 20, 60, 100, 400] if number % 8 == 0 else [1, 2, 5, 15])
        who, advertiser = chance.choice("abcd"), chance.choice(["x", "x", "y"])
        row = {"id": number, "advertiser": advertiser, "who": who, "cents": chance.randrange(1, 99), "seen": seen}
        made.append(row | {"at": seen - timedelta(seconds=behind)})
    # The last one is there to take the watermark past the others.
    late = made[-1]["seen"] + timedelta(hours=1)
    return [*made, made[-1] | {"id": count, "at": late, "seen": late}]


def land(folder: Path, records: Sequence[dict[str, Any]], first: int, size: int = 20) -> None:
    folder.mkdir(exist_ok=True)
    for place in range(0, len(records), size):
        lines = (json.dumps(one, default=lambda value: value.isoformat()) for one in records[place : place + size])
        file = folder / f"{first + place:05}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1_700_000_000 + first + place, 1_700_000_000 + first + place))


def clocks(lake: Lake, table: str) -> dict[int, Clock]:
    """The clock of each epoch that a ledger has."""
    said = [properties_of(one) for one in lineage(lake.table(table), lake.head(table).snapshot)]
    return {
        int(one["epoch"]): Clock(int(one["epoch"]), int(one["watermark"]), int(one["processing_time"]))
        for one in said
        if "processing_time" in one
    }


def held(spark: SparkSession, pipeline: Pipeline) -> Answers:
    """The current answers."""
    items = ", ".join([*pipeline.key, "UNIX_MICROS(window_start) AS a", "UNIX_MICROS(window_end) AS b", *pipeline.what])
    rows = spark.sql(f"SELECT {items} FROM {pipeline.name}").collect()
    return {
        (tuple(row[name] for name in pipeline.key), Window(row["a"], row["b"])): {n: row[n] for n in pipeline.what}
        for row in rows
    }


@pytest.mark.parametrize("later", [BILLS, pytest.param(BY_LENGTH, marks=deep)], ids=["bills", "visits_by_length"])
def test_L1_bills_follow_the_visits_they_are_made_of(
    plain: SparkSession, settings: Settings, tmp_path: Path, later: Pipeline
) -> None:
    chance = random.Random(7)
    records, folder, lake = clicks(200, chance), tmp_path / "landing", Lake(settings)
    for part, first in ((records[:120], 0), (records[120:], 1000)):
        # The second part comes to a stream that was stopped and knows what it knows from its tables.
        land(folder, part, first)
        stream = Stream(plain, lake, [later], Files(str(folder), "json", 1))
        stream.start(once=True)
        stream.wait()
        stream.close()
    earlier = later.earlier
    assert earlier is not None
    for stage in later.stages:
        found = audit(lake, stage)
        assert found.ok, [check for check in found.checks if not check.ok]
        assert found.counts["retractions"] > 0
    # Nobody reads the visits but the bills: their answers are in their ledger alone, for the audit, too.
    with pytest.raises(LakeError, match="answers=True"):
        lake.table(earlier.name)
    assert late_report(lake, earlier).records > 0
    # Folded again, every stage says what its ledger has, row for row, with the clocks that it has (L3, T3).
    times = clocks(lake, f"{earlier.name}__ledger")
    rows = plain.sql("SELECT id, _epoch FROM clicks").collect()
    by_epoch: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_epoch.setdefault(row["_epoch"], []).append(records[row["id"]])
    epochs = [(by_epoch.get(epoch, []), times[epoch]) for epoch in sorted(times)]
    runs = fold_stages(later, epochs, [WindowsState(generation=1), WindowsState(generation=1)])
    for stage, run in zip(later.stages, runs, strict=True):
        assert said_by_ledger(plain, stage) == said_by_reference(stage, run.panes, ())
    assert runs[-1].state.clock == clocks(lake, f"{later.name}__ledger")[max(times)]
    assert held(plain, later) == {place: dict(values) for place, values in answers(runs[-1].panes).items()}
    assert runs[0].late, "the data has clicks that are too late"
    # A backfill counts those, too: of the visits, and of what is made of them.
    until = later.closed_until(lake.head(f"{later.name}__ledger").number("watermark"))
    done = backfill_stages(lake, later, instant(START) - 10**10, until)
    assert all(run.changed > 0 for _, [run] in done)
    expected = {place: dict(v) for place, v in batch(later, records).items() if place[1].timestamp < until}
    assert {place: v for place, v in held(plain, later).items() if place[1].timestamp < until} == expected
    for stage in later.stages:
        found = audit(lake, stage)
        assert found.ok, [check for check in found.checks if not check.ok]
    again = backfill_stages(lake, later, instant(START) - 10**10, until)
    assert [run.changed + run.retracted for _, [run] in again] == [0, 0]


@deep
def test_an_epoch_of_several_stages_finds_the_classes_that_spark_generated_for_the_one_before_it(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    folder, generated = tmp_path / "landing", list[int]()
    land(folder, clicks(200, random.Random(9)), 0)
    assert spark._jvm is not None
    compiled = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    stream = Stream(
        spark,
        Lake(settings),
        [BILLS],
        Files(str(folder), "json", 1),
        follow_every=100,
        watch=lambda _: generated.append(compiled.getCount()),
    )
    stream.start(once=True)
    stream.wait()
    stream.close()
    assert len(generated) > 8
    assert generated[0] > 0
    # An epoch with what none before it had, a late record say, has classes of its own.
    assert [after - before for before, after in pairwise(generated)].count(0) > len(generated) // 2


def test_X2_a_later_stage_catches_up_with_the_one_before_it(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    records, folder, lake = clicks(80, random.Random(8)), tmp_path / "landing", Lake(settings)
    land(folder, records, 0)
    # The visits are streamed alone; who deploys the bills later finds them in the visits' ledger.
    for pipelines in ([VISITS], [BILLS]):
        stream = Stream(plain, lake, pipelines, Files(str(folder), "json", 1))
        stream.start(once=True)
        stream.wait()
        stream.close()
    found = audit(lake, BILLS)
    assert found.ok, [check for check in found.checks if not check.ok]
    # What was there already goes on being followed.
    assert lake.head("visits").number("epoch") == lake.head("visits__ledger").number("epoch")
    head = lake.head("bills__ledger")
    assert head.number("epoch") == lake.head("visits__ledger").number("epoch")
    assert head.number("watermark") >= BEGINNING
