"""Back to an epoch on a real lake: all stages together, and from there on again to the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tailrace import AfterCount, AfterWatermark, Count, Fixed, Pipeline, Sum, minutes
from tailrace.backfill.backfill import backfill
from tailrace.lake.catalog.table_protocol import MAIN
from tailrace.lake.change.restoration import RestoreError, restore
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.depth import deep
from tests.support.lakes.rides import HOURLY, Case

BUSY = Pipeline(
    name="busy", log=replace(HOURLY, answers=True).panes, key="n", where=Fixed(minutes(240)),
    what={"riders": Count(), "cents": Sum("cents")},
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)), how=HOURLY.how,
)  # fmt: skip

FILES = [
    [("ann", 1, "08:05"), ("bob", 2, "08:10")],
    [("ann", 4, "08:20"), ("ann", 8, "08:40")],
    [("bob", 16, "09:10"), ("zoe", 32, "08:50")],
    [("ann", 64, "12:15"), ("bob", 128, "13:00")],
    [("ann", 256, "12:20"), ("zoe", 512, "16:00")],
]


def tables(case: Case) -> dict[str, list[tuple[Any, ...]]]:
    """The panes and the answers of both stages, without the generations of those that were folded again."""
    found = {}
    for name in ("hourly", "busy"):
        for table, rows in ((name, f"SELECT * FROM {name}"), ("panes", f"SELECT * FROM {name}__ledger")):
            frame = case.spark.sql(rows + (" WHERE kind = 'pane'" if table == "panes" else ""))
            left = frame.drop("generation")
            found[f"{name} {table}"] = sorted(map(repr, left.collect()))
    return found  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.parametrize("log", [False, pytest.param(True, marks=deep)])
def test_X2_back_to_an_epoch_and_on_again_is_as_if_nothing_had_been(
    plain: SparkSession, settings: Settings, tmp_path: Path, log: bool
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    for file in FILES[:3]:
        case.land(*file)
    case.drain(BUSY)
    then = tables(case)
    for file in FILES[3:]:
        case.land(*file)
    case.drain(BUSY)
    after = tables(case)
    assert after != then
    found = restore(case.lake, [BUSY], 2, log=log, reason="a wrong price")
    expected = ["rides"] if log else []
    assert [one.table for one in found] == [*expected, "busy__ledger", "hourly__ledger"]
    assert {(one.before, one.epoch) for one in found} == {(4, 2)}
    assert case.lake.head("rides").number("epoch") == (2 if log else 4)
    refs = case.lake.refs("hourly__ledger")
    assert refs[found[-1].tag] != refs[MAIN], "what it held is still there, by its tag"
    assert tables(case)["hourly panes"] == then["hourly panes"]
    assert restore(case.lake, [BUSY], 2, log=log) == [], "there is nothing more to go back from"
    case.drain(BUSY)
    assert tables(case) == after
    for stage in BUSY.stages:
        assert audit(case.lake, stage).ok
    run = next(one for one in Runs(case.lake, HOURLY).all() if one.kind == "restore")
    assert (run.status, run.log_epoch, run.reason) == ("committed", 2, "back to epoch 2: a wrong price")


def test_V4_what_a_backfill_did_after_the_epoch_is_taken_back(
    plain: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    case.land(*FILES[0])
    case.drain(HOURLY)
    case.land(*FILES[1])
    case.drain(HOURLY)
    right = case.answers(HOURLY)
    case.lose(HOURLY, "ann")
    case.land(*FILES[2])
    case.drain(HOURLY)
    backfill(case.lake, HOURLY, 0)
    mended = case.answers(HOURLY)
    restore(case.lake, [HOURLY], 1)
    runs = [one for one in Runs(case.lake, HOURLY).all() if one.kind == "backfill"]
    assert {one.status for one in runs if one.changed} == {"taken_back"}
    case.drain(HOURLY)
    assert case.answers(HOURLY) == mended
    assert right.items() <= mended.items()
    assert audit(case.lake, HOURLY).ok


def test_an_epoch_that_is_not_kept_is_refused(plain: SparkSession, settings: Settings, tmp_path: Path) -> None:
    case = Case(plain, settings, tmp_path / "landing")
    with pytest.raises(LakeError, match=r"there is no table main\.hourly__ledger: a stream"):
        restore(case.lake, [HOURLY], 0)
    case.land(*FILES[0])
    case.drain(HOURLY)
    case.land(*FILES[1])
    case.drain(HOURLY)
    first = [one.snapshot for one in case.lake.commits("hourly__ledger") if one.properties.get("epoch") in ("-1", "0")]
    case.lake.forget("hourly__ledger", first)
    with pytest.raises(RestoreError, match="cannot go back to epoch 0: its snapshots of epochs 1 to 1 are kept"):
        restore(case.lake, [HOURLY], 0)
