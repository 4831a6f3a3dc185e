"""Windows of processing time, fixed and sessions: a log by when its records arrive (rules T2, T3, laws L1 to L3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Arrivals,
    Collect,
    Count,
    Fixed,
    Join,
    Log,
    Map,
    Max,
    Pipeline,
    Sessions,
    Sum,
    Union,
    minutes,
    seconds,
)
from tailrace.backfill.backfill import backfill
from tailrace.engines.duckdb.database.connection import EngineError
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import last_epoch
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import DefinitionError
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.step.chain_fold import fold_chain
from tailrace.operate.changeover import apply
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.cases.clicks import START
from tests.support.cases.strategies import each_time_the_same
from tests.support.depth import cases
from tests.support.lakes.several_logs import (
    CLICKS,
    SECOND,
    VIEWS,
    Logs,
    Part,
    ledger_panes,
    random_epochs,
    reference_panes,
    view,
)

SEEN = Arrivals(of=VIEWS)
BY_MINUTE = Pipeline(
    name="by_minute", log=SEEN, key="ad", what={"n": Count(), "newest": Max("at")}, where=Fixed(minutes(1)),
    how=RETRACTING, when=AfterWatermark(early=AfterCount(2)),
)  # fmt: skip
SITTINGS = Pipeline(
    name="sittings", log=SEEN, key="ad", what={"ads": Collect("ad")}, where=Sessions(seconds(60)), how=RETRACTING,
    when=AfterWatermark(early=AfterCount(1)),
)  # fmt: skip
BUSIEST = Pipeline(
    name="busiest", log=BY_MINUTE.panes, key=(), what={"most": Max("n"), "all": Sum("n")}, where=Fixed(minutes(10)),
    how=RETRACTING,
)  # fmt: skip


def now(epoch: int) -> int:
    """Epochs come ever slower: 7 seconds after each other, then 21, then 35."""
    return instant(START) + 7 * SECOND * epoch * epoch


def landed(folder: Any, seed: int, count: int = 9) -> Logs:
    logs = Logs(Lake(Settings(warehouse=folder / "lake", contracts=folder, memory="1GB")), now=now)
    chance = Random(seed)
    for parts in random_epochs(chance, count):
        logs.land(parts)
        if chance.random() < 0.3:
            # As a process that dies and begins anew from the tables.
            logs.fold(BUSIEST, SITTINGS)
    return logs


def epochs(logs: Logs) -> Iterator[tuple[list[dict[str, Any]], Clock]]:
    """The log's epochs as the reference has them; where the log has none, time stands still."""
    at = BEGINNING
    for epoch, parts in enumerate(logs.epochs):
        part = parts["views"]
        at = at if part is None else now(epoch)
        yield [dict(one) for one in part.records] if part else [], Clock(epoch, BEGINNING, at)


def expected(definition: Pipeline, logs: Logs) -> list[tuple[Any, ...]]:
    return reference_panes(definition, fold_chain(definition, epochs(logs))[-1].panes)


@each_time_the_same(cases(1, 60))
@given(seed=st.integers(0, 10**6))
def test_L1_L2_L3_windows_of_processing_time_are_the_references_whatever_dies(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    logs = landed(tmp_path_factory.mktemp("arrivals"), seed)
    logs.land({"views": Part([view(3, "a")], BEGINNING), "clicks": None})
    logs.fold(BUSIEST, SITTINGS)
    for definition in (BY_MINUTE, SITTINGS, BUSIEST):
        assert ledger_panes(logs.lake, definition) == expected(definition, logs)
        found = audit(logs.lake, definition)
        assert found.ok, [check for check in found.checks if not check.ok]
        again = replay(logs.lake, definition)
        assert again.ok, again.differences
    before, cut = ledger_panes(logs.lake, SITTINGS), instant(START) + 120 * SECOND
    for first, last in ((BEGINNING, cut), (cut, END_OF_TIME)):
        backfill(logs.lake, SITTINGS, first, last)
    # What came is in the log with its time, so there is nothing to correct.
    assert ledger_panes(logs.lake, SITTINGS) == before
    assert audit(logs.lake, SITTINGS).ok


def test_no_record_is_late_and_a_window_is_complete_once_it_is_over(settings: Settings) -> None:
    logs = Logs(Lake(settings), now=lambda epoch: instant(START) + 40 * SECOND * epoch)
    # Of two hours ago, and of tomorrow: what counts is when they come.
    logs.land({"views": Part([view(-7200, "a"), view(86_400, "a")], BEGINNING), "clicks": None})
    logs.land({"views": Part([view(-9000, "a")], BEGINNING), "clicks": None})
    logs.land({"views": Part([], BEGINNING), "clicks": None})
    logs.fold(BY_MINUTE)
    rows = logs.lake.table("by_minute__ledger").scan().to_arrow().to_pylist()
    assert [row for row in rows if row["kind"] == "late"] == []
    fired = [(row["epoch"], row["timing"], row["n"]) for row in rows if row["kind"] == "pane" and not row["retraction"]]
    assert sorted(fired) == [(0, "early", 2), (2, "on_time", 3)]


@pytest.mark.slow
def test_L1_a_definition_that_changed_is_built_anew_with_the_times_of_its_epochs(tmp_path: Path) -> None:
    logs = landed(tmp_path, 5)
    changed = Pipeline(name="sittings", log=SEEN, key="ad", what={"n": Count()}, where=Sessions(seconds(90)))
    apply(logs.lake, changed)
    logs.land({"views": Part([view(3, "a")], BEGINNING), "clicks": None})
    logs.fold(changed)
    found = audit(logs.lake, changed)
    assert found.ok, [check for check in found.checks if not check.ok]


def test_X6_where_it_is_not_known_when_records_came_nothing_is_guessed(settings: Settings) -> None:
    logs = Logs(Lake(settings), now=now)
    for number in range(3):
        logs.land({"views": Part([view(number, "a")], BEGINNING), "clicks": None})
    logs.fold(BY_MINUTE)
    log = logs.lake.table("views")
    # As another tool expires them: nothing is archived.
    log.maintenance.expire_snapshots().by_id(log.snapshots()[1].snapshot_id).commit()
    said = "it is not known any more when the records of an epoch arrived: log views, epoch 0"
    with pytest.raises(EngineError, match=said):
        audit(logs.lake, BY_MINUTE)


def test_L1_windows_of_processing_time_say_the_same_on_spark(plain: SparkSession, settings: Settings) -> None:
    lake = Lake(settings.model_copy(update={"engine": "spark"}))
    logs = Logs(lake, now=now)
    for parts in random_epochs(Random(11), 3):
        logs.land(parts)
    logs.land({"views": Part([view(3, "a")], BEGINNING), "clicks": None})
    group = FoldGroup(plain, lake, [BY_MINUTE])
    list(group.missed_epochs(last_epoch(lake, group.logs)))
    assert group.due() == instant(START) + 120 * SECOND
    group.close()
    assert ledger_panes(logs.lake, BY_MINUTE) == expected(BY_MINUTE, logs)
    assert audit(lake, BY_MINUTE).ok


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda: Arrivals(of=Union(name="ads", of=(VIEWS, CLICKS))), "a log that a source fills"),
        (lambda: Arrivals(of=BY_MINUTE.panes), "a log that a source fills"),
        (lambda: Arrivals(of=Log(name="o", columns={"arrival": "timestamp"}, event_time="arrival")), "of that name"),
        (lambda: Map(name="m", log=SEEN), "only a pipeline's windows go by arrival"),
        (lambda: Join(name="j", left=SEEN, right=CLICKS, on="ad", within=seconds(5)), "only a pipeline's windows"),
        (lambda: Union(name="u", of=(SEEN, CLICKS)), "only a pipeline's windows"),
    ],
)
def test_what_has_no_windows_does_not_go_by_arrival(refused: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        refused()
