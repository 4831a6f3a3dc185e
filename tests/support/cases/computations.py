"""A computation that does a bit of everything as its records say, and what it makes of an input told another way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tailrace import (
    EVENT,
    PROCESSING,
    Batch,
    Collect,
    Computation,
    Count,
    Field,
    Fixed,
    Last,
    Pipeline,
    RecordError,
    Sessions,
    Sum,
    seconds,
)
from tailrace.engines.python.columns import values
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, instant, moment
from tailrace.model.definition.computation import Context, Domain, Timer
from tailrace.model.step.chain_fold import ChainRun
from tailrace.model.step.computation_state import KeysState, KeyState, Production
from tailrace.model.step.one_key import turn_of
from tailrace.model.windows.panes import Key
from tests.support.cases.strategies import LOG
from tests.support.engines.spark_runs import comparable

Epochs = Sequence[tuple[Sequence[Mapping[str, Any]], Clock]]


@dataclass(frozen=True, kw_only=True)
class Machine(Computation):
    """Records set timers, move and delete them; timers produce, and now and then set one more.

    With `wall` some timers are of processing time, and with `quiet` there are none at all.
    """

    wall: bool = False
    quiet: bool = False

    state = {
        "total": Field("bigint", 0),
        "seen": Field("array<bigint>", []),
        "price": Field("decimal(20,2)", Decimal(0)),
        "label": "string",
        "last": "timestamp",
    }
    produces = {
        "said": "string",
        "total": "bigint",
        "due": "timestamp",
        "parts": "array<struct<n:int,of:array<float>,raw:binary>>",
    }

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        state, value = context.state, record["value"] or 0
        state.total += value
        state.seen.append(record["id"])
        state.price += record["price"] or 0
        state.label, state.last = record["label"], record["at"]
        if record["label"] == "Z":
            # All that it did before must be as if it never was.
            context.set_timer("never", record["at"])
            context.produce({"said": "never"})
            raise RecordError(f"no Z in record {record['id'] % 2}")
        if value == 9:
            state.clear()
        if self.quiet:
            context.produce({"said": "record", "total": state.total})
            return
        name = f"t{value % 3}"
        if record["good"] is False:
            context.delete_timer(name)
        elif record["good"]:
            context.set_timer(name, record["at"] + seconds(value), holds=record["at"])
        elif record["label"] is None:
            context.set_timer(name, record["at"] - seconds(2))
        if self.wall and record["lane"] == 2:
            held = record["at"] if value % 2 else None
            context.set_timer("wall", context.processing_time + seconds(4 * value), PROCESSING, holds=held)
        if value >= 4:
            parts = [{"n": value, "of": [0.1, None]}, None, {"raw": b"\xff"}][: value - 4]
            made = {"said": "record", "total": state.total, "parts": parts}
            context.produce(made, event_time=record["at"] + seconds(1))

    def process_timer(self, context: Context, timer: Timer) -> None:
        state = context.state
        context.produce({"said": timer.name, "total": state.total, "due": timer.at})
        state.total -= 1
        if timer.name == "t1" and state.total > 0:
            context.set_timer("t2", timer.at + seconds(1), EVENT)
        if timer.name == "t2" and state.total % 4 == 3:
            # Due already: it fires in the same epoch, and next.
            context.set_timer("past", timer.at - seconds(1), holds=timer.holds)


@dataclass(frozen=True, kw_only=True)
class Ring(Machine):
    """One whose records go round: from key to key, each time with less left, and now and then as two."""

    feedback = {"left": "int", "price": "decimal(20,2)"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        super().process_record(context, record)
        if record["value"]:
            self._on(context, record["value"] % 4, record["price"])

    def process_timer(self, context: Context, timer: Timer) -> None:
        super().process_timer(context, timer)
        if timer.name == "t2":
            context.feed_back(context.key, {"left": 1}, event_time=timer.holds)

    def process_feedback(self, context: Context, record: Mapping[str, Any]) -> None:
        assert set(record) == {*self.key, "left", "price", "event_time"}
        assert tuple(record[name] for name in self.key) == context.key
        context.state.total += record["left"]
        context.state.price += record["price"] or 0
        context.produce({"said": "came round", "total": context.state.total})
        if context.state.total % 7 == 5:
            raise RecordError("no more fives")
        if record["left"] == 2:
            context.set_timer("t1", record["event_time"] + seconds(3), holds=record["event_time"])
        if record["left"] > 0:
            self._on(context, record["left"] - 1, record["price"])

    def _on(self, context: Context, left: int, price: Decimal | None) -> None:
        following = {None: "a", "a": "b", "b": None}
        columns = self.log.columns
        key = tuple(
            following.get(one) if columns[name] == "string" else ((one or 0) + 1) % 3
            for name, one in zip(self.key, context.key, strict=True)
        )
        context.feed_back(key, {"left": left, "price": price})
        if left == 3:
            context.feed_back(context.key, {"left": 1}, event_time=context._default + 1_000_000)


@dataclass(frozen=True, kw_only=True)
class Columns(Machine):
    """The same by columns: what the code for a record does to a `Context` is told to the batch."""

    def process_batch(self, batch: Batch) -> None:
        rows = batch.records.to_pylist()
        self._tell(batch, [(row.pop("_key"), instant(row["at"]), instant(row["at"]), row) for row in rows])

    def process_timers(self, batch: Batch) -> None:
        turns = []
        for row, (name, domain, at, holds) in enumerate(zip(*timer_columns(batch.due), strict=True)):
            earliest = self.reached(BEGINNING) if holds is None else holds
            turns.append((row, earliest, at if holds is None else holds, Timer(name, at, Domain(domain), holds)))
        self._tell(batch, turns)

    def _tell(self, batch: Batch, turns: list[tuple[int, int, int, Any]]) -> None:
        fields = [
            dict(zip(self.fields, row, strict=True)) for row in zip(*map(values, batch.state.values()), strict=True)
        ]
        keys = batch.keys.select(list(self.key)).to_pylist() if self.key else [{}]
        timers: list[dict[str, Timer]] = [{} for _ in keys]
        for key, name, domain, at, holds in zip(
            batch.timers["_key"].to_pylist(), *timer_columns(batch.timers), strict=True
        ):
            timers[key][name] = Timer(name, at, Domain(domain), holds)
        made: list[tuple[int, Mapping[str, Any], int]] = []
        clocks = instant(batch.watermark), instant(batch.processing_time)
        for row, (of, floor, default, given) in enumerate(turns):
            floor = min([floor, *(one.holds for one in timers[of].values() if one.holds is not None)])
            context = Context(self, tuple(keys[of].values()), fields[of], timers[of], floor, default, *clocks)
            try:
                (self.process_timer if isinstance(given, Timer) else self.process_record)(context, given)
            except RecordError:
                batch.by_record([of])
                continue
            if isinstance(given, Timer) and given.holds is None:
                # Its lower limit is the epoch's, which a batch does not tell.
                batch.by_record([of])
                continue
            fields[of] = dict(context.state.__dict__)
            for name in timers[of].keys() - context._timers.keys():
                batch.delete_timers([row], name)
            for name, timer in context._timers.items():
                if timers[of].get(name) is not timer:
                    holds = None if timer.holds is None or timer.holds == timer.time else moment(timer.holds)
                    batch.set_timers(pa.array([row]), name, moment(timer.time), timer.domain, holds=holds)
            timers[of] = context._timers
            made += [(row, record, at) for record, at in context._produced]
        if made:
            types = {"said": pa.string(), "total": pa.int64(), "due": pa.timestamp("us", "UTC")}
            item = pa.struct({"n": pa.int32(), "of": pa.list_(pa.float32()), "raw": pa.binary()})
            types["parts"] = pa.list_(item)
            record = {name: pa.array([one[name] for _, one, _ in made], type) for name, type in types.items()}
            batch.produce([row for row, _, _ in made], record, pa.array([at for *_, at in made], pa.int64()))
        for name, column in batch.state.items():
            batch.state[name] = pa.array([one[name] for one in fields], column.type)


def timer_columns(timers: Any) -> list[list[Any]]:
    """Name, domain, time and hold of the timers of a batch."""
    micros = [timers[name].cast(pa.int64()).to_pylist() for name in ("at", "holds")]
    return [timers["name"].to_pylist(), timers["domain"].to_pylist(), *micros]


@st.composite
def machines(
    draw: st.DrawFn,
    *,
    ordered: bool | None = None,
    wall: bool | None = None,
    quiet: bool = False,
    loops: bool | None = None,
    columns: bool = False,
) -> Machine:
    """A random one over the log of `strategies`; with `columns`, it also has the code for a batch."""
    round_ = not ordered and not quiet and draw(st.booleans()) if loops is None else loops
    orderly = not round_ and (draw(st.booleans()) if ordered is None else ordered)
    return (Columns if columns else Ring if round_ else Machine)(
        name="machine",
        log=LOG,
        key=tuple(draw(st.sampled_from([(), ("place",), ("place", "lane")]))),
        allowed_lateness=seconds(0 if orderly else draw(st.sampled_from([0, 0, 2]))),
        ordered=orderly,
        wall=draw(st.booleans()) if wall is None else wall,
        quiet=quiet,
    )


@dataclass(frozen=True, kw_only=True)
class Sums(Computation):
    """The second of a chain: it adds up what the first one produced, in order."""

    state = {"sum": Field("bigint", 0)}
    produces = {"sum": "bigint", "after": "string"}

    def process_record(self, context: Context, record: Mapping[str, Any]) -> None:
        context.state.sum += record["total"] or 0
        context.produce({"sum": context.state.sum, "after": record["said"]})


def readers(machine: Computation) -> tuple[Pipeline, Pipeline, Sums]:
    """Definitions over what one produces."""
    what = {"n": Count(), "sum": Sum("total"), "last": Last("parts"), "all": Collect("parts")}
    return (
        Pipeline(name="counts", log=machine.produced, key="said", what=what, where=Fixed(seconds(4))),
        Pipeline(name="bursts", log=machine.produced, key=machine.key, what=what, where=Sessions(seconds(3))),
        Sums(name="sums", log=machine.produced, key="said", ordered=True),
    )


def told(productions: Iterable[Production]) -> Counter[tuple[Any, ...]]:
    """Productions without the epochs that they came in."""
    return Counter((one.key, one.at, *map(comparable, one.values.values())) for one in productions)


def by_key(run: ChainRun) -> dict[Any, list[tuple[Any, ...]]]:
    """What each key produced, in order, without the epochs that it came in."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for one in run.productions:
        found.setdefault(one.key, []).append((one.at, *one.values.values()))
    return found


def kept(run: ChainRun) -> Mapping[Key, KeyState]:
    """What its keys have."""
    assert isinstance(run.state, KeysState)
    return run.state.keys


def without_late(epochs: Epochs, run: ChainRun) -> list[Mapping[str, Any]]:
    """All the records but those that came too late."""
    late = {one.record["id"] for one in run.late}
    return [record for bundle, _ in epochs for record in bundle if record["id"] not in late]


class Desk:
    """What an ordered `Machine` without wall timers makes of all its records, told by hand for one key at a time."""

    def __init__(self) -> None:
        self.total, self.timers, self.said = 0, dict[str, tuple[int, int]](), list[tuple[Any, ...]]()

    def run(self, records: list[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
        for record in sorted(records, key=lambda one: turn_of((instant(one["at"]), one))):
            self._until(instant(record["at"]))
            if record["label"] != "Z":
                self._record(record)
            # One that was set for a time that is over comes before the next record, even of the same instant.
        self._until(None)
        return self.said

    def _record(self, record: Mapping[str, Any]) -> None:
        at, value = instant(record["at"]), record["value"] or 0
        self.total = 0 if value == 9 else self.total + value
        name = f"t{value % 3}"
        if record["good"] is False:
            self.timers.pop(name, None)
        elif record["good"]:
            self.timers[name] = (at + value * 10**6, at)
        elif record["label"] is None:
            held = min([at, *(holds for _, holds in self.before)])
            self.timers[name] = (at - 2 * 10**6, max(at - 2 * 10**6, held))
        if value >= 4:
            self.said.append((at + 10**6, "record", self.total, None))

    def _until(self, end: int | None) -> None:
        """Fire what is due by `end`, the earliest first."""
        while due := [(at, name) for name, (at, _) in self.timers.items() if end is None or at <= end]:
            at, name = min(due)
            _, holds = self.timers.pop(name)
            floor = min([holds, *(other for _, other in self.timers.values())])
            self.said.append((holds, name, self.total, at))
            self.total -= 1
            if name == "t1" and self.total > 0:
                self.timers["t2"] = (at + 10**6, max(at + 10**6, floor))
            if name == "t2" and self.total % 4 == 3:
                self.timers["past"] = (at - 10**6, holds)
        self.before = list(self.timers.values())
