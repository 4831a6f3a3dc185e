"""Two lists that are unpacked one after the other are two nested loops over the records that were collected."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from tailrace.model.base.conditions import Condition, Match
from tailrace.model.base.expressions import Col
from tailrace.model.base.time import instant, seconds
from tailrace.model.combiners.basic import Count, Max
from tailrace.model.combiners.lists import Collect, Highest
from tailrace.model.definition.packed_columns import Unpack
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Derive, ElementWise
from tailrace.model.step.step import Record
from tailrace.model.windows.panes import RETRACTING
from tailrace.model.windows.windows import Fixed, Global, Sliding
from tests.support.cases.stages import SIDES, gathering
from tests.support.cases.strategies import LOG, bundles, examples
from tests.support.checks.batch_answers import batch


def numbered(records: list[Record]) -> list[Record]:
    return [{**record, "id": place} for place, record in enumerate(records)]


def on(side: str, record: Record) -> bool:
    value, good = record["value"], record["good"]
    return value is not None and value >= 2 if side == "left" else good is True


@examples(300)
@given(data=st.data(), records=bundles(12), outer=st.tuples(st.booleans(), st.booleans()))
def test_two_lists_unpacked_are_two_nested_loops_over_the_records(
    data: st.DataObject, records: list[Record], outer: tuple[bool, bool]
) -> None:
    records = numbered(records)
    where = Fixed(data.draw(st.integers(1, 6).map(seconds)))
    pipeline = Pipeline(
        name="first", log=LOG, key="place", each=tuple(SIDES.values()), what=gathering(), where=where, how=RETRACTING,
    )  # fmt: skip
    steps = [Unpack("lefts", outer=outer[0]), Unpack("rights", outer=outer[1])]
    paired = Pipeline(
        name="paired", log=pipeline.panes, each=steps, key=("left_id", "right_id"), what={"n": Count()}, where=Global()
    )
    found = Counter({key: values["n"] for (key, _), values in batch(paired, records).items()})

    def group(record: Record) -> tuple[Any, ...]:
        return record["place"], *where.assign(instant(record["at"]))

    expected = Counter[tuple[Any, ...]]()
    for one in {group(record) for record in records}:
        lefts, rights = ([r["id"] for r in records if group(r) == one and on(side, r)] for side in SIDES)
        expected += Counter((a, b) for a in lefts or [None] * outer[0] for b in rights or [None] * outer[1])
    event(f"{outer}, {'some' if expected else 'no'} records")
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
