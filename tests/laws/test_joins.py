"""Joins of a key's and a window's two sides are those of two nested loops over the records."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from tailrace.model.base.conditions import Condition, Match
from tailrace.model.base.expressions import Col
from tailrace.model.base.time import instant, seconds
from tailrace.model.combiners.basic import Count, Max
from tailrace.model.combiners.lists import Collect, Highest
from tailrace.model.definition.joins import KINDS, Kind, Near, Pairs, Unpack
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive, ElementWise
from tailrace.model.step.reference import batch
from tailrace.model.step.step import Record
from tailrace.model.windows.panes import RETRACTING
from tailrace.model.windows.windows import Fixed, Global, Sliding
from tests.support.stages import NEAR, SIDES, gathering
from tests.support.strategies import LOG, bundles, examples


def numbered(records: list[Record]) -> list[Record]:
    return [{**record, "id": place} for place, record in enumerate(records)]


def on(side: str, record: Record) -> bool:
    value, good = record["value"], record["good"]
    return value is not None and value >= 2 if side == "left" else good is True


@examples(300)
@given(data=st.data(), records=bundles(12), kind=st.sampled_from(KINDS), near=st.none() | NEAR)
def test_a_join_is_two_nested_loops_over_the_records(
    data: st.DataObject, records: list[Record], kind: Kind, near: Near | None
) -> None:
    records = numbered(records)
    size = data.draw(st.integers(1, 6).map(seconds))
    pipeline = Pipeline(
        name="first", log=LOG, key="place", each=tuple(SIDES.values()), what=gathering(),
        where=Fixed(size) if near is None else near.windows, how=RETRACTING,
    )  # fmt: skip
    paired = Pipeline(
        name="paired", log=pipeline.panes, each=Pairs("lefts", "rights", kind, near), key=("left_id", "right_id"),
        what={"n": Count()}, where=Global(),
    )  # fmt: skip
    found = Counter({key: values["n"] for (key, _), values in batch(paired, records).items()})

    def joined(a: Record, b: Record) -> bool:
        if a["place"] != b["place"]:
            return False
        if near is not None:
            apart: timedelta = b["at"] - a["at"]
            return -near.before <= apart <= near.after
        return Fixed(size).assign(instant(a["at"])) == Fixed(size).assign(instant(b["at"]))

    lefts, rights = ([one for one in records if on(side, one)] for side in SIDES)
    expected = Counter((a["id"], b["id"]) for a in lefts for b in rights if joined(a, b))
    if kind in ("left", "full"):
        expected += Counter((a["id"], None) for a in lefts if not any(joined(a, b) for b in rights))
    if kind in ("right", "full"):
        expected += Counter((None, b["id"]) for b in rights if not any(joined(a, b) for a in lefts))
    event(f"{kind}, {'some' if expected else 'no'} records")
    assert found == expected


@examples(200)
@given(data=st.data(), records=bundles(12))
def test_the_highest_are_those_of_all_that_a_comparison_with_the_largest_leaves(
    data: st.DataObject, records: list[Record]
) -> None:
    records = numbered(records)
    where = data.draw(st.sampled_from([Fixed(seconds(3)), Sliding(seconds(4), seconds(2)), Global()]))
    first = Pipeline(
        name="first", log=LOG, key="place", each=tuple(SIDES.values()),
        what={"lefts": Highest("left", by="left_value")}, where=where, how=RETRACTING,
    )  # fmt: skip
    # "left" is null where its condition does not hold, and so is what it says of the value.
    kept = SIDES["left"].keep
    compared = replace(first, keep=kept, what={"lefts": Collect("left"), "most": Max("value")})

    def unpacked(earlier: Pipeline, *steps: ElementWise, keep: Condition | None = None) -> Counter[Any]:
        last = Pipeline(
            name="last", log=earlier.panes, each=(Unpack("lefts"), *steps), keep=keep, key=("place", "left_id"),
            what={"n": Count()}, where=Global(),
        )  # fmt: skip
        return Counter({key: values["n"] for (key, _), values in batch(last, records).items()})

    less = Derive({"less": Col("most") - Col("left_value")})
    assert unpacked(first) == unpacked(compared, less, keep=Match("less", "==", 0))
