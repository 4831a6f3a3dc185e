"""Definitions over several logs, folded in this process from logs of made-up epochs (rules T2, T3, laws L1 to L3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Collect,
    Computation,
    Context,
    Count,
    Field,
    Fixed,
    Map,
    Match,
    Pipeline,
    Sessions,
    Sum,
    Union,
    days,
    minutes,
    seconds,
)
from tailrace.backfill.backfill import backfill
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.restoration import restore
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.step.step import WindowsState, step
from tailrace.model.windows.panes import Pane
from tailrace.operate.changeover import apply, rollback
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.cases.strategies import each_time_the_same
from tests.support.depth import cases
from tests.support.lakes.several_logs import (
    ADS,
    CLICKS,
    VIEWS,
    Logs,
    Part,
    click,
    ledger_panes,
    random_epochs,
    reached,
    reference_panes,
    view,
)

COUNTED = Pipeline(
    name="counted", log=ADS, key=("ad", "log"), what={"records": Count(), "cents": Sum("cents")},
    where=Fixed(minutes(1)), when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
    allowed_lateness=minutes(2), how=RETRACTING,
)  # fmt: skip
VISITS = Pipeline(
    name="visits", log=ADS, key="ad", what={"records": Count(), "logs": Collect("log")}, where=Sessions(seconds(30)),
    keep=Match("ad", "!=", "c"), how=RETRACTING,
    when=AfterWatermark(early=AfterCount(3), late=AfterCount(1)), allowed_lateness=minutes(1),
)  # fmt: skip


def expected(logs: Logs, definition: Pipeline) -> list[tuple[Any, ...]]:
    state, found = WindowsState(), list[Pane]()
    for records, clock in logs.together():
        state, made, _, _ = step(definition, state, records, clock)
        found += made
    return reference_panes(definition, found)


@each_time_the_same(cases(1, 60))
@given(seed=st.integers(0, 10**6))
def test_L1_L2_L3_any_cut_of_two_logs_gives_the_panes_of_the_reference(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = Random(seed)
    folder = tmp_path_factory.mktemp("union")
    logs = Logs(Lake(Settings(warehouse=folder / "lake", contracts=folder, memory="1GB")))
    for parts in random_epochs(chance, 8):
        logs.land(parts)
        if chance.random() < 0.4:
            # As a process that dies and begins anew from the tables.
            logs.fold(COUNTED, VISITS)
    logs.land({"views": Part((), END_OF_TIME), "clicks": None})
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    logs.fold(COUNTED, VISITS)
    for definition in (COUNTED, VISITS):
        assert ledger_panes(logs.lake, definition) == expected(logs, definition)
        found = audit(logs.lake, definition)
        assert found.ok, [check for check in found.checks if not check.ok]
        again = replay(logs.lake, definition)
        assert again.ok, again.differences
        assert backfill(logs.lake, definition, BEGINNING, END_OF_TIME)
        assert audit(logs.lake, definition).ok


def test_T3_a_log_that_is_idle_is_not_waited_for_and_one_that_is_not_is(logs: Logs) -> None:
    logs.land({"views": Part([view(1, "a")], reached(200)), "clicks": Part((), BEGINNING)})
    logs.fold(COUNTED)
    assert logs.lake.head("counted__ledger").number("watermark") == BEGINNING
    logs.land({"views": Part((), reached(200)), "clicks": Part((), BEGINNING, idle=True)})
    logs.fold(COUNTED)
    assert logs.lake.head("counted__ledger").number("watermark") == reached(200)
    # It is back, and behind: the watermark stays where it is, and its record is late.
    logs.land({"views": Part((), reached(200)), "clicks": Part([click(70, "a", 5)], reached(65))})
    logs.fold(COUNTED)
    assert logs.lake.head("counted__ledger").number("watermark") == reached(200)
    assert ledger_panes(logs.lake, COUNTED) == expected(logs, COUNTED)
    assert "late" in {timing for _, _, _, timing, *_ in ledger_panes(logs.lake, COUNTED)}


def test_T3_an_epoch_counts_once_all_logs_have_it(logs: Logs) -> None:
    logs.land({"views": Part([view(1, "a")], reached(70)), "clicks": Part((), reached(70))})
    logs.land({"views": Part([view(2, "a")], reached(300)), "clicks": None})
    logs.fold(COUNTED)
    assert logs.lake.head("counted__ledger").number("epoch") == 0
    logs.land({"views": None, "clicks": Part([click(3, "a", 1)], reached(80))})
    logs.fold(COUNTED)
    assert logs.lake.head("counted__ledger").number("epoch") == 1
    logs.land({"views": Part((), reached(300)), "clicks": Part((), reached(300))})
    logs.fold(COUNTED)
    assert ledger_panes(logs.lake, COUNTED) == expected(logs, COUNTED)
    assert audit(logs.lake, COUNTED).ok


DEAR = Map(name="dear", log=CLICKS, keep=Match("cents", ">=", 5), what=("ad", "cents"))
SOME = Union(name="some", of={"view": VIEWS, "dear": DEAR.produced}, tag="of_log")
OF_MAP = Pipeline(
    name="of_map", log=SOME, key=("ad", "of_log"),
    what={"records": Count(), "cents": Sum("cents")}, where=Fixed(minutes(1)),
)  # fmt: skip


def test_L1_L3_a_union_of_a_log_and_of_what_a_map_makes_of_another(logs: Logs) -> None:
    for parts in random_epochs(Random(5), 6):
        logs.land({name: part or Part((), BEGINNING) for name, part in parts.items()})
        logs.fold(OF_MAP)
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    logs.fold(OF_MAP)
    records = [one for epoch in logs.epochs for part in epoch.values() if part is not None for one in part.records]
    late = logs.lake.table("of_map__ledger").scan(row_filter="kind = 'late'").count()
    rows = logs.lake.table("of_map").scan().to_arrow().to_pylist()
    assert sum(one["records"] for one in rows) + late == sum("at" in one or one["cents"] >= 5 for one in records)
    assert {one["of_log"] for one in rows} == {"view", "dear"}
    for definition in (DEAR, OF_MAP):
        found = audit(logs.lake, definition)
        assert found.ok, [check for check in found.checks if not check.ok]
    assert replay(logs.lake, OF_MAP).ok
    assert backfill(logs.lake, OF_MAP, BEGINNING, END_OF_TIME)
    assert audit(logs.lake, OF_MAP).ok


@dataclass(frozen=True, kw_only=True)
class Matched(Computation):
    """For each ad, a click counts once a view of it has come, in the order of their event times."""

    state = {"views": Field("bigint", 0)}
    produces = {"cents": "bigint"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        if record["log"] == "views":
            context.state.views += 1
        elif context.state.views:
            context.produce({"cents": record["cents"]}, record["event_time"])


def test_a_computation_sees_which_log_a_record_is_of(logs: Logs) -> None:
    matched = Matched(name="matched", log=ADS, key="ad", ordered=True)
    logs.land(
        {
            "views": Part([view(10, "a")], reached(12)),
            "clicks": Part([click(9, "a", 1), click(11, "b", 2)], reached(12)),
        }
    )
    logs.land(
        {
            "views": Part([view(20, "b")], reached(60)),
            "clicks": Part([click(30, "a", 3), click(40, "b", 4)], reached(60)),
        }
    )
    logs.fold(matched)
    rows = logs.lake.table("matched__ledger").scan(row_filter="kind = 'production'").to_arrow().to_pylist()
    assert {(one["ad"], one["cents"]) for one in rows} == {("a", 3), ("b", 4)}
    found = audit(logs.lake, matched)
    assert found.ok, [check for check in found.checks if not check.ok]


def test_a_definition_over_two_logs_is_changed_gone_back_with_and_goes_on_from_the_logs(logs: Logs) -> None:
    for parts in random_epochs(Random(9), 6):
        logs.land({name: part or Part((), BEGINNING) for name, part in parts.items()})
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    logs.fold(COUNTED, VISITS)
    before = answers(logs.lake)
    restore(logs.lake, [COUNTED, VISITS], 2)
    assert logs.lake.head("visits__ledger").number("epoch") == 2
    logs.fold(COUNTED, VISITS)
    assert answers(logs.lake) == before
    changed = replace(COUNTED, keep=Match("ad", "!=", "a"), allowed_lateness=days(1))
    done = apply(logs.lake, changed)
    assert (done.run is not None and done.run.status) == "committed"
    assert {ad for ad, *_ in answers(logs.lake)} == {ad for ad, *_ in before} - {"a"}
    assert audit(logs.lake, changed).ok
    rollback(logs.lake, COUNTED)
    assert answers(logs.lake) == before
    for definition in (COUNTED, VISITS):
        assert audit(logs.lake, definition).ok


def answers(lake: Lake) -> set[tuple[Any, ...]]:
    rows = lake.table("counted").scan().to_arrow().to_pylist()
    return {(one["ad"], one["log"], one["window_start"], one["records"], one["cents"]) for one in rows}
