"""A backfill of windows that are still open, beside the stream that goes on from what it leaves (rule X4)."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Count,
    Fixed,
    Pipeline,
    Sessions,
    Sum,
    minutes,
)
from tailrace.backfill.backfill import backfill, backfill_stages
from tailrace.engines.batch import run_engine
from tailrace.engines.duckdb.follower import ProcessFollower
from tailrace.engines.spark import cluster
from tailrace.lake.commit.lease import BORROWER, LENDER, Lease
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.lake_errors import FencedError
from tailrace.lake.schema.table_names import RESTING
from tailrace.model.base.time import BEGINNING
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.depth import deep
from tests.support.lakes.rides import HOURLY, Case, within

VISITS = replace(HOURLY, name="visits", where=Sessions(minutes(30)))
BILLS = Pipeline(
    name="bills", log=VISITS.panes, key="who", what={"n": Count(), "cents": Sum("cents")}, where=Fixed(minutes(240)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)), how=RETRACTING,
)  # fmt: skip


MORNING = [("ann", 1, "08:05"), ("bob", 2, "08:10"), ("ann", 4, "08:20"), ("ann", 8, "08:40")]


def much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Spark take what it reads and what it gives for too much for this process to write."""
    monkeypatch.setattr(run_engine, "table_bytes", lambda *_: 10**12)
    monkeypatch.setattr(cluster, "SMALL", -1)
    monkeypatch.setattr(ProcessFollower, "small", lambda *_, **__: False)


def without_ann(spark: SparkSession, settings: Settings, folder: Path) -> Case:
    """Stream the morning's rides, and have the ledger's state lose those of ann."""
    case = Case(spark, settings, folder / "landing")
    case.land(*MORNING)
    case.drain(HOURLY)
    case.lose(HOURLY, "ann")
    return case


@pytest.mark.parametrize(
    ("pipeline", "engine", "small"),
    [
        pytest.param(HOURLY, "duckdb", True, id="fixed"),
        pytest.param(VISITS, "duckdb", True, id="sessions"),
        pytest.param(VISITS, "spark", True, id="sessions_on_spark", marks=deep),
        pytest.param(HOURLY, "spark", False, id="much_on_spark_with_windows_in_files"),
    ],
)
def test_X4_a_stream_goes_on_from_the_windows_that_a_backfill_put_right(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    pipeline: Pipeline, engine: str, small: bool,
) -> None:  # fmt: skip
    chosen: dict[str, object] = {"engine": engine}
    if not small:
        much(monkeypatch)
        chosen |= {"windows_in_driver": 0, "windows_in_memory": 0}
    case = Case(plain, settings.model_copy(update=chosen), tmp_path / "landing")
    case.land(*MORNING)
    case.drain(pipeline)
    case.lose(pipeline, "ann")
    # The stream is up with a wrong state, and stays up.
    running = case.stream(pipeline)
    running.start()
    case.land(("ann", 16, "08:45"), ("bob", 1, "08:50"))
    within(running, lambda: running.epoch == 1 and running.folds[0].epoch == 1)
    assert any(f"{RESTING}_" in name for name in case.lake.tables) != small
    tried = backfill(case.lake, pipeline, BEGINNING, dry_run=True)[-1]
    done = backfill(case.lake, pipeline, BEGINNING)[-1]
    assert (tried.changed, tried.untouched, tried.retracted) == (done.changed, done.untouched, done.retracted)
    own = 1 if pipeline is HOURLY else 2
    assert (done.changed, done.untouched) == (1, own), "ann's window is wrong, bob's are right"
    assert done.run.status == "committed"
    assert done.run.log_epoch == 1
    case.land(("ann", 32, "08:55"), ("bob", 1, "08:56"))
    case.land(("zoe", 0, "12:30"))
    within(running, lambda: running.folds[0].epoch == 3)
    assert LENDER not in case.lake.head(f"{pipeline.name}__ledger").properties
    again = backfill(case.lake, pipeline, BEGINNING)[-1]
    assert (again.changed, again.retracted) == (0, 0), "V4: what is right is left alone"
    running.stop()
    running.close()
    found = audit(case.lake, pipeline)
    assert found.ok, found.checks
    start = "08:00" if pipeline is HOURLY else "08:05"
    assert case.answers(pipeline)["ann", start] == (5, 61)
    generation = plain.sql(f"SELECT MAX(generation) FROM {pipeline.name}__ledger WHERE writer = 'stream'").collect()[0][
        0
    ]
    assert generation == done.run.generation, "V2: the stream goes on in the generation of the state it was handed"


def test_X4_an_epoch_that_is_folded_while_the_lease_is_lent_is_folded_again(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    case.land(*MORNING)
    case.drain(HOURLY)
    running = case.stream(HOURLY)
    running.start()
    case.land(("ann", 16, "08:45"))
    within(running, lambda: running.folds[0].epoch == 1)
    lease = Lease.borrow(case.lake, "hourly__ledger", "by_hand")
    case.land(("ann", 32, "08:50"))
    within(running, lambda: running.epoch == 2)
    assert running.folds[0].epoch == 1, "it waits"
    lease.give_back()
    lease.close()
    within(running, lambda: running.folds[0].epoch == 2)
    running.stop()
    running.close()
    case.land(("zoe", 0, "14:00"))
    case.drain(HOURLY)
    assert audit(case.lake, HOURLY).ok
    assert case.answers(HOURLY)["ann", "08:00"] == (5, 61)


def test_X4_a_backfill_whose_lease_a_stream_took_borrows_it_again(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case = without_ann(plain, settings, tmp_path)
    lease = Lease.borrow(case.lake, "hourly__ledger", "slow")
    heir = Lease.take(case.lake, "hourly__ledger")
    with pytest.raises(FencedError, match="another stream took the lease"):
        lease.check()
    assert BORROWER not in heir.head.properties
    done = backfill(case.lake, HOURLY, BEGINNING)[-1]
    assert done.changed == 1
    assert case.answers(HOURLY)["ann", "08:00"] == (3, 13)


def test_X4_two_backfills_of_open_windows_go_one_after_the_other(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case = without_ann(plain, settings, tmp_path)
    lease = Lease.borrow(case.lake, "hourly__ledger", "first")
    ended: list[float] = []

    def second() -> None:
        backfill(case.lake, HOURLY, BEGINNING)
        ended.append(time.monotonic())

    other = threading.Thread(target=second)
    other.start()
    time.sleep(2)
    assert not ended, "it waits for the first"
    lease.give_back()
    other.join(120)
    assert ended
    assert case.answers(HOURLY)["ann", "08:00"] == (3, 13)
    statuses = [run.status for run in Runs(case.lake, HOURLY).all() if run.kind == "backfill"]
    assert set(statuses) == {"committed"}


@pytest.mark.parametrize(
    ("engine", "killed"),
    [
        pytest.param("duckdb", False, id="whole"),
        pytest.param("duckdb", True, id="killed", marks=deep),
        pytest.param("spark", True, id="killed_on_spark", marks=deep),
    ],
)
def test_X4_later_stages_go_on_from_what_a_backfill_corrected_and_read_what_it_corrected_before_them(
    plain: SparkSession, settings: Settings, tmp_path: Path, engine: str, killed: bool
) -> None:
    case = Case(plain, settings.model_copy(update={"engine": engine}), tmp_path / "landing")
    case.land(*MORNING, ("bob", 2, "08:11"))
    case.drain(BILLS)
    case.lose(VISITS, "ann")
    case.lose(BILLS, "bob")
    running = case.stream(BILLS)
    running.start()
    case.land(("ann", 16, "08:45"), ("bob", 1, "08:30"), ("cid", 1, "08:20"))
    within(running, lambda: running.epoch == 1 and all(fold.epoch == 1 for fold in running.folds))
    if killed:
        # It has corrected the first stage, and dies.
        assert backfill(case.lake, VISITS, BEGINNING)[-1].changed == 1
    else:
        done = [runs[-1].changed for _, runs in backfill_stages(case.lake, BILLS, BEGINNING)]
        assert done == [1, 1], "ann's visit, bob's bill"
    case.land(("ann", 32, "08:55"), ("bob", 1, "08:40"))
    within(running, lambda: all(fold.epoch == 2 for fold in running.folds))
    again = [runs[-1].changed for _, runs in backfill_stages(case.lake, BILLS, BEGINNING)]
    assert again == [0, 1 if killed else 0]
    case.land(("ann", 64, "09:01"), ("zoe", 0, "02T08:00"))
    within(running, lambda: all(fold.epoch == 3 for fold in running.folds))
    running.stop()
    running.close()
    for stage in BILLS.stages:
        found = audit(case.lake, stage)
        assert found.ok, (stage.name, found.checks)
        told = replay(case.lake, stage, 2)
        assert not told.differences, (stage.name, told.differences)
    assert case.answers(BILLS)["ann", "08:00"] == (1, 1 + 4 + 8 + 16 + 32 + 64)
    assert case.answers(BILLS)["bob", "08:00"] == (1, 6)
