"""What an engine says and keeps of a computation, as Arrow tables, beside what the reference does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tailrace import PROCESSING
from tailrace.engines.claims import KeySide
from tailrace.engines.python.keys import keys_of
from tailrace.lake.schema.contracts import FEEDBACK, LATE, PARTIAL, PRODUCTION, REJECTED
from tailrace.model.base.time import instant
from tailrace.model.step import computation_state
from tailrace.model.step.computation_state import KeysOutcome, KeysState, KeyState
from tailrace.model.step.computation_step import onward, step
from tests.support.cases.computations import Machine
from tests.support.cases.strategies import epochs
from tests.support.engines.spark_runs import arrow_bundle, comparable

Said = Counter[tuple[Any, ...]]


class KeysAsTables:
    """One side: the subclass says how its rows, its keys and its restart are seen as tables."""

    side: Any

    def rows(self, stepped: Any) -> pa.Table:
        raise NotImplementedError

    def keys(self, state: Any) -> pa.Table:
        raise NotImplementedError

    def loop(self, state: Any) -> pa.Table | None:
        raise NotImplementedError

    def again(self, ledger: list[pa.Table], clock: Any) -> Any:
        raise NotImplementedError


def is_the_reference(machine: Machine, one: KeysAsTables, data: st.DataObject, max_epochs: int) -> None:
    """Epoch by epoch an engine says and keeps what the reference does, and its ledger restores it."""
    side: KeySide[Any, Any, Any, Any] = one.side
    keys, state, ledger = side.nothing(1), KeysState(), list[pa.Table]()
    for bundle, clock in data.draw(epochs(machine, max_epochs=max_epochs)):
        records = [record | {"_epoch": clock.epoch, "_offset": place} for place, record in enumerate(bundle)]
        before = state
        outcome = step(machine, state, records, clock)
        stepped = side.step(keys, side.consume(arrow_bundle(machine.log, bundle, clock.epoch), keys), clock)
        rows = one.rows(stepped)
        assert said_by_rows(machine, rows) == said_by_outcome(machine, outcome, before)
        keys, state = stepped.state, outcome.state
        assert held(machine, one.keys(keys)) == state.keys
        assert side.onward(keys) == onward(machine, state)
        assert side.due(keys, (), ()) == min(_walls(state), default=None)
        assert keys.in_flight == len(state.in_flight)
        ledger.append(rows)
        # What the rows restore is what is there, with what the next epoch looks at.
        there, flying = plain(one.keys(keys)), in_flight(machine, rows)
        again = one.again(ledger, clock)
        assert plain(one.keys(again)) == there
        assert again.in_flight == keys.in_flight
        loop = one.loop(again)
        assert (Counter() if loop is None else in_flight(machine, loop)) == flying
        keys = again


def _walls(state: KeysState) -> list[int]:
    timers = (timer for one in state.keys.values() for timer in one.timers)
    return [timer.time for timer in timers if timer.domain is PROCESSING]


def said_by_rows(machine: Machine, rows: pa.Table) -> Said:
    said = Said()
    for row in in_micros(rows).to_pylist():
        key, place = tuple(row[name] for name in machine.key), (row["source_epoch"], row["source_offset"])
        match row["kind"]:
            case kind if kind == PARTIAL:
                counts = (row["taken"], row["timers_set"], row["timers_fired"], row["timers_dropped"])
                said[kind, key, row["epoch"], row["gone"], *counts, row["returned"] if machine.loops else 0] += 1
            case kind if kind == PRODUCTION:
                values = (row["said"], row["total"], row["due"], comparable(row["parts"]))
                said[kind, key, *place, row["source_partition"], row["event_time"], *values] += 1
            case kind if kind == FEEDBACK:
                at, fed_back = row["event_time"], row["feedback"]
                said[kind, key, *place, row["source_partition"], at, fed_back["left"], fed_back["price"]] += 1
            case kind if kind == LATE:
                said[kind, key, *place, row["event_time"], row["behind"], row["watermark"]] += 1
            case kind if kind == REJECTED:
                came = bool(row["returned"]) if machine.loops else False
                said[kind, key, *place, row["event_time"], row["reason"], came] += 1
    return said


def said_by_outcome(machine: Machine, outcome: KeysOutcome, before: KeysState) -> Said:
    said, epoch = Said(), outcome.state.clock.epoch if outcome.state.clock else 0
    for key, work in outcome.work.items():
        gone = key not in outcome.state.keys
        said[PARTIAL, key, epoch, gone, work.taken, work.set, work.fired, work.dropped, work.returned] += 1
    for one in outcome.productions:
        due = one.values["due"] and instant(one.values["due"])
        place = (one.epoch, one.place, computation_state.source_of(one.key))
        values = (one.values["said"], one.values["total"], due, comparable(one.values["parts"]))
        said[PRODUCTION, one.key, *place, one.at, *values] += 1
    for back in outcome.state.in_flight:
        place = (back.epoch, back.place, back.out_of)
        said[FEEDBACK, back.key, *place, back.at, back.values["left"], back.values["price"]] += 1
    for late in outcome.late:
        at, watermark = instant(late.record["at"]), before.clock.watermark if before.clock else 0
        said[LATE, late.key, epoch, late.record["_offset"], at, late.behind, watermark] += 1
    for bad in outcome.rejected:
        key = tuple(bad.record[name] for name in machine.key)
        came_from = (bad.record["_epoch"], bad.record["_offset"])
        at = instant(bad.record["event_time" if bad.returned else "at"])
        said[REJECTED, key, *came_from, at, bad.reason, bad.returned] += 1
    return said


def in_flight(machine: Machine, rows: pa.Table) -> Counter[str]:
    """What is in flight, of rows of a ledger or of those of a loop."""
    flying = [row for row in in_micros(rows).to_pylist() if row.get("kind", FEEDBACK) == FEEDBACK]
    names = (*machine.key, "event_time", "source_epoch", "source_partition", "source_offset", "feedback")
    return Counter(repr([row[name] for name in names]) for row in flying if machine.loops)


def held(machine: Machine, rows: pa.Table) -> dict[Any, KeyState]:
    """What keys have, as the model has it."""
    found = keys_of(machine, rows)
    place = "_source"
    return {
        key: KeyState(one.fields, one.timers, tuple({n: v for n, v in r.items() if n != place} for r in one.waiting))
        for key, one in found.items()
    }


def plain(rows: pa.Table) -> list[str]:
    """The rows of a table, in an order of their own."""
    return sorted(repr(row) for row in rows.to_pylist())


def in_micros(rows: pa.Table) -> pa.Table:
    """A table with its instants as microseconds, for Python has none as early as the beginning of time."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(place, field.name, rows[field.name].cast(pa.int64()))
    return rows
