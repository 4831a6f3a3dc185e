"""Joins of two logs, folded in this process from logs of made-up epochs, beside the reference (laws L1 to L3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
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
    AnyValue,
    Calendar,
    Collect,
    Count,
    Distinct,
    Explode,
    First,
    Fixed,
    Join,
    Last,
    Pipeline,
    Sliding,
    Sum,
    TopK,
    minutes,
    seconds,
)
from tailrace.backfill.backfill import backfill
from tailrace.engines.choose import Engine
from tailrace.engines.duckdb.iceberg_query import by_duckdb
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import last_epoch
from tailrace.lake.read.late_records import propose_backfills
from tailrace.lake.read.late_report import late_report
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant, moment
from tailrace.model.definition.chain import chain
from tailrace.model.definition.join_input import JoinKind
from tailrace.model.logs.log import PANE_TIME
from tailrace.model.step import join_step
from tailrace.model.step.chain_fold import epochs_read, fold_chain
from tailrace.model.step.join_step import Joined
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.cases.strategies import each_time_the_same
from tests.support.depth import DEPTH, cases, deep
from tests.support.engines.spark_runs import comparable
from tests.support.lakes.several_logs import (
    CLICKS,
    SECOND,
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
from tests.support.processes.serving import Seen, visited

NAMED: Any = {
    "left_columns": {"viewed_at": "at", "spots": "spots"},
    "right_columns": {"clicked_at": "seen", "cents": "cents", "shop": "shop"},
}
APART = (seconds(5), seconds(60))
KINDS: tuple[JoinKind, ...] = ("inner", "left", "right", "full")
JOINS = {
    kind: Join(name=f"j_{kind}", left=VIEWS, right=CLICKS, on="ad", kind=kind, within=APART, **NAMED)
    for kind in KINDS
} | {
    "late": Join(name="j_late", left=VIEWS, right=CLICKS, on="ad", within=seconds(30),
                 allowed_lateness=minutes(2), **NAMED),
    "told": Join(name="j_told", left=VIEWS, right=CLICKS, on="ad", kind="full", within=APART, unmatched="tell",
                 allowed_lateness=minutes(1), **NAMED),
    "corrected": Join(name="j_corrected", left=VIEWS, right=CLICKS, on="ad", kind="left", within=APART,
                      allowed_lateness=minutes(2), **NAMED),
    "told_fixed": Join(name="j_told_fixed", left=VIEWS, right=CLICKS, on="ad", kind="right", unmatched="tell",
                       where=Fixed(minutes(1)), allowed_lateness=minutes(1), **(NAMED | {"left_columns": "at"})),
    "fixed": Join(name="j_fixed", left=VIEWS, right=CLICKS, on="ad", kind="full", where=Fixed(minutes(1)), **NAMED),
    "sliding": Join(name="j_sliding", left=VIEWS, right=CLICKS, on="ad", kind="left",
                    where=Sliding(minutes(1), every=seconds(30)), **NAMED),
}  # fmt: skip


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
    if len(chain(join)) > 1:
        run = fold_chain(join, [by_log(epoch, parts) for epoch, parts in enumerate(logs.epochs)])[-1]
        return counted(join, run.joined), Counter(map(lateness, run.late_for_join))
    state, pairs, late = join_step.JoinState(), list[Joined](), Counter[Any]()
    for records, clock in logs.together(join.log):
        state, made, too_late = join_step.step(join, state, records, clock)
        pairs += made
        late.update(map(lateness, too_late))
    return counted(join, pairs), late


def counted(join: Join, made: Iterable[Joined]) -> Counter[Any]:
    values = ((one, (one.values[name] for name in join.results)) for one in made)
    return Counter((one.epoch, one.retraction, moment(one.at), *map(comparable, own)) for one, own in values)


def lateness(one: join_step.LateKept) -> tuple[Any, ...]:
    return one.record.side, one.epoch, moment(one.record.at)


def same_as_the_reference(logs: Logs, join: Join) -> None:
    pairs = Counter(
        (one["epoch"], one["retraction"], one[PANE_TIME], *(comparable(one[name]) for name in join.results))
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
    folder = tmp_path_factory.mktemp("join")
    logs = Logs(Lake(Settings(warehouse=folder / "lake", contracts=folder, memory="1GB")))
    for parts in random_epochs(chance, 8):
        logs.land(parts)
        if chance.random() < 0.4:
            logs.fold(join)
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    logs.fold(join)
    same_as_the_reference(logs, join)
    audited = audit(logs.lake, join)
    assert audited.ok, [check for check in audited.checks if not check.ok]
    again = replay(logs.lake, join)
    assert again.ok, again.differences
    backfill(logs.lake, join, BEGINNING)
    audited = audit(logs.lake, join)
    assert audited.ok, [check for check in audited.checks if not check.ok]
    assert standing(logs.lake, join) == finished(logs, join)


def standing(lake: Lake, join: Join) -> Counter[Any]:
    """The pairs that stand: what was given less what was taken back."""
    found = Counter[Any]()
    for one in rows(lake, join, "production"):
        row = (one[PANE_TIME], *(comparable(one[name]) for name in join.results))
        found[row] += -1 if one["retraction"] else 1
    return +found


def finished(logs: Logs, join: Join) -> Counter[Any]:
    if len(chain(join)) > 1:
        epochs = [by_log(epoch, parts) for epoch, parts in enumerate(logs.epochs)]
        records = [record for epoch, _ in epochs_read(join, epochs) for record in epoch]
    else:
        records = [record for epoch, _ in logs.together(join.log) for record in epoch]
    made = join_step.step(join, join_step.JoinState(), records, Clock(0, END_OF_TIME, 0))[1]
    return Counter((moment(one.at), *(comparable(one.values[name]) for name in join.results)) for one in made)


EARNED, SEEN = (
    Pipeline(
        name=name, log=log, key=("ad", *more), what=what, where=Fixed(minutes(2)), how=RETRACTING,
        when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)), allowed_lateness=minutes(1),
    )
    for name, log, more, what in (
        ("earned", CLICKS, ("cents",), {"clicks": Count()}),
        ("seen", VIEWS, (), {"views": Count(), "spots": Collect("spots"), "last": Last("spots")}),
    )
)  # fmt: skip
OF_OTHERS = {
    # Several answers of one ad and window look alike to the join: their cents do not go out.
    "panes": Join(name="j_panes", left=VIEWS, right=EARNED.panes, on="ad", kind="full", within=APART,
                  left_columns="at", right_columns="clicks"),
    "both": Join(name="j_both", left=SEEN.panes, right=EARNED.panes, on="ad", kind="full", where=Fixed(minutes(1)),
                 right_columns={"clicks": "clicks", "cents": "cents", "until": "window_end"}),
    "told": Join(name="j_told_panes", left=SEEN.panes, right=CLICKS, on="ad", kind="left", within=APART,
                 unmatched="tell", right_columns={"clicked_at": "seen", "cents": "cents", "shop": "shop"}),
}  # fmt: skip


_PAIRS = Join(name="j_pairs", left=VIEWS, right=CLICKS, on="ad", kind="left", within=seconds(10), **NAMED)
_KNOWN = Join(name="j_known", left=OF_OTHERS["told"].produced, right=VIEWS, on="ad", kind="left", within=seconds(30),
              left_columns=("views", "cents"), right_columns={"viewed_at": "at"})  # fmt: skip
_THREE = Join(name="j_three", left=_PAIRS.produced, right=VIEWS, on="ad", kind="full", within=APART,
              left_columns="cents", right_columns={"seen_at": "at"})  # fmt: skip
OF_OTHERS |= {"of_told": _KNOWN, "three": _THREE}


def whole(epochs: Iterable[Mapping[str, Part | None]]) -> Iterator[dict[str, Part]]:
    """The epochs with a commit of both logs in each, and then the end of both."""
    marks = {"views": BEGINNING, "clicks": BEGINNING}
    for parts in epochs:
        marks |= {name: part.watermark for name, part in parts.items() if part is not None}
        yield {name: Part(() if part is None else part.records, marks[name]) for name, part in parts.items()}
    yield {name: Part((), END_OF_TIME) for name in marks}


def random_join(chance: Random) -> Join:
    """A join of any sides, by distance or window, that gives and takes back whatever there is."""
    left, left_columns = chance.choice([
        (VIEWS, {"viewed_at": "at", "spots": "spots"}), (SEEN.panes, {"views": "views", "all": "spots"}),
        (_PAIRS.produced, {"known": "cents", "shop": "shop"}),
        (OF_OTHERS["told"].produced, {"views": "views", "known": "cents", "last": "last"}),
    ])  # fmt: skip
    right, right_columns = chance.choice([
        (CLICKS, {"cents": "cents", "at": "seen", "at_shop": "shop"}), (EARNED.panes, {"n": "clicks"}),
    ])  # fmt: skip
    near: dict[str, Any] = {"within": tuple(seconds(chance.choice([0, 5, 60])) for _ in range(2))}
    if chance.random() < 0.4:
        every = seconds(30)
        near = {"where": chance.choice([Fixed(minutes(1)), Sliding(minutes(1), every=every), Calendar("day")])}
    kind, least = chance.choice(KINDS), max(left.trails, right.trails)
    late = timedelta(microseconds=least + chance.choice([0, 60 * SECOND])) if chance.random() < 0.6 else None
    told: Any = "wait" if kind == "inner" else chance.choice(["wait", "tell"])
    return Join(
        name="j", left=left, right=right, on="ad", kind=kind, unmatched=told, allowed_lateness=late,
        left_columns=left_columns, right_columns=right_columns, **near,
    )  # fmt: skip


@each_time_the_same(cases(2, 150))
@given(seed=st.integers(0, 10**6))
def test_L1_L3_any_join_of_any_sides_takes_back_the_pairs_of_what_is_corrected(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    chance = Random(seed)
    join = random_join(chance)
    folder = tmp_path_factory.mktemp("join")
    logs = Logs(Lake(Settings(warehouse=folder / "lake", contracts=folder, memory="1GB")))
    for parts in whole(random_epochs(chance, 8)):
        logs.land(parts)
        if chance.random() < 0.4:
            logs.fold(join)
    logs.fold(join)
    same_as_the_reference(logs, join)
    for one in chain(join):
        assert isinstance(one, Join | Pipeline)
        audited = audit(logs.lake, one)
        assert audited.ok, [check for check in audited.checks if not check.ok]
    again = replay(logs.lake, join)
    assert again.ok, (join, again.counts, again.differences)
    # The answers are corrected first, and then what is joined of them.
    for one in chain(join):
        assert isinstance(one, Join | Pipeline)
        backfill(logs.lake, one, BEGINNING)
    audited = audit(logs.lake, join)
    assert audited.ok, [check for check in audited.checks if not check.ok]


CLICKED = Pipeline(
    name="clicked", log=JOINS["left"].produced, key="ad", what={"views": Count(), "cents": Sum("cents")},
    where=Fixed(minutes(1)), when=AfterWatermark(early=AfterCount(2)), how=RETRACTING,
)  # fmt: skip


@pytest.mark.parametrize(
    ("which", "idle"),
    [("left", True), ("told", False), pytest.param("left", False, marks=deep), pytest.param("told", True, marks=deep)],
)
def test_L1_a_side_that_is_dead_for_an_hour_is_waited_for_or_its_late_records_are_mended(
    settings: Settings, which: str, idle: bool
) -> None:
    logs, join = Logs(Lake(settings), now=lambda epoch: epoch * 300 * SECOND), JOINS[which]
    at_first = reached(0)
    for epoch in range(13):
        views = [view(300 * epoch, ad) for ad in "abc"]
        dead = Part((), at_first, idle=True) if idle else None
        clicks = Part((), at_first) if epoch == 0 else dead
        logs.land({"views": Part(views, reached(300 * epoch)), "clicks": clicks})
        if epoch in (0, 6):
            logs.fold(join)
    came = [click(300 * epoch + 20, "ab"[epoch % 2], epoch) for epoch in range(13)]
    logs.land({"views": Part((), reached(3_700)), "clicks": Part(came, reached(3_700))})
    logs.fold(join)
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    logs.fold(join)
    same_as_the_reference(logs, join)
    assert audit(logs.lake, join).ok
    assert replay(logs.lake, join).ok
    late = rows(logs.lake, join, "late")
    assert bool(late) == idle
    assert (standing(logs.lake, join) == finished(logs, join)) == (not late)
    backfill(logs.lake, join, BEGINNING)
    assert audit(logs.lake, join).ok
    assert standing(logs.lake, join) == finished(logs, join)


TOTALS = {
    name: Pipeline(
        name=f"totals_{name}", log=join.produced, key="ad", where=Fixed(minutes(1)), how=RETRACTING,
        what={"rows": Count(), "known": Count(known), "total": Sum(known), "some": Collect(known), **more}, each=each,
        when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
    )
    for name, join, known, each, more in (
        ("told", JOINS["told"], "cents", (), {"shops": Collect("shop"), "spots": First("spots")}),
        ("panes", OF_OTHERS["panes"], "clicks", (), {}),
        ("spots", JOINS["told"], "cents", Explode("spots", into="spot", outer=True), {
            "slots": TopK("spot", 2, by=("spot.slot", "spot")), "words": Distinct("spot"), "shop": AnyValue("shop"),
        }),
    )
}  # fmt: skip


@pytest.mark.parametrize("which", TOTALS)
def test_L1_L3_a_pipeline_over_a_join_takes_back_what_the_join_does(logs: Logs, which: str) -> None:
    totals = TOTALS[which]
    (join,) = totals.before
    assert isinstance(join, Join)
    for number, parts in enumerate(whole(random_epochs(Random(26), 9))):
        logs.land(parts)
        if number % 3 == 0:
            logs.fold(totals)
    logs.fold(totals)
    assert any(one["retraction"] for one in rows(logs.lake, join, "production"))
    run = fold_chain(totals, [by_log(epoch, parts) for epoch, parts in enumerate(logs.epochs)])[-1]
    assert ledger_panes(logs.lake, totals) == reference_panes(totals, run.panes)
    # A row that is taken back is never too late (T3), so what is summed is what stands.
    counted_rows = standing(logs.lake, join)
    if totals.each:
        place = 1 + [*join.results].index("spots")
        counted_rows = Counter({row: n * max(1, len(row[place] or ())) for row, n in counted_rows.items()})
    assert sum(one["rows"] for one in answers(logs.lake, totals.name)) == sum(counted_rows.values())
    for one in chain(totals):
        assert isinstance(one, Join | Pipeline)
        found = audit(logs.lake, one)
        assert found.ok, [check for check in found.checks if not check.ok]
    assert replay(logs.lake, totals).ok
    for one in chain(totals):
        assert isinstance(one, Join | Pipeline)
        backfill(logs.lake, one, BEGINNING)
    found = audit(logs.lake, totals)
    assert found.ok, [check for check in found.checks if not check.ok]
    (read,) = by_duckdb(logs.lake, f"SELECT COUNT(*) AS n FROM {join.name}__rows").to_pylist()
    assert read["n"] == sum(standing(logs.lake, join).values())


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


ON_SPARK = {name: (OF_OTHERS | JOINS)[name] for name in ("panes", "full", "sliding", "told", "told_fixed", "both")}
ON_SPARK |= {f"random_{seed}": random_join(Random(seed)) for seed in range(6)}


@pytest.mark.parametrize("which", ["panes", "full", *(pytest.param(name, marks=deep) for name in [*ON_SPARK][2:])])
def test_L1_a_join_that_goes_over_to_spark_and_back_gives_the_pairs_of_the_reference(
    plain: SparkSession, settings: Settings, which: str
) -> None:
    join, here = ON_SPARK[which], Logs(Lake(settings))
    cluster = Lake(settings.model_copy(update={"engine": "spark"}))
    for epoch, parts in enumerate(whole(random_epochs(Random(230), 4))):
        here.land(parts)
        if epoch == 1:
            fold_on(plain, cluster, join)
        elif epoch == 3:
            here.fold(join)
    fold_on(plain, cluster, join)
    same_as_the_reference(here, join)
    audited = audit(cluster, join)
    assert audited.engine.engine is Engine.SPARK
    assert audited.ok, [check for check in audited.checks if not check.ok]
    assert replay(cluster, join).ok
    for one in chain(join)[0 if DEPTH > 1 else -1 :]:
        assert isinstance(one, Join | Pipeline)
        backfill(cluster, one, BEGINNING)
    assert audit(cluster, join).ok
    if len(chain(join)) == 1:
        assert standing(here.lake, join) == finished(here, join)


def fold_on(spark: SparkSession, lake: Lake, join: Join) -> None:
    group = FoldGroup(spark, lake, [join])
    list(group.missed_epochs(last_epoch(lake, group.logs)))
    assert not group[0].side.direct
    group.close()


@pytest.mark.parametrize("which", ["left", "fixed"])
def test_X6_what_came_too_late_for_a_join_is_told_with_the_range_that_takes_it_in(logs: Logs, which: str) -> None:
    join = JOINS[which]
    for parts in random_epochs(Random(5), 9):
        logs.land(parts)
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    logs.fold(join)
    late = rows(logs.lake, join, "late")
    found = late_report(logs.lake, join)
    assert (found.records, found.repaired) == (len(late), 0)
    assert sum(one.records for one in found.ranges) == len(late) > 3
    assert all(any(one.first <= instant(row[PANE_TIME]) < one.last for one in found.ranges) for row in late)
    first, *others = found.ranges
    assert {one.first_epoch for one in found.ranges} <= {row["epoch"] for row in late}
    backfill(logs.lake, join, first.first, first.last)
    assert late_report(logs.lake, join).ranges == tuple(others)
    for begin, end in propose_backfills(found.ready):
        backfill(logs.lake, join, begin, end)
    assert late_report(logs.lake, join).ranges == ()
    # What the ranges did not hold was right: all is now as of one batch.
    assert standing(logs.lake, join) == finished(logs, join)


def test_the_page_on_the_lake_shows_a_join_its_rows_and_what_came_too_late(logs: Logs) -> None:
    join = JOINS["told"]
    for parts in random_epochs(Random(5), 9):
        logs.land(parts)
    logs.fold(join)
    late = late_report(logs.lake, join)
    with visited(logs.lake, join) as client:
        stand = sum(standing(logs.lake, join).values())
        grid = Seen(client.get(f"/stages/{join.name}").text)
        cells = [attributes["aria-label"] or "" for tag, attributes in grid.elements
                 if tag == "a" and "stream" in (attributes.get("aria-label") or "")]  # fmt: skip
        assert sum(int(cell.split(",")[0]) for cell in cells) == stand
        page = Seen(client.get(f"/stages/{join.name}/late").text).text
        assert f"{late.records} records came too late" in page
        found = Seen(client.get("/search?find=views.json:0").text).text
        assert "viewed_at" in found
