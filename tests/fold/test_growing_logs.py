"""A log gets more columns: definitions that do not use them go on with their ledgers, as if nothing had happened."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Log, Pipeline, Sum, hours, minutes
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import MEANING, holds
from tailrace.lake.read.status import status
from tailrace.lake.schema.lake_errors import OtherDefinitionError
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import instant
from tailrace.model.definition.fingerprint import Change, decode_meaning, encode_meaning
from tailrace.plan.definition_changes import plan_change
from tailrace.settings import Settings
from tests.support.cases.strategies import BASE
from tests.support.lakes.recorded_ledgers import record

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


def grow(lake: Lake, pipeline: Pipeline) -> None:
    from tailrace.lake.change.migration import evolve

    evolve(lake, pipeline)
    record(lake, pipeline, epochs(3, 1, tip=7))


def test_V6_a_lake_of_the_version_before_still_knows_another_meaning(former: Lake) -> None:
    retyped = replace(HOURLY, log=replace(RIDES, columns={**RIDES.columns, "price": "int"}))
    for other in (retyped, replace(HOURLY, key=()), replace(HOURLY, what={"rides": Count()})):
        assert not holds(former, other)
        with pytest.raises(OtherDefinitionError):
            check_definition(former, other)
    assert plan_change(former, retyped).parts.keys() == {"columns"}
    added = replace(HOURLY, what={**HOURLY.what, "far": Sum("km")})
    assert plan_change(former, added).change is Change.NEW_COLUMNS
    assert plan_change(former, added).parts.keys() == {"what"}
