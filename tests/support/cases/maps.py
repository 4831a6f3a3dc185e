"""Random maps over the log of `strategies`, and what the reference says of them, as comparable rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from tailrace.model.base.clock import Clock
from tailrace.model.base.expressions import Col
from tailrace.model.base.time import instant
from tailrace.model.definition import map as maps
from tailrace.model.definition.map import Map
from tailrace.model.definition.record_steps import Derive, Each, ElementWise, Record
from tests.support.cases.strategies import LOG, conditions
from tests.support.engines.spark_runs import comparable

Rows = Counter[tuple[Any, ...]]
"""Rows of a map's ledger, each as often as it is there."""

PLACE = ("source_epoch", "source_offset")


def several(record: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """None of some records, up to two of others, and a failure of those without a value."""
    return [{"part": place} for place in range(record["value"] % 3)] or None


def measured(record: Mapping[str, Any]) -> dict[str, Any]:
    """A failure of those without a label."""
    return {"length": len(record["label"])}


def checked(record: Mapping[str, Any]) -> dict[str, Any]:
    """A failure of the first of two records that were made of one, which the other is not to share."""
    return {"checked": 1 // record.get("part", 1)}


STEPS: tuple[ElementWise, ...] = (
    Derive({"twice": Col("value") * 2, "second": Col("at") // 1_000_000}),
    Each(measured, {"length": "bigint"}),
    Each(several, {"part": "int"}),
    Each(checked, {"checked": "int"}),
    Derive({"more": Col("price") * Decimal("1.5")}),
    # A failure of those with a value beyond 1, which is no custom code.
    Derive({"large": Col("value") * 2**62}),
)


@st.composite
def random_maps(draw: st.DrawFn, *, steps: Sequence[ElementWise] = STEPS) -> Map:
    """A map with some of the steps, a condition or none, and some of the columns that there are then."""
    each = tuple(one for one in steps if draw(st.booleans()))
    keep = draw(st.none() | conditions())
    whole = Map(name="trips_mapped", log=LOG, each=each, keep=keep)
    what = draw(st.sets(st.sampled_from(sorted(whole.results))))
    return Map(name="trips_mapped", log=LOG, each=each, keep=keep, what=tuple(sorted(what)))


def by_reference(definition: Map, epochs: Iterable[tuple[Sequence[Record], Clock]]) -> tuple[Rows, Rows]:
    """What a map gives of epochs and what it rejects, each with the place of its record."""
    given, rejected = Rows(), Rows()
    for bundle, clock in epochs:
        placed = [{**record, "_epoch": clock.epoch, "_offset": place} for place, record in enumerate(bundle)]
        made, bad = maps.step(definition, placed, clock.epoch)
        given.update((*map(plain, one.values.values()), one.at, one.place[0], one.place[2]) for one in made)
        rejected.update((instant(one.record["at"]), one.reason, one.record["_offset"]) for one in bad)
    return given, rejected


def by_rows(definition: Map, rows: Iterable[Mapping[str, Any]]) -> tuple[Rows, Rows]:
    """What a map gives and rejects, by rows of its ledger."""
    given, rejected = Rows(), Rows()
    for row in rows:
        at = instant(row["event_time"])
        if row["kind"] == "production":
            given[(*(plain(row[name]) for name in definition.results), at, *(row[name] for name in PLACE))] += 1
        else:
            rejected[at, row["reason"], row["source_offset"]] += 1
    return given, rejected


def plain(value: Any) -> Any:
    if isinstance(value, list | dict):
        return comparable(value)
    if isinstance(value, Decimal):
        return value.normalize()
    return instant(value) if isinstance(value, datetime) else value
