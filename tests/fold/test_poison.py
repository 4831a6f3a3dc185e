"""Records with which an epoch cannot be folded, for a reason that nobody foresaw: they are set aside (X7)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import assume, given
from pyspark.sql import SparkSession

from tailrace import (
    AfterCount,
    AfterWatermark,
    Col,
    Computation,
    Context,
    Count,
    Derive,
    Fixed,
    Join,
    Log,
    Map,
    Pipeline,
    SparkColumns,
    Sum,
    Timer,
    minutes,
    seconds,
)
from tailrace.engines.duckdb.database.connection import EngineError, connect
from tailrace.fold.fold import EpochResult, PassedEpoch, Phases
from tailrace.fold.ledger_fold import LedgerFold
from tailrace.fold.poison import LARGEST, MOST, UnfoldableError, find_poison, may_be_of_records
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.events import Notice, RecordsSetAside
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.set_aside import set_aside
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.lake.upkeep.diagnosis import MachineError, diagnose
from tailrace.model.base.errors import TailraceError
from tailrace.model.base.time import END_OF_TIME, instant
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.record_steps import Place, Reasons, SetAside
from tailrace.model.logs.log import PLACE
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tests.support.cases.strategies import each_time_the_same
from tests.support.checks.agreements import adds_up
from tests.support.depth import cases
from tests.support.lakes.several_logs import CLICKS, PATIENT, VIEWS, Logs, Part, random_epochs, view

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

    places = find_poison(table(count), failed)
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

    assert find_poison(table(3 * MOST), failed) is None


def landed(folder: Path, epoch: int, numbers: Iterable[int]) -> None:
    file = folder / f"{epoch}.jsonl"
    lines = (
        json.dumps({"id": 100 * epoch + place, "n": n, "at": f"2026-01-01T00:{epoch:02}:{place:02}Z"})
        for place, n in enumerate(numbers)
    )
    file.write_text("\n".join(lines) + "\n")
    os.utime(file, (1_700_000_000 + epoch,) * 2)


def named() -> Computation:
    """It is made here, as that of a definition file is, and so travels to the workers by value."""

    class Named(Computation):
        """It sets a timer whose name is half a character where there is a zero, which no table can hold."""

        state = {"n": "bigint"}
        produces = {"n": "bigint"}

        def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
            context.state.n = (context.state.n or 0) + 1
            context.set_timer("due" if record["n"] else chr(0xD800), record["at"] + seconds(90))

        def process_timer(self, context: Context, timer: Timer) -> None:
            context.produce({"n": context.state.n})

    return Named(name="named", log=LOG)


NAMED = named()
PAIRS = Join(name="pairs", left=LOG, right=ROWS.produced, on="id", within=seconds(1), kind="left", left_columns="n",
             right_columns="twice")  # fmt: skip


def streamed(spark: SparkSession, lake: Lake, folder: Path, *others: Definition) -> None:
    stream = Stream(spark, lake, [SHARES, ROWS, COUNTS, *others], Files(str(folder), "json", 1))
    try:
        stream.start(once=True)
        stream.wait()
    finally:
        stream.close()


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_X7_a_stream_sets_aside_what_it_cannot_fold_and_goes_on(
    plain: SparkSession, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    # No SQL of a join is known to fail for a record.
    Breaking(monkeypatch, lambda name, place: name == "pairs" and place[::2] in ((1, 1), (1, 3), (3, 0)))
    notices, folder = list[Notice](), tmp_path / "landing"
    folder.mkdir()
    landed(folder, 0, [1, 2, 5])
    landed(folder, 1, [10, 0, 20, 0])
    landed(folder, 2, [4])
    lake = Lake(settings.model_copy(update={"engine": engine}), notices.append)
    # In the process all kinds are tried below.
    others = (NAMED, PAIRS) if engine == "spark" else ()
    streamed(plain, lake, folder, *others)
    told = [(one.definition, one.epoch, one.records) for one in notices if isinstance(one, RecordsSetAside)]
    assert sorted(told) == sorted((one.name, 1, 2) for one in (SHARES, ROWS, *others))
    # A start knows what was set aside, and finds more.
    landed(folder, 3, [0, 50])
    landed(folder, 9, [1])
    streamed(plain, lake, folder, *others)
    for one, word in zip((SHARES, ROWS, *others), ("by zero", "by zero", "UnicodeEncodeError", "odd"), strict=False):
        reasons = set_aside(lake, one)
        assert sorted((place.epoch, place.offset) for place in reasons) == [(1, 1), (1, 3), (3, 0)]
        assert all(why.startswith("set aside: ") and word in why for why in reasons.values()), reasons
    rows = lake.table("shares").scan().to_arrow().sort_by("window_start").to_pylist()
    assert [(row["n"], row["all"]) for row in rows[:4]] == [(3, 340), (2, 30), (1, 50), (1, 4)]
    counts = lake.table("counts").scan().to_arrow().sort_by("window_start")["n"].to_pylist()
    assert counts[:4] == [3, 4, 1, 2], "who can take the records counts them"
    for one in (SHARES, ROWS, COUNTS, *others):
        adds_up(lake, one)
    if others:
        pairs = rows_of(lake, "pairs__ledger", "production")
        assert sorted((row["n"], row["twice"]) for row in pairs if row["n"]) == [
            (n, 2 * (100 // n)) for n in (1, 1, 2, 4, 5, 10, 20, 50)
        ]


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


@dataclass(frozen=True, kw_only=True)
class Totals(Computation):
    """What each key has seen so far, said again as a timer is due."""

    state = {"total": "bigint"}
    produces = {"total": "bigint"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.total = (context.state.total or 0) + (record["cents"] or 0)
        context.set_timer("said", record["seen"] + seconds(30))

    def process_timer(self, context: Context, timer: Timer) -> None:
        context.produce({"total": context.state.total})


DOUBLED = Map(name="doubled", log=CLICKS, each=Derive({"twice": Col("cents") * 2}), what=("ad", "twice"))
MET = Join(name="met", left=VIEWS, right=CLICKS, on="ad", kind="left", within=seconds(60), left_columns="at",
           right_columns="cents")  # fmt: skip
OF_MAP = Pipeline(name="of_map", log=DOUBLED.produced, key="ad", what={"n": Sum("twice")}, where=Fixed(minutes(1)))
OF_JOIN = Pipeline(name="of_join", log=MET.produced, key="ad", what={"n": Count()}, where=Fixed(minutes(1)))
ORDERED = Totals(name="ordered", log=CLICKS, key="ad", ordered=True)
TOTALS = Totals(name="totals", log=CLICKS, key="ad")
KINDS: dict[str, Definition] = {one.name: one for one in (PATIENT, MET, OF_MAP, OF_JOIN, TOTALS, ORDERED)}
"""A definition over several logs, a join, what reads a map or a join, and computations."""


def aside(definition: Definition) -> Reasons:
    """What a definition, as a fold has it, rejects since it was set aside."""
    if isinstance(definition, Pipeline | Map):
        return next((step.reasons for step in definition.each if isinstance(step, SetAside)), {})
    assert isinstance(definition, Computation | Join)
    return definition.set_aside


class Breaking:
    """Makes folds fail for some records, for a reason that nobody foresaw; `met` are their places, by definition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bad: Callable[[str, Place], bool]) -> None:
        self.met = dict[str, set[Place]]()
        stepped = LedgerFold._stepped

        def breaking(fold: LedgerFold, passed: PassedEpoch, phases: Phases) -> EpochResult:
            rows = fold.engines.having([passed.bundle]).held(passed.bundle, LARGEST)
            assert rows is not None
            name = fold.definition.name
            there = {Place(*one) for one in zip(*(rows[part].to_pylist() for part in PLACE), strict=True)}
            found = {place for place in there if bad(name, place)}
            self.met.setdefault(name, set()).update(found)
            if found - aside(fold.definition).keys():
                raise ArithmeticError(f"odd: {name}")
            return stepped(fold, passed, phases)

        monkeypatch.setattr(LedgerFold, "_stepped", breaking)


@each_time_the_same(cases(1, 40))
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("which", KINDS)
def test_X7_what_no_fold_of_a_kind_can_take_is_set_aside_by_it_alone_and_everything_adds_up(
    tmp_path_factory: pytest.TempPathFactory, which: str, seed: int
) -> None:
    chance, definition = Random(seed), KINDS[which]
    folder, notices = tmp_path_factory.mktemp("poison"), list[Notice]()
    logs = Logs(Lake(Settings(warehouse=folder / "lake", contracts=folder, memory="1GB"), notices.append))
    with pytest.MonkeyPatch.context() as patched:
        breaking = Breaking(patched, lambda name, place: Random(f"{seed} {name} {place}").random() < 0.25)
        for parts in random_epochs(chance, 6):
            logs.land(parts)
            if chance.random() < 0.5:
                logs.fold(definition)
        logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
        logs.fold(definition)
    told = [one for one in notices if isinstance(one, RecordsSetAside)]
    assume(told)
    for one in chain(definition):
        assert set_aside(logs.lake, one).keys() == breaking.met[one.name]
        assert sum(each.records for each in told if each.definition == one.name) == len(breaking.met[one.name])
        adds_up(logs.lake, one)


def rows_of(lake: Lake, table: str, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.table(table).scan(row_filter=f"kind = '{kind}'").to_arrow().to_pylist()
    return found


LAST = Pipeline(
    name="last", log=PATIENT.panes, key="ad", what={"all": Sum("n")}, where=Fixed(minutes(5)),
    when=AfterWatermark(late=AfterCount(1)),
)  # fmt: skip


@pytest.mark.parametrize("poison", ["set_aside", "stop"])
def test_X7_a_later_stage_that_cannot_take_an_answer_stops_and_says_which(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, poison: str
) -> None:
    stepped = LedgerFold._stepped

    def breaking(fold: LedgerFold, passed: PassedEpoch, phases: Phases) -> EpochResult:
        rows = fold.engines.having([passed.bundle]).held(passed.bundle, LARGEST)
        if fold.definition is LAST and rows is not None and "b" in rows["ad"].to_pylist():
            raise ArithmeticError("odd")
        return stepped(fold, passed, phases)

    monkeypatch.setattr(LedgerFold, "_stepped", breaking)
    logs = Logs(Lake(settings.model_copy(update={"poison": poison})))
    logs.land({"views": Part([view(n, ad) for n, ad in enumerate("aabb")], 0), "clicks": Part((), 0)})
    said = r"last cannot fold epoch 0 for 1 row of patient: ad = b, window_start = .* \(ArithmeticError: odd\)"
    with pytest.raises(
        ArithmeticError if poison == "stop" else UnfoldableError, match="odd" if poison == "stop" else said
    ):
        logs.fold(LAST)
    assert logs.lake.head("last__ledger").number("epoch") == -1


def test_X7_too_little_memory_is_not_the_fault_of_records(tmp_path: Path) -> None:
    with connect(Settings(memory="16MB", scratch=tmp_path), threads=1) as connection:
        connection.execute("SET max_temp_directory_size = '0KB'")
        with pytest.raises(duckdb.OutOfMemoryException) as caught:
            connection.execute("SELECT COUNT(*) FROM (SELECT DISTINCT hash(range) FROM range(3_000_000))")
    for error in (caught.value, EngineError.of(caught.value)):
        assert not may_be_of_records(error)
        found = diagnose(error, None)
        assert isinstance(found, MachineError)
        assert "DuckDB has no more room (" in str(found)
        assert "TAILRACE_MEMORY" in str(found)
