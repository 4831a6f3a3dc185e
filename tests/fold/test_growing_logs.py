"""A log gets more columns: definitions that do not use them go on with their ledgers, as if nothing had happened."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tailrace import (
    RETRACTING,
    AfterCount,
    AfterWatermark,
    Count,
    Fixed,
    Join,
    Log,
    Map,
    Match,
    Pipeline,
    Sum,
    hours,
    minutes,
)
from tailrace.fold.fold_group import FoldGroup
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import MEANING, holds
from tailrace.lake.change.migration import evolve
from tailrace.lake.read.status import status
from tailrace.lake.schema.contracts import log_contract, rejected_contract
from tailrace.lake.schema.lake_errors import FormerShapeError, OtherDefinitionError
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.fingerprint import Change, decode_meaning, encode_meaning
from tailrace.plan.definition_changes import plan_change
from tailrace.settings import Settings
from tailrace.trace.steps import InWindow, Row, State
from tailrace.trace.tracing import Tracing
from tailrace.trace.wanted_records import Wanted, find_records
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay
from tests.support.cases.strategies import BASE
from tests.support.engines.spark_runs import arrow_bundle
from tests.support.lakes.recorded_ledgers import land, no_spark, record

RIDES = Log(
    name="rides",
    columns={"at": "timestamp", "city": "string", "price": "bigint", "km": "int"},
    event_time="at",
    required=("km",),
)
HOURLY = Pipeline(
    name="hourly",
    log=RIDES,
    key="city",
    what={"rides": Count(), "income": Sum("price")},
    where=Fixed(hours(1)),
    when=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(2),
)
WIDER = replace(RIDES, columns={**RIDES.columns, "tip": "bigint"})


def epochs(first: int, count: int, **more: Any) -> list[tuple[list[dict[str, Any]], Clock]]:
    """Epochs of three rides each, an hour apart."""
    made = []
    for place in range(first, first + count):
        at = BASE + hours(place)
        rides = [{"at": at + minutes(n), "city": "ab"[n % 2], "price": place + n, "km": n, **more} for n in range(3)]
        made.append((rides, Clock(place, instant(at), instant(at))))
    return made


def answers(lake: Lake, name: str = "hourly") -> Counter[tuple[Any, ...]]:
    rows = lake.table(name).scan().to_arrow().to_pylist()
    return Counter((row["city"], row["window_start"], row["rides"], row["income"]) for row in rows)


def panes(lake: Lake) -> Counter[tuple[Any, ...]]:
    rows = lake.table("hourly__ledger").scan("kind = 'pane'").to_arrow().to_pylist()
    names = ("city", "window_start", "epoch", "generation", "pane_index", "timing", "retraction", "rides", "income")
    return Counter(tuple(row[name] for name in names) for row in rows)


@pytest.fixture
def former(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake as the version before left it: with all columns of the log in the meaning and in the fingerprint."""
    lake = Lake(settings)
    with monkeypatch.context() as before:
        before.setattr(Pipeline, "meaning", property(lambda pipeline: pipeline._meaning(None)))
        before.setattr(Pipeline, "fingerprint", Pipeline.former_fingerprint)
        record(lake, HOURLY, epochs(0, 3))
    ledger = lake.table("hourly__ledger")
    assert dict(decode_meaning(ledger.properties[MEANING])["columns"]) == dict(RIDES.columns)
    assert lake.head("hourly__ledger").properties["fingerprint"] == HOURLY.former_fingerprint != HOURLY.fingerprint
    return lake


@pytest.mark.parametrize("log", [RIDES, WIDER], ids=["as_it_was", "wider_at_once"])
def test_V6_a_lake_of_the_version_before_goes_on_as_it_is(former: Lake, settings: Settings, log: Log) -> None:
    lake, pipeline = former, replace(HOURLY, log=log)
    check_definition(lake, pipeline)
    assert plan_change(lake, pipeline).change is Change.NOTHING
    own = status(lake, pipeline).own
    assert own is not None
    assert own.same_definition
    record(lake, replace(HOURLY, log=RIDES), epochs(3, 1)) if log is RIDES else grow(lake, pipeline)
    head = lake.head("hourly__ledger")
    assert (head.number("generation"), head.properties["fingerprint"]) == (1, HOURLY.fingerprint)
    assert lake.table("hourly__ledger").properties[MEANING] == encode_meaning(HOURLY.meaning)


WALKS = Log(name="walks", columns={"at": "timestamp", "city": "string", "steps": "int"}, event_time="at")


def over(rides: Log) -> tuple[Map, Join, Pipeline]:
    """A map and a join that pass on all columns of rides, and a pipeline of the map that does not read them all."""
    dear = Map(name="dear", log=rides, keep=Match("price", ">", 0))
    pairs = Join(
        name="pairs", left=rides, right=WALKS, on="city", within=minutes(30), kind="left", right_columns="steps"
    )
    counted = replace(HOURLY, name="counted", log=dear.produced)
    return dear, pairs, counted


class Growing:
    """A lake whose logs grow, and the folds of definitions over it."""

    def __init__(self, settings: Settings) -> None:
        self.lake, self.landed = Lake(settings), 0
        for log in (RIDES, WALKS):
            self.lake.ensure(log_contract(log), {"epoch": "-1"})
            self.lake.ensure(rejected_contract(log), {"epoch": "-1"})

    def land(self, log: Log, **more: Any) -> None:
        (rides, clock), number = epochs(self.landed, 1, **more)[0], self.landed
        walks = [{"at": one["at"], "city": one["city"], "steps": number} for one in rides[:2]]
        land(self.lake, "walks", arrow_bundle(WALKS, walks, number), clock)
        land(self.lake, "rides", arrow_bundle(log, rides, number), clock)
        self.landed += 1

    def fold(self, *definitions: Definition) -> None:
        group = FoldGroup(no_spark, self.lake, definitions, follow_every=1)
        list(group.missed_epochs(self.landed - 1))
        group.close()

    def rows(self, name: str, *columns: str) -> Counter[tuple[Any, ...]]:
        rows = self.lake.table(f"{name}__ledger").scan("kind = 'production'").to_arrow().to_pylist()
        return Counter(tuple(row[column] for column in (*columns, "epoch", "retraction")) for row in rows)


def test_V6_maps_and_joins_pass_on_the_columns_that_their_log_gets_from_then_on(
    settings: Settings,
) -> None:
    world, (dear, pairs, counted) = Growing(settings), over(WIDER)
    world.land(RIDES)
    world.land(RIDES)
    world.fold(*over(RIDES))
    assert holds(world.lake, dear)
    assert not holds(world.lake, replace(dear, keep=None))
    with pytest.raises(FormerShapeError, match="dear__ledger has no column tip"):
        check_definition(world.lake, dear)
    evolve(world.lake, counted)
    # A stream that dies before its first epoch has changed nothing that the next one does not know.
    FoldGroup(no_spark, world.lake, over(WIDER), follow_every=1).close()
    for number in range(3):
        world.land(WIDER, tip=number)
        world.fold(dear, pairs, counted)
    for one in (dear, pairs, counted):
        assert world.lake.head(f"{one.name}__ledger").number("generation") == 1
        found = audit(world.lake, one)
        assert found.ok, [check for check in found.checks if not check.ok]
        assert replay(world.lake, one).ok
    fresh = Growing(settings.model_copy(update={"namespace": "fresh"}))
    evolve(fresh.lake, dear)
    for number in range(5):
        fresh.land(WIDER, **({} if number < 2 else {"tip": number - 2}))
    fresh.fold(dear, pairs, counted)
    for name, columns in (("dear", ("city", "price", "km", "tip")), ("pairs", ("city", "tip", "steps"))):
        assert world.rows(name, *columns) == fresh.rows(name, *columns)
    assert answers(world.lake, "counted") == answers(fresh.lake, "counted")


def test_V6_a_map_does_not_pass_on_values_that_it_had_left_out(settings: Settings) -> None:
    world, (dear, pairs, counted) = Growing(settings), over(WIDER)
    world.land(RIDES)
    evolve(world.lake, replace(HOURLY, log=WIDER))
    world.land(WIDER, tip=5)
    world.fold(*over(RIDES))
    for one in (dear, pairs):
        with pytest.raises(OtherDefinitionError, match="tailrace apply --all-stages"):
            check_definition(world.lake, one)
    assert holds(world.lake, counted), "it does not read what the map would pass on"


def test_a_trace_over_a_log_that_grew_follows_the_records_from_before_and_after(settings: Settings) -> None:
    world = Growing(settings)
    for _ in range(2):
        world.land(RIDES)
    world.fold(*over(RIDES), HOURLY)
    evolve(world.lake, replace(HOURLY, log=WIDER))
    for log, more in ((WIDER, {"tip": 3}), (RIDES, {}), (WIDER, {"tip": 4})):
        world.land(log, **more)
        world.fold(*over(WIDER), HOURLY)
    # The first ride costs nothing, so the map leaves it out.
    for pipeline, rides, tips in ((HOURLY, 15, [None] * 5), (over(WIDER)[2], 14, [None, None, 3, None, 4])):
        tracing, told = Tracing(world.lake, pipeline), Counter[tuple[Any, ...]]()
        found = find_records(world.lake, pipeline.sources[0], Wanted(where="_epoch >= 0"), 100).landed
        assert [
            one.values.get("tip") for one in sorted(found, key=lambda one: one.epoch) if one.values["km"] == 1
        ] == tips
        for one in found:
            for step in tracing.of(one):
                # One ride of the last hour waits for another one.
                if isinstance(step, InWindow) and step.state is not State.WAITING:
                    assert step.state is State.COUNTED
                    told[step.key[0], step.window.start] += 1
        rows = world.lake.table(pipeline.name).scan().to_arrow().to_pylist()
        assert told == Counter({(row["city"], instant(row["window_start"])): row["rides"] for row in rows})
        assert sum(told.values()) == rides - 1
    # A condition reads the new column, which the records from before do not have.
    asked = [find_records(world.lake, WIDER, Wanted(where=f"tip {test}"), 100).landed for test in ("= 3", "is null")]
    assert [len(one) for one in asked] == [3, 9]
    passed = [step for one in asked[0] for step in Tracing(world.lake, over(WIDER)[0]).of(one) if isinstance(step, Row)]
    assert [step.values["tip"] for step in passed] == [3, 3, 3]


def grow(lake: Lake, pipeline: Pipeline) -> None:
    evolve(lake, pipeline)
    record(lake, pipeline, epochs(3, 1, tip=7))


def test_V6_a_lake_of_the_version_before_still_knows_another_meaning(former: Lake) -> None:
    retyped = replace(HOURLY, log=replace(RIDES, columns={**RIDES.columns, "price": "int"}))
    for other in (retyped, replace(HOURLY, key=()), replace(HOURLY, what={"rides": Count()})):
        assert not holds(former, other)
        with pytest.raises(OtherDefinitionError):
            check_definition(former, other)
    assert plan_change(former, retyped).parts == {"columns": ([["price", "bigint"]], [["price", "int"]])}
    added = replace(HOURLY, what={**HOURLY.what, "far": Sum("km")})
    assert plan_change(former, added).change is Change.NEW_COLUMNS
    assert plan_change(former, added).parts.keys() == {"what"}
