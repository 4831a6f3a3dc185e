"""Whatever custom code raises, of whatever kind of definition: the stream goes on and everything adds up (X7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    Computation,
    Context,
    Count,
    Each,
    Fixed,
    Global,
    Join,
    Map,
    OwnCombiner,
    OwnWindows,
    Pipeline,
    RecordError,
    Sum,
    Timer,
    minutes,
    seconds,
)
from tailrace.engines.choose import Engine
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import last_epoch
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.model.windows.windows import NOTHING, Window
from tailrace.settings import Settings
from tests.support.cases.strategies import each_time_the_same
from tests.support.checks.agreements import adds_up
from tests.support.depth import cases, deep
from tests.support.lakes.several_logs import CLICKS, VIEWS, Logs, Part, random_epochs

HALF = chr(0xD800)
"""Half a character, which has no bytes."""


class OddError(Exception):
    """An error that fails as it is asked what it is."""

    def __str__(self) -> str:
        raise OddError


def endless(n: int) -> int:
    return endless(n + 1) + 1


def strange(n: int) -> Any:
    """Raise, or return what no declared type holds, for some numbers; the others are returned as they are."""
    match n % 12:
        case 0:
            raise ValueError(HALF)
        case 1:
            raise OddError
        case 2:
            return endless(0)
        case 3:
            raise RecordError(f"four {HALF}")
        case 4:
            return 2**70
        case 5:
            return HALF
    return n


def twice(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"twice": strange(record["cents"] + 1), "word": str(strange(record["cents"]))}


def counted(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"some": strange(3 * (record["n"] or 0))}


@dataclass(frozen=True)
class Fussy(OwnWindows):
    """Minutes, but for records that it does not like."""

    def assign(self, at: int, record: Mapping[str, Any] = NOTHING) -> list[Window]:
        strange(record["cents"] + 2)
        return Fixed(minutes(1)).assign(at)


@dataclass(frozen=True)
class Fussiest(OwnCombiner):
    """A sum that does not like some numbers."""

    column: str | None
    state: str = "bigint"
    gives: str = "bigint"

    def zero(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        return state + int(strange(value + 4))

    def merge(self, a: int, b: int) -> int:
        return a + b

    def output(self, state: int) -> int:
        return state


@dataclass(frozen=True, kw_only=True)
class Fussily(Computation):
    """It fails in each of its methods for some records."""

    state = {"total": "bigint", "word": "string"}
    produces = {"total": "bigint", "word": "string"}
    feedback = {"total": "bigint"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        cents = record["cents"]
        context.state.total = (context.state.total or 0) + cents
        context.set_timer(f"said {cents}", record["seen"] + seconds(20))
        if cents % 2:
            context.feed_back(record["ad"], {"total": cents}, record["seen"])
        context.state.word = str(strange(cents + 1))

    def process_feedback(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.total = strange(record["total"])

    def process_timer(self, context: Context, timer: Timer) -> None:
        context.produce({"total": strange(context.state.total), "word": context.state.word})


MAPPED = Map(name="mapped", log=CLICKS, each=Each(twice, {"twice": "bigint", "word": "string"}), what=("ad", "twice"))
WINDOWED = Pipeline(name="windowed", log=CLICKS, key="ad", where=Fussy(), what={"n": Sum("cents")}, how=RETRACTING)
COMBINED = Pipeline(name="combined", log=CLICKS, key="ad", where=Fixed(minutes(1)), what={"n": Fussiest("cents")})
LATER = Pipeline(
    name="later", log=WINDOWED.panes, each=Each(counted, {"some": "bigint"}), where=Global(), how=RETRACTING,
    what={"all": Sum("some")}, when=AfterWatermark(late=AfterCount(1)),
)  # fmt: skip
FUSSILY = Fussily(name="fussily", log=CLICKS, key="ad")
MET = Join(name="met", left=VIEWS, right=FUSSILY.produced, on="ad", within=seconds(60), kind="left", left_columns="at",
           right_columns={"n": "total"})  # fmt: skip
OVER_JOIN = Pipeline(name="over_join", log=MET.produced, key="ad", each=Each(counted, {"some": "bigint"}),
                     where=Fixed(minutes(1)), what={"all": Sum("some"), "rows": Count()})  # fmt: skip
OF_MAP = Pipeline(name="of_map", log=MAPPED.produced, key="ad", where=Fixed(minutes(1)), what={"n": Fussiest("twice")})
KINDS: dict[str, Definition] = {one.name: one for one in (COMBINED, LATER, OF_MAP, OVER_JOIN)}
"""Custom code in each kind of definition: what reads others has a map, a computation or a join before it."""


def goes_on(logs: Logs, fold: Callable[[Definition], None], definition: Definition, seed: int, epochs: int = 6) -> None:
    chance = Random(seed)
    for parts in random_epochs(chance, epochs):
        logs.land(parts)
        if chance.random() < 0.4:
            fold(definition)
    logs.land({name: Part((), END_OF_TIME) for name in ("views", "clicks")})
    fold(definition)
    for one in chain(definition):
        assert logs.lake.head(f"{one.name}__ledger").number("epoch") >= len(logs.epochs) - 1
        adds_up(logs.lake, one)


@each_time_the_same(cases(2, 60))
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("which", KINDS)
def test_X7_whatever_code_of_ones_own_raises_the_stream_goes_on_and_everything_adds_up(
    tmp_path_factory: pytest.TempPathFactory, which: str, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("raising")
    logs = Logs(Lake(Settings(warehouse=folder / "lake", contracts=folder, memory="1GB")))
    goes_on(logs, logs.fold, KINDS[which], seed)


@pytest.mark.parametrize("which", [pytest.param(name, marks=[] if name == "over_join" else deep) for name in KINDS])
def test_X7_whatever_code_of_ones_own_raises_a_stream_on_spark_goes_on_and_everything_adds_up(
    plain: SparkSession, settings: Settings, which: str
) -> None:
    # What Spark has folded, the process audits, replays and backfills: it takes a fraction of the time.
    logs, lake = Logs(Lake(settings)), Lake(settings.model_copy(update={"engine": Engine.SPARK.value}))

    def fold(definition: Definition) -> None:
        group = FoldGroup(plain, lake, [definition])
        list(group.missed_epochs(last_epoch(lake, group.logs)))
        group.close()

    goes_on(logs, fold, KINDS[which], 7, epochs=3)
