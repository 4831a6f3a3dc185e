"""What is computed for a range is what all of the log says of it, of every stage, wherever the range is cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from tailrace import OwnWindows
from tailrace.backfill import range_answers
from tailrace.backfill.backfill import backfill, backfill_stages
from tailrace.backfill.range_answers import RangeAnswers
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.transactions import open_transaction
from tailrace.lake.read.file_bounds import bounds
from tailrace.model.base.time import instant, seconds
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.panes import ACCUMULATING, Answers
from tailrace.model.windows.windows import NOTHING, Fixed, Window
from tailrace.settings import Settings
from tests.fold.test_stages import BILLS, BY_LENGTH, START, VISITS, clicks, land
from tests.support.checks.batch_answers import batch
from tests.support.checks.ledgers import run
from tests.support.depth import deep
from tests.support.engines.sessions import cluster, in_process

SECOND = 1_000_000
RECORDS = clicks(200, random.Random(11))


@dataclass(frozen=True)
class Around(OwnWindows):
    """Sessions whose records have windows that begin before them."""

    merges = True
    reach = 40 * SECOND

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        return [Window(at - 25 * SECOND, at + 15 * SECOND)]


AROUND = replace(VISITS, name="around", where=Around())


def streamed(spark: SparkSession, settings: Settings, folder: Path, pipeline: Pipeline) -> Lake:
    lake = Lake(settings)
    land(folder, RECORDS, 0, size=100)
    run(spark, lake, folder, pipeline)
    return lake


def answered(shared: RangeAnswers, stage: Pipeline, first: int, last: int, epoch: int = 99) -> Answers:
    rows = shared.session.rows(shared.answers(stage, epoch, first, last))
    return {
        (tuple(row[name] for name in stage.key), Window(row["window_start"], row["window_end"])): {
            name: row[name] for name in stage.what
        }
        for row in rows
    }


def here(_: SparkSession, lake: Lake) -> Session:
    return in_process(lake)


ON_EACH = [
    pytest.param(
        one, opened, id=f"{one.name}-{engine}", marks=deep if engine == "spark" and one is not BY_LENGTH else ()
    )
    for one in (BILLS, BY_LENGTH, AROUND)
    for engine, opened in (("duckdb", here), ("spark", cluster))
]


@pytest.mark.parametrize(("pipeline", "open_"), ON_EACH)
def test_V5_a_range_has_the_answers_that_all_of_the_log_gives_its_windows(
    plain: SparkSession,
    settings: Settings,
    tmp_path: Path,
    pipeline: Pipeline,
    open_: Callable[[SparkSession, Lake], Session],
) -> None:
    lake, chance = streamed(plain, settings, tmp_path / "landing", pipeline), random.Random(12)
    whole = {stage.name: batch(stage, RECORDS) for stage in pipeline.stages}
    longest = max(window.end - window.start for _, window in whole[pipeline.stages[0].name])
    assert longest > 5 * pipeline.stages[0].where.reach, "the data has sessions that begin long before they end"
    for _ in range(3):
        first, last = sorted(instant(START) + chance.randrange(-60, 500) * SECOND for _ in range(2))
        with closing(open_(plain, lake)) as session:
            shared = RangeAnswers(session, pipeline, first, last + 1)
            for stage in pipeline.stages:
                within = {at: found for at, found in whole[stage.name].items() if first <= at[1].timestamp <= last}
                assert answered(shared, stage, first, last + 1) == within, (first, last)


FIXED = replace(VISITS, name="minutes", where=Fixed(seconds(60), seconds(7)), how=ACCUMULATING)


@pytest.mark.parametrize("open_", [here, pytest.param(cluster, marks=deep)])
def test_V5_fixed_windows_of_a_range_have_all_of_their_records_as_of_any_epoch_and_no_others(
    plain: SparkSession, settings: Settings, tmp_path: Path, open_: Callable[[SparkSession, Lake], Session]
) -> None:
    """What files' statistics say of all rows is not looked at again, so ranges and epochs cut files and do not."""
    lake, chance = streamed(plain, settings, tmp_path / "landing", FIXED), random.Random(13)
    for _ in range(12):
        epoch = chance.choice([0, 1, 99])
        first, last = (instant(START) + chance.randrange(-600, 600) * SECOND + chance.randrange(3) for _ in range(2))
        first, last = min(first, last), max(first, last) + chance.choice([1, 10**10])
        by_then = batch(FIXED, RECORDS[: 100 * (epoch + 1)])
        with closing(open_(plain, lake)) as session:
            shared = RangeAnswers(session, FIXED, first, last)
            within = {at: found for at, found in by_then.items() if first <= at[1].timestamp < last}
            assert answered(shared, FIXED, first, last, epoch) == within, (epoch, first, last)


def test_bounds_hold_for_every_row_of_files_and_are_not_known_where_a_row_has_no_value(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    table = streamed(plain, settings, tmp_path / "landing", FIXED).table("clicks")
    files, held = [task.file for task in table.scan().plan_files()], table.scan().to_arrow()
    at, epoch, cents, who = (table.schema().find_field(name) for name in ("at", "_epoch", "cents", "who"))
    assert bounds(files, at) == tuple(instant(end(held["at"]).as_py()) for end in (pc.min, pc.max))
    assert bounds(files, epoch) == (0, pc.max(held["_epoch"]).as_py())
    assert bounds([file for file in files if bounds([file], epoch) == (1, 1)], epoch) == (1, 1)
    assert bounds(files, who) is None, "text is cut short in statistics"
    assert bounds([], at) is None
    with open_transaction(table) as transaction:
        names, rows = table.schema().column_names, held.slice(0, 1)
        gap = [pa.nulls(1, rows[name].type) if name == "cents" else rows[name] for name in names]
        transaction.append(pa.table(gap, rows.select(names).schema))
    assert bounds(files, cents) is not None
    assert bounds([task.file for task in table.refresh().scan().plan_files()], cents) is None


def test_a_run_of_closed_windows_reads_the_log_no_further_than_they_reach(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, records = list[int](), range_answers.range_records

    def seen(answering: Any, first: int, last: int, epoch: int) -> str:
        asked.append(last)
        return records(answering, first, last, epoch)

    lake = streamed(plain, settings, tmp_path / "landing", VISITS)
    monkeypatch.setattr(range_answers, "range_records", seen)
    closed = VISITS.closed_until(lake.head("visits__ledger").number("watermark"))
    runs = backfill(lake, VISITS, instant(START), dry_run=True)
    assert len(runs) == 2, "closed windows and open ones"
    assert asked == [closed]


def test_what_a_stage_answers_is_computed_once_for_its_own_run_and_the_next_stage(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, records = list[Pipeline](), range_answers.range_records

    def counted(answering: Any, *bounds: int) -> str:
        asked.append(answering.pipeline)
        return records(answering, *bounds)

    streamed(plain, settings, tmp_path / "landing", BILLS)
    lake = Lake(settings.model_copy(update={"engine": "spark"}))
    monkeypatch.setattr(range_answers, "range_records", counted)
    until = min(stage.closed_until(lake.head(f"{stage.name}__ledger").number("watermark")) for stage in BILLS.stages)
    found = backfill_stages(lake, BILLS, instant(START) - 10**10, until)
    assert [stage.name for stage, _ in found] == ["visits", "bills"]
    assert all(run.changed for _, [run] in found), "late records are counted in both"
    assert [one.name for one in asked] == ["bills"]
    held = plain.sparkContext._jsc.getPersistentRDDs().size()
    again = backfill_stages(lake, BILLS, instant(START) - 10**10, until)
    assert [run.changed for _, [run] in again] == [0, 0]
    assert plain.sparkContext._jsc.getPersistentRDDs().size() <= held, "what was kept is let go of"
