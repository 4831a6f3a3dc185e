"""Records with which an epoch cannot be folded, for a reason that nobody foresaw: they are set aside (X7)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql import SparkSession

from tailrace import Col, Count, Derive, Fixed, Log, Map, Pipeline, SparkColumns, Sum, minutes
from tailrace.backfill.pipeline_backfill import backfill
from tailrace.fold.poison import MOST, found
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.events import Notice, Poisoned
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.set_aside import set_aside
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import instant
from tailrace.model.definition.record_steps import Place
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.verify.map_replay import replay_map
from tailrace.verify.pipeline_audit import audit
from tailrace.verify.stage_replay import replay

LOG = Log(name="orders", columns={"id": "bigint", "n": "bigint", "at": "timestamp"}, event_time="at")
STEPS = (SparkColumns({"share": ("bigint", "100 div n")}), Derive({"twice": Col("share") * 2}))
"""The first step is Spark's own, and fails of a zero."""
SHARES = Pipeline(name="shares", log=LOG, each=STEPS, what={"n": Count(), "all": Sum("twice")}, where=Fixed(minutes(1)))
ROWS = Map(name="each_share", log=LOG, each=STEPS, what=("id", "twice"))
DAY = (instant(datetime(2026, 1, 1, tzinfo=UTC)), instant(datetime(2026, 1, 2, tzinfo=UTC)))
COUNTS = Pipeline(name="counts", log=LOG, what={"n": Count()}, where=Fixed(minutes(1)))


def table(count: int) -> pa.Table:
    places = [{"_epoch": 3, "_source": f"file {row % 3}", "_offset": row // 3} for row in range(count)]
    return pa.Table.from_pylist([{**place, "row": row} for row, place in enumerate(places)])


def place_of(row: int) -> Place:
    return Place(3, f"file {row % 3}", row // 3)


@given(count=st.integers(1, 60), seed=st.randoms(use_true_random=False), bad=st.integers(0, 6), pairs=st.integers(0, 2))
def test_X7_just_the_records_are_found_without_which_an_epoch_can_be_folded(
    count: int, seed: object, bad: int, pairs: int
) -> None:
    draw = seed.sample  # type: ignore[attr-defined]
    alone = set(draw(range(count), min(bad, count)))
    together = [set(draw(range(count), min(2, count))) for _ in range(pairs)]

    def failed(rows: pa.Table) -> Exception | None:
        there = {*rows["row"].to_pylist()} if rows.num_rows else set[int]()
        return ArithmeticError("odd") if there & alone or any(pair <= there for pair in together) else None

    places = found(table(count), failed)
    assert places is not None
    rest = [row for row in range(count) if place_of(row) not in places]
    assert failed(table(count).take(pa.array(rest, pa.int64()))) is None
    # None was set aside that does no harm: each would make the others fail.
    for row in range(count):
        if place_of(row) in places:
            assert failed(table(count).take(pa.array([*rest, row], pa.int64()))) is not None


@pytest.mark.parametrize("blame", ["none", "all", "lake"])
def test_X7_where_the_records_are_not_to_blame_none_is_set_aside(blame: str) -> None:
    def failed(rows: pa.Table) -> Exception | None:
        if blame == "none":
            return ArithmeticError("whatever the records")
        if blame == "lake":
            return LakeError("a table is gone") if rows.num_rows else None
        return ArithmeticError("of any record") if rows.num_rows else None

    assert found(table(3 * MOST), failed) is None


def landed(folder: Path, epoch: int, numbers: Iterable[int]) -> None:
    file = folder / f"{epoch}.jsonl"
    lines = (
        json.dumps({"id": 100 * epoch + place, "n": n, "at": f"2026-01-01T00:{epoch:02}:{place:02}Z"})
        for place, n in enumerate(numbers)
    )
    file.write_text("\n".join(lines) + "\n")
    os.utime(file, (1_700_000_000 + epoch,) * 2)


def streamed(spark: SparkSession, lake: Lake, folder: Path) -> None:
    stream = Stream(spark, lake, [SHARES, ROWS, COUNTS], Files(str(folder), "json", 1))
    try:
        stream.start(once=True)
        stream.wait()
    finally:
        stream.close()


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_X7_a_stream_sets_aside_what_it_cannot_fold_and_goes_on(
    plain: SparkSession, settings: Settings, tmp_path: Path, engine: str
) -> None:
    notices, folder = list[Notice](), tmp_path / "landing"
    folder.mkdir()
    landed(folder, 0, [1, 2, 5])
    landed(folder, 1, [10, 0, 20, 0])
    landed(folder, 2, [4])
    lake = Lake(settings.model_copy(update={"engine": engine}), notices.append)
    streamed(plain, lake, folder)
    told = [(one.definition, one.epoch, one.records) for one in notices if isinstance(one, Poisoned)]
    assert told == [("shares", 1, 2), ("each_share", 1, 2)]
    # A start knows what was set aside, and finds more.
    landed(folder, 3, [0, 50])
    landed(folder, 9, [1])
    streamed(plain, lake, folder)
    for reasons in (set_aside(lake, SHARES), set_aside(lake, ROWS)):
        assert sorted((place.epoch, place.offset) for place in reasons) == [(1, 1), (1, 3), (3, 0)]
        assert all(why.startswith("set aside: ") and "by zero" in why for why in reasons.values())
    rows = lake.table("shares").scan().to_arrow().sort_by("window_start").to_pylist()
    assert [(row["n"], row["all"]) for row in rows[:4]] == [(3, 340), (2, 30), (1, 50), (1, 4)]
    counts = lake.table("counts").scan().to_arrow().sort_by("window_start")["n"].to_pylist()
    assert counts[:4] == [3, 4, 1, 2], "who can take the records counts them"
    for definition in (SHARES, ROWS, COUNTS):
        done = audit(lake, definition)
        assert done.ok, [check for check in done.checks if not check.ok]
    assert replay(lake, SHARES).ok
    assert replay_map(lake, ROWS).ok
    for definition in (SHARES, ROWS):
        runs = backfill(lake, definition, *DAY, dry_run=True)
        assert {(run.changed, run.retracted) for run in runs} == {(0, 0)}


def test_X7_a_stream_that_is_to_stop_stops_at_what_it_cannot_fold(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    landed(folder, 0, [1, 0])
    lake = Lake(settings.model_copy(update={"poison": "stop"}))
    with pytest.raises(TailraceError, match="by zero"):
        streamed(plain, lake, folder)
    assert not set_aside(lake, SHARES)
    # Once records may be set aside, the start after it goes on.
    streamed(plain, Lake(settings), folder)
    assert len(set_aside(lake, SHARES)) == 1
