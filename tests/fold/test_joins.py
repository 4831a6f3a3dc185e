"""Joins of two logs, folded in this process from logs of made-up epochs, beside the reference (laws L1 to L3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
    Count,
    Fixed,
    Join,
    Pipeline,
    Sliding,
    Sum,
    minutes,
    seconds,
)
from tailrace.backfill.pipeline_backfill import backfill
from tailrace.engines.choose import Engine
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import last_epoch
from tailrace.lake.read.query_views import by_duckdb
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.model.definition.join import JoinKind
from tailrace.model.logs.log import PANE_TIME
from tailrace.model.step import join_step
from tailrace.model.step.chain_fold import fold_chain
from tailrace.settings import Settings
from tailrace.verify.join_replay import replay_join
from tailrace.verify.pipeline_audit import audit
from tailrace.verify.stage_replay import replay
from tests.support.depth import cases, deep
from tests.support.several import CLICKS, VIEWS, Logs, Part, random_epochs
from tests.support.strategies import each_time_the_same

NAMED: Any = {"left_columns": {"viewed_at": "at"}, "right_columns": {"clicked_at": "seen", "cents": "cents"}}
APART = (seconds(5), seconds(60))
KINDS: tuple[JoinKind, ...] = ("inner", "left", "right", "full")
JOINS = {
    kind: Join(name=f"j_{kind}", left=VIEWS, right=CLICKS, on="ad", kind=kind, within=APART, **NAMED)
    for kind in KINDS
} | {
    "late": Join(name="j_late", left=VIEWS, right=CLICKS, on="ad", within=seconds(30),
                 allowed_lateness=minutes(2), **NAMED),
    "fixed": Join(name="j_fixed", left=VIEWS, right=CLICKS, on="ad", kind="full", where=Fixed(minutes(1)), **NAMED),
    "sliding": Join(name="j_sliding", left=VIEWS, right=CLICKS, on="ad", kind="left",
                    where=Sliding(minutes(1), every=seconds(30)), **NAMED),
}  # fmt: skip


@pytest.fixture
def logs(settings: Settings) -> Logs:
    return Logs(Lake(settings))


def answers(lake: Lake, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.table(table).scan().to_arrow().to_pylist()
    return found


def by_log(epoch: int, parts: Mapping[str, Part | None]) -> dict[str, tuple[list[dict[str, Any]], Clock]]:
    """An epoch of the logs as a chain of definitions takes it."""
    found = {}
    for name, part in parts.items():
        assert part is not None
        place = {"_epoch": epoch, "_source": f"{name}.json"}
        records = [dict(one) | place | {"_offset": number} for number, one in enumerate(part.records)]
        found[name] = records, Clock(epoch, part.watermark, epoch)
    return found


def rows(lake: Lake, join: Join, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        lake.table(f"{join.name}__ledger").scan(row_filter=f"kind = '{kind}'").to_arrow().to_pylist()
    )
    return found


def reference(logs: Logs, join: Join) -> tuple[Counter[Any], Counter[Any]]:
    state, pairs, late = join_step.JoinState(), Counter[Any](), Counter[Any]()
    for records, clock in logs.together(join.log):
        state, made, too_late = join_step.step(join, state, records, clock)
        pairs.update((clock.epoch, moment(one.at), *(one.values[name] for name in join.results)) for one in made)
        late.update((one.record.side, one.epoch, moment(one.record.at)) for one in too_late)
    return pairs, late


def same_as_the_reference(logs: Logs, join: Join) -> None:
    pairs = Counter(
        (one["epoch"], one[PANE_TIME], *(one[name] for name in join.results))
        for one in rows(logs.lake, join, "production")
    )
    late = Counter((one["side"], one["epoch"], one[PANE_TIME]) for one in rows(logs.lake, join, "late"))
    assert (pairs, late) == reference(logs, join)


@each_time_the_same(cases(1, 40))
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("which", JOINS)
def test_L1_any_cut_of_two_logs_gives_the_pairs_of_the_reference(
    tmp_path_factory: pytest.TempPathFactory, which: str, seed: int
) -> None:
    chance, join = Random(seed), JOINS[which]
    logs = Logs(Lake(Settings(warehouse=tmp_path_factory.mktemp("join") / "lake", memory="1GB")))
    for parts in random_epochs(chance, 8):
        logs.land(parts)
        if chance.random() < 0.4:
            logs.fold(join)
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    logs.fold(join)
    same_as_the_reference(logs, join)
    audited = audit(logs.lake, join)
    assert audited.ok, [check for check in audited.checks if not check.ok]
    again = replay_join(logs.lake, join)
    assert again.ok, again.quoted
    backfill(logs.lake, join, BEGINNING)
    audited = audit(logs.lake, join)
    assert audited.ok, [check for check in audited.checks if not check.ok]
    assert standing(logs.lake, join) == finished(logs, join)


def standing(lake: Lake, join: Join) -> Counter[Any]:
    """The pairs that stand: what was given less what was taken back."""
    found = Counter[Any]()
    for one in rows(lake, join, "production"):
        found[(one[PANE_TIME], *(one[name] for name in join.results))] += -1 if one["retraction"] else 1
    return +found


def finished(logs: Logs, join: Join) -> Counter[Any]:
    records = [record for epoch, _ in logs.together(join.log) for record in epoch]
    made = join_step.finished(join, records)
    return Counter((moment(one.at), *(one.values[name] for name in join.results)) for one in made)


CLICKED = Pipeline(
    name="clicked", log=JOINS["left"].produced, key="ad", what={"views": Count(), "cents": Sum("cents")},
    where=Fixed(minutes(1)), when=AfterWatermark(early=AfterCount(2)), how=RETRACTING,
)  # fmt: skip


def test_L1_L3_a_pipeline_over_a_join_waits_for_the_records_without_a_partner(logs: Logs) -> None:
    marks = {"views": BEGINNING, "clicks": BEGINNING}
    for parts in random_epochs(Random(11), 8):
        marks |= {name: part.watermark for name, part in parts.items() if part is not None}
        logs.land({name: Part(() if part is None else part.records, marks[name]) for name, part in parts.items()})
        logs.fold(CLICKED)
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    logs.fold(CLICKED)
    # What a record without a partner waits for, the pipeline's watermark waits for, too: none comes late (T3).
    join = JOINS["left"]
    assert sum(standing(logs.lake, join).values()) == sum(one["views"] for one in answers(logs.lake, "clicked"))
    chain = fold_chain(CLICKED, [by_log(epoch, parts) for epoch, parts in enumerate(logs.epochs)])
    panes = [(pane.key, pane.window.start, dict(pane.values)) for pane in chain[-1].panes if not pane.retraction]
    assert {(key, start): values for key, start, values in panes} == {
        ((one["ad"],), instant(one["window_start"])): {"views": one["views"], "cents": one["cents"]}
        for one in answers(logs.lake, "clicked")
    }
    for definition in (join, CLICKED):
        assert audit(logs.lake, definition).ok
    assert replay(logs.lake, CLICKED).ok
    assert backfill(logs.lake, join, BEGINNING)
    assert backfill(logs.lake, CLICKED, BEGINNING, END_OF_TIME)
    assert audit(logs.lake, CLICKED).ok
    pairs = sum(finished(logs, join).values())
    assert pairs == sum(one["views"] for one in answers(logs.lake, "clicked"))
    (found,) = by_duckdb(logs.lake, "SELECT COUNT(*) AS n FROM j_left__rows").to_pylist()
    assert found["n"] == pairs


@pytest.mark.parametrize("which", ["full", pytest.param("sliding", marks=deep)])
def test_L1_a_join_that_goes_over_to_spark_and_back_gives_the_pairs_of_the_reference(
    plain: SparkSession, settings: Settings, which: str
) -> None:
    join, here = JOINS[which], Logs(Lake(settings))
    cluster = Lake(settings.model_copy(update={"engine": "spark"}))
    for epoch, parts in enumerate(random_epochs(Random(3), 5)):
        here.land(parts)
        if epoch == 1:
            fold_on(plain, cluster, join)
        elif epoch == 3:
            here.fold(join)
    here.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    fold_on(plain, cluster, join)
    same_as_the_reference(here, join)
    audited = audit(cluster, join)
    assert audited.engine.engine is Engine.SPARK
    assert audited.ok, [check for check in audited.checks if not check.ok]
    assert replay_join(cluster, join).ok
    backfill(cluster, join, BEGINNING)
    assert standing(here.lake, join) == finished(here, join)


def fold_on(spark: SparkSession, lake: Lake, join: Join) -> None:
    group = FoldGroup(spark, lake, [join])
    group.catch_up(last_epoch(lake, group.logs), lambda *_: None)
    assert not group[0].side.direct  # type: ignore[attr-defined]
    group.close()
