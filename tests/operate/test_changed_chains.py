"""A whole chain of maps, joins and pipelines is changed in place, and is as if it had been streamed all along."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Col,
    Computation,
    Count,
    Derive,
    Fixed,
    Join,
    Log,
    Map,
    Match,
    Max,
    Pipeline,
    Sum,
    hours,
    minutes,
)
from tailrace.engines.choose import Engine
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.generations import generation_of, generations_beside, go_over
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition, Ranged
from tailrace.operate import changeover
from tailrace.operate.changeover import ApplyError, apply_stages
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.cases.strategies import BASE
from tests.support.engines.spark_runs import arrow_bundle
from tests.support.lakes.recorded_ledgers import land, no_spark

RIDES = Log(name="rides", columns={"at": "timestamp", "city": "string", "price": "bigint"}, event_time="at")
WALKS = Log(name="walks", columns={"at": "timestamp", "city": "string", "steps": "bigint"}, event_time="at")
EVERY = AfterWatermark(early=AfterCount(1), late=AfterCount(1))


def day(least: int = 2, fee: int = 1, **last: Any) -> Pipeline:
    """The chain: a map of rides, their hours, the pairs of rides and walks, those of hours and rides, and a sum."""
    dear = Map(name="dear", log=RIDES, keep=Match("price", ">=", least), each=Derive({"paid": Col("price") + fee}))
    hourly = Pipeline(
        name="hourly", log=dear.produced, key="city", what={"n": Count(), "most": Max("paid")}, where=Fixed(hours(1)),
        when=EVERY, how=RETRACTING, allowed_lateness=hours(1),
    )  # fmt: skip
    met = Join(
        name="met", left=dear.produced, right=WALKS, on="city", within=minutes(30), left_columns="paid",
        right_columns="steps", kind="left",
    )  # fmt: skip
    both = Join(
        name="both", left=met.produced, right=hourly.panes, on="city", where=Fixed(hours(1)),
        left_columns=("paid", "steps"), right_columns="most",
    )  # fmt: skip
    own = {"paid": Sum("paid"), "most": Max("most"), "steps": Sum("steps")} | last
    return Pipeline(name="daily", log=both.produced, key="city", what=own, where=Fixed(hours(24)), when=EVERY)


NARROW, OTHER = day(), day(least=3, fee=5, n=Count())


class World:
    """A lake with two logs of a few epochs, and the folds of a chain over them."""

    def __init__(self, settings: Settings, **changes: Any) -> None:
        self.lake, self.landed = Lake(settings.model_copy(update=changes)), 0
        for log in (RIDES, WALKS):
            self.lake.ensure(log_contract(log), {"epoch": "-1"})
            self.lake.ensure(rejected_contract(log), {"epoch": "-1"})

    def land(self, count: int) -> None:
        for epoch in range(self.landed, self.landed + count):
            at = BASE + minutes(40 * epoch)
            rides = [{"at": at + minutes(9 * n), "city": "ab"[n % 2], "price": (epoch + n) % 6} for n in range(4)]
            walks = [{"at": at + minutes(11 * n), "city": "ab"[n % 2], "steps": 10 * epoch + n} for n in range(2)]
            clock = Clock(epoch, instant(at - minutes(30)), instant(at))
            land(self.lake, "walks", arrow_bundle(WALKS, walks, epoch), clock)
            land(self.lake, "rides", arrow_bundle(RIDES, rides, epoch), clock)
        self.landed += count

    def stream(self, *definitions: Definition) -> None:
        group = FoldGroup(no_spark, self.lake, definitions, follow_every=1)
        list(group.missed_epochs(self.landed - 1))
        group.close()

    def rows(self, definition: Definition) -> Counter[tuple[Any, ...]]:
        """What a definition gives, less what it took back."""
        ledger = self.lake.table(ledger_name(definition.name)).scan("kind = 'production' or kind = 'pane'").to_arrow()
        own = [name for name in ("city", "window_start", "window_end", "event_time") if name in ledger.column_names]
        own += [name for name in definition.results if name not in own]  # type: ignore[attr-defined]
        if definition.windowed:
            ledger = self.lake.table(definition.name).scan().to_arrow() if self.lake.has(definition.name) else ledger
            own = [name for name in own if name in ledger.column_names]
        found = Counter[tuple[Any, ...]]()
        for row in ledger.to_pylist():
            found[tuple(row[name] for name in own)] += -1 if row.get("retraction") else 1
        return Counter({row: count for row, count in found.items() if count})

    def is_as(self, other: World, definition: Pipeline) -> None:
        for stage in chain(definition):
            if stage.name != "hourly":
                assert self.rows(stage) == other.rows(stage), stage.name
            assert generations_beside(self.lake, stage.name) == []

    def proves(self, definition: Pipeline) -> None:
        for stage in chain(definition):
            found = audit(self.lake, stage)
            assert found.ok, (stage.name, [check for check in found.checks if not check.ok])
            assert isinstance(stage, Ranged)
            assert replay(self.lake, stage).ok


def fresh(settings: Settings, definition: Pipeline, epochs: int) -> World:
    world = World(settings, namespace="fresh")
    world.land(epochs)
    world.stream(definition)
    return world


def generations(world: World) -> dict[str, int]:
    return {stage.name: generation_of(world.lake.table(ledger_name(stage.name))) for stage in chain(NARROW)}


def test_a_chain_changed_in_place_is_as_if_it_had_been_streamed_all_along(settings: Settings) -> None:
    world = World(settings)
    world.land(5)
    world.stream(NARROW)
    done = apply_stages(world.lake, OTHER)
    assert {name: one.run is not None and one.run.status for name, one in done.items()} == dict.fromkeys(
        ("dear", "hourly", "met", "both", "daily"), "committed"
    )
    world.is_as(fresh(settings, OTHER, 5), OTHER)
    world.proves(OTHER)
    world.land(4)
    world.stream(OTHER)
    again = World(settings, namespace="again")
    again.land(9)
    again.stream(OTHER)
    world.is_as(again, OTHER)
    world.proves(OTHER)
    assert {one.run for one in apply_stages(world.lake, OTHER).values()} == {None}


def test_a_chain_is_changed_in_place_on_spark_as_in_the_process(spark: SparkSession, settings: Settings) -> None:
    world = World(settings, shuffle_partitions=1)
    world.land(3)
    world.stream(NARROW)
    here = world.lake
    world.lake = Lake(world.lake.settings.model_copy(update={"engine": "spark"}))
    done = apply_stages(world.lake, OTHER)
    assert {one.engine and one.engine.engine for one in done.values()} == {Engine.SPARK}
    assert {one.run is not None and one.run.status for one in done.values()} == {"committed"}
    world.is_as(fresh(settings, OTHER, 3), OTHER)
    # What Spark has built, the process goes on with.
    world.lake = here
    world.land(1)
    world.stream(OTHER)
    world.proves(OTHER)


def test_what_did_not_change_and_reads_nothing_that_did_stays(settings: Settings) -> None:
    world = World(settings)
    world.land(4)
    world.stream(NARROW)
    later = replace(NARROW, what={**NARROW.what, "n": Count()})
    assert [name for name, one in apply_stages(world.lake, later).items() if one.run is not None] == ["daily"]
    both = later.log.of  # type: ignore[attr-defined]
    changed = replace(later, log=replace(both, right_columns={"most": "most", "n": "n"}).produced)
    assert [name for name, one in apply_stages(world.lake, changed).items() if one.run is not None] == ["both", "daily"]
    assert generations(world) == {"dear": 1, "hourly": 1, "met": 1, "both": 2, "daily": 3}
    world.is_as(fresh(settings, changed, 4), changed)


@pytest.mark.parametrize("last", [2, 5])
def test_a_chain_that_dies_while_it_goes_over_is_built_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    world, switched = World(settings), list[str]()
    world.land(4)
    world.stream(NARROW)
    taking_over = go_over

    def dies(table: Any, *given: Any) -> Any:
        switched.append(table.name()[-1])
        found = taking_over(table, *given)
        if len(switched) == last:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as patched:
        patched.setattr(changeover, "go_over", dies)
        with pytest.raises(KeyboardInterrupt):
            apply_stages(world.lake, OTHER)
    assert switched == [f"{name}__ledger" for name in ("daily", "both", "hourly", "met", "dear")][:last]
    world.land(2)
    done = apply_stages(world.lake, OTHER)
    if "dear__ledger" in switched:
        world.stream(OTHER)
    assert {one.run is None for one in done.values()} == {"dear__ledger" in switched}
    world.is_as(fresh(settings, OTHER, 6), OTHER)


@dataclass(frozen=True, kw_only=True)
class Passing(Computation):
    """A computation that a generation is not built of."""

    produces: ClassVar = {"price": "bigint"}

    def process_record(self, context: Any, record: Any) -> None:
        context.produce({"price": record["price"]})


def test_what_cannot_be_built_is_refused_with_its_reason(settings: Settings) -> None:
    world = World(settings)
    world.land(3)
    dear = next(stage for stage in chain(NARROW) if stage.name == "dear")
    assert isinstance(dear, Map)
    aside = Pipeline(name="aside", log=dear.produced, what={"n": Count()}, where=Fixed(hours(1)))
    world.stream(NARROW, aside)
    with pytest.raises(ApplyError, match="aside reads what dear gives, too"):
        apply_stages(world.lake, OTHER)
    passing = Passing(name="passing", log=RIDES, key="city")
    passed = Pipeline(name="passed", log=passing.produced, what={"n": Count()}, where=Fixed(hours(1)))
    world.stream(passed)
    other = replace(passing, log=replace(RIDES, columns={**RIDES.columns, "more": "int"}))
    with pytest.raises(ApplyError, match="passing is a computation"):
        apply_stages(world.lake, replace(passed, log=other.produced))
    with pytest.raises(ApplyError, match="there is no table unknown__ledger yet"):
        apply_stages(world.lake, replace(aside, name="unknown"))
