"""A computation on Spark says and keeps what the reference does, and its ledger restores it (X2; MillWheel, 6.2)."""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from functools import reduce
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tailrace.lake.contracts import LATE, PARTIAL, PRODUCTION, REJECTED
from tailrace.model import stateful
from tailrace.model.stateful import Feedback, KeyState, Outcome, State, onward, step
from tailrace.model.time import instant
from tailrace.spark.computing import Computing, Keys
from tests.support.computing import Machine, machines
from tests.support.native import bundle_frame, in_micros, in_parts
from tests.support.strategies import epochs

CASES = 8
"""How many random computations go through real Spark and its Python workers."""

Said = Counter[tuple[Any, ...]]


@in_parts(CASES, of=8)
def test_a_computation_on_spark_is_the_reference_step(spark: SparkSession, data: st.DataObject) -> None:
    machine = data.draw(machines())
    made = data.draw(epochs(machine, max_epochs=4))
    one = Computing(spark, machine)
    keys, state, rows = one.nothing(), State(), list[DataFrame]()
    for bundle, clock in made:
        records = [record | {"_epoch": clock.epoch, "_offset": place} for place, record in enumerate(bundle)]
        before = state
        outcome = step(machine, state, records, clock)
        computed = one.step(keys, bundle_frame(spark, machine, bundle, clock.epoch), clock)
        assert said_by_rows(machine, computed.rows) == said_by_outcome(machine, outcome, before)
        keys, state = computed.keys, outcome.state
        assert held(machine, keys) == state.keys
        assert one.onward(keys) == onward(machine, state)
        rows.append(computed.rows)
        # What the rows restore is what is there, with what the next epoch looks at.
        again = one.restore(reduce(DataFrame.unionAll, rows), clock)
        assert again.in_flight == keys.in_flight
        assert in_flight(machine, again) == in_flight(machine, keys) == Counter(map(repr, state.in_flight))
        assert sorted(map(str, in_micros(again.frame).collect())) == sorted(map(str, in_micros(keys.frame).collect()))


def said_by_rows(machine: Machine, rows: DataFrame) -> Said:
    said = Said()
    for row in in_micros(rows).collect():
        key, place = tuple(row[name] for name in machine.key), (row["source_epoch"], row["source_offset"])
        match row["kind"]:
            case kind if kind == PARTIAL:
                counts = (row["taken"], row["timers_set"], row["timers_fired"], row["timers_dropped"])
                said[kind, key, row["epoch"], row["gone"], *counts, row["returned"] if machine.loops else 0] += 1
            case kind if kind == PRODUCTION:
                values = (row["said"], row["total"], row["due"])
                said[kind, key, *place, row["source_partition"], row["event_time"], *values] += 1
            case kind if kind == LATE:
                said[kind, key, *place, row["event_time"], row["behind"], row["watermark"]] += 1
            case kind if kind == REJECTED:
                said[kind, key, *place, row["event_time"], row["reason"]] += 1
    return said


def said_by_outcome(machine: Machine, outcome: Outcome, before: State) -> Said:
    said, epoch = Said(), outcome.state.clock.epoch if outcome.state.clock else 0
    for key, work in outcome.work.items():
        gone = key not in outcome.state.keys
        said[PARTIAL, key, epoch, gone, work.taken, work.set, work.fired, work.dropped, work.returned] += 1
    for one in outcome.productions:
        due = one.values["due"] and instant(one.values["due"])
        place = (one.epoch, one.place, stateful.source_of(one.key))
        said[PRODUCTION, one.key, *place, one.at, one.values["said"], one.values["total"], due] += 1
    for late in outcome.late:
        at, watermark = instant(late.record["at"]), before.clock.watermark if before.clock else 0
        said[LATE, late.key, epoch, late.record["_offset"], at, late.behind, watermark] += 1
    for bad in outcome.rejected:
        key = tuple(bad.record[name] for name in machine.key)
        place = (bad.record["_epoch"], bad.record["_offset"])
        at = instant(bad.record["event_time" if bad.returned else "at"])
        said[REJECTED, key, *place, at, bad.reason] += 1
    return said


def in_flight(machine: Machine, keys: Keys) -> Counter[str]:
    """What Spark has of a loop, as the model has it."""
    if keys.loop is None:
        return Counter()
    found = Counter[str]()
    for row in keys.loop.collect():
        key, values = tuple(row[name] for name in machine.key), row["feedback"].asDict()
        place = (row["source_epoch"], row["source_partition"], row["source_offset"])
        found[repr(Feedback(key, values, instant(row["event_time"].astimezone(UTC)), *place))] += 1
    return found


def held(machine: Machine, keys: Keys) -> dict[Any, KeyState]:
    """What Spark keeps, as the model has it."""
    from tailrace.spark.computing import _Step

    table = keys.frame.toArrow()
    assert keys.clock is not None
    return {
        key: KeyState(
            one.fields, one.timers, tuple({n: v for n, v in r.items() if n != "_source"} for r in one.waiting)
        )
        for key, one in _Step(machine, keys.clock, None, None)._keys(table).items()
    }
