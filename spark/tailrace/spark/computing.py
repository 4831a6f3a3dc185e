"""Computations on Spark: the reference step on the executors, a bucket of keys at a time (MillWheel, 4.1 and 6.2).

State and bundle are brought together by a hash of the key, as `spark.per_key` does it; keys that have neither a record
nor a due timer rest (`spark.resting`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tailrace.lake.contracts import FEEDBACK, LATE, PARTIAL, PRODUCTION, REJECTED, computation_contract, spark_type
from tailrace.model.clock import Clock
from tailrace.model.computation import Computation
from tailrace.model.context import EVENT, PROCESSING, Domain, Timer
from tailrace.model.log import PANE_TIME
from tailrace.model.panes import Key, Rejected
from tailrace.model.stateful import NOTHING, PLACE, Feedback, KeyState, Late, Outcome, State, Work, record_of, step
from tailrace.model.time import BEGINNING, instant, moment
from tailrace.spark.execution import free, schema_of
from tailrace.spark.per_key import BUCKET, BUCKETS
from tailrace.spark.preparing import queried
from tailrace.spark.resting import brought, told_apart, with_resting
from tailrace.sql.algebra import null, quoted
from tailrace.sql.changes import productions
from tailrace.sql.clock import row_of

Row = dict[str, Any]

_DUE, _WALL, _HOLDS = "_due", "_wall", "_holds"
"""Columns of a key's state for those who look at all keys: when it has next something to do in event time and in
processing time, and the oldest event time that a timer holds; in microseconds."""

_RETURNED = "_returned"
"""A column of an epoch's records: what was fed back, null of a record of the log."""


@dataclass(frozen=True)
class InFlight:
    """How many records are in flight on a loop, and the oldest event time of them, in microseconds."""

    count: int = 0
    oldest: int | None = None


@dataclass(frozen=True)
class Keys:
    """What the keys have between two epochs, and the clock of the last one. `held` are the checkpoints behind it.

    `loop` has the ledger's rows of what was fed back in that epoch, None of a computation without a loop.
    """

    frame: DataFrame
    clock: Clock | None
    held: tuple[DataFrame, ...] = ()
    loop: DataFrame | None = None

    def forget(self) -> None:
        """Free the checkpoints, once the state after this one is computed."""
        for frame in self.held:
            free(frame)

    def due(self) -> int | None:
        """The processing time at which the next timer fires, in microseconds; None where none is pending."""
        return _least(self.frame, _WALL)

    @cached_property
    def in_flight(self) -> InFlight:
        """What is in flight on the loop."""
        if self.loop is None:
            return InFlight()
        (row,) = self.loop.selectExpr("COUNT(*) AS count", f"UNIX_MICROS(MIN({PANE_TIME})) AS oldest").collect()
        return InFlight(row["count"], row["oldest"])


@dataclass(frozen=True)
class Computed:
    """What an epoch gave: the ledger's rows, computed when they are read first, and the keys after it."""

    rows: DataFrame
    keys: Keys


class Computing:
    """One computation in one Spark session."""

    def __init__(self, spark: SparkSession, computation: Computation) -> None:
        self.spark, self.computation = spark, computation
        columns = computation_contract(computation).columns
        self.types = {name: spark_type(column.shape) for name, column in columns.items()}
        kept = [*computation.key, *(name for name in ("state", "timers", "waiting") if name in self.types)]
        self._state = schema_of({name: self.types[name] for name in kept} | dict.fromkeys(_COUNTED, "bigint"))
        self._schema = StructType([StructField("state", self._state), StructField("said", schema_of(self.types))])
        fed_back = {PANE_TIME: "timestamp"} | ({"feedback": self.types["feedback"]} if "feedback" in self.types else {})
        self._returned = spark_type(fed_back)
        self._loop = schema_of({n: self.types[n] for n in (*computation.key, *fed_back, *_SOURCE)})

    def nothing(self) -> Keys:
        """The state before the first epoch."""
        loop = self.spark.createDataFrame([], self._loop) if self.computation.loops else None
        return Keys(self.spark.createDataFrame([], self._state), None, loop=loop)

    def restore(self, ledger: DataFrame, clock: Clock) -> Keys:
        """The state that a ledger has after the epoch of `clock`: the latest partial of each key, none that is gone."""
        frame = queried(self.spark, ledger, lambda view: self._restored(view, clock.epoch)).localCheckpoint()
        if not self.computation.loops:
            return Keys(frame, clock, (frame,))
        loop = ledger.where(f"kind = '{FEEDBACK}' AND epoch = {clock.epoch}L").localCheckpoint()
        return Keys(frame, clock, (frame, loop), loop)

    def step(self, keys: Keys, bundle: DataFrame, clock: Clock) -> Computed:
        """Take the keys through an epoch. Raises `ClockError` if the clock goes back.

        `bundle` has the log's columns and where each record came from.
        """
        clock.after(keys.clock)
        one = _Step(self.computation, clock, keys.clock, to_arrow_schema(self._schema))
        names = [*map(quoted, self.computation.log.columns), *PLACE]
        if keys.loop is not None:
            bundle, names = bundle.selectExpr(*names, f"{null(self._returned)} AS {_RETURNED}"), [*names, _RETURNED]
            bundle = bundle.unionByName(keys.loop.selectExpr(*self._as_records()))
        records = bundle.selectExpr(*names, f"{self._bucket} AS {BUCKET}")
        now = self.spark.sql(row_of({"_watermark": clock.watermark, "_now": clock.processing_time}))
        due = f"COALESCE({_DUE} <= _watermark, false) OR COALESCE({_WALL} <= _now, false)"
        keyed = keys.frame.selectExpr("*", f"{self._bucket} AS {BUCKET}")
        there = brought(records, self.computation.key)
        touched, resting = told_apart(keyed, there, self.computation.key, now, due)
        both = touched.groupBy(BUCKET).cogroup(records.groupBy(BUCKET))
        stepped = both.applyInArrow(lambda left, right: one(left, right), self._schema)
        made = with_resting(self.spark, stepped, resting, self._schema).localCheckpoint(eager=False)
        rows, frame = (made.where(f"{part} IS NOT NULL").select(f"{part}.*") for part in ("said", "state"))
        loop = rows.where(f"kind = '{FEEDBACK}'") if self.computation.loops else None
        return Computed(rows, Keys(frame, clock, (made, there), loop))

    def onward(self, keys: Keys) -> int:
        """How far those who read the productions may go after an epoch, in microseconds (`stateful.onward`)."""
        assert keys.clock is not None
        held = (_least(keys.frame, _HOLDS), keys.in_flight.oldest)
        return min([self.computation.reached(keys.clock.watermark), *(one for one in held if one is not None)])

    @property
    def _bucket(self) -> str:
        key = ", ".join(map(quoted, self.computation.key))
        return f"PMOD(HASH({key}), {BUCKETS})" if key else "0"

    def _as_records(self) -> list[str]:
        """The ledger's rows of what was fed back, as records that go to their keys."""
        log, key = self.computation.log.columns, self.computation.key
        items = [quoted(name) if name in key else f"{null(type)} AS {quoted(name)}" for name, type in log.items()]
        items += [f"{ours} AS {theirs}" for ours, theirs in zip(_SOURCE, PLACE, strict=True)]
        fields = ["feedback"] if "feedback" in self.types else []
        return [*items, f"STRUCT({', '.join((PANE_TIME, *fields))}) AS {_RETURNED}"]

    def _restored(self, ledger: str, epoch: int) -> str:
        keys = [quoted(name) for name in self.computation.key]
        by = f"PARTITION BY {', '.join(keys)} " if keys else ""
        latest = f"ROW_NUMBER() OVER ({by}ORDER BY epoch DESC) AS _place"
        rows = f"SELECT *, {latest} FROM {ledger} WHERE kind = '{PARTIAL}' AND epoch <= {epoch}L"
        wall = f"TRANSFORM(FILTER(timers, t -> t.domain = '{PROCESSING.value}'), t -> UNIX_MICROS(t.at))"
        event = f"TRANSFORM(FILTER(timers, t -> t.domain = '{EVENT.value}'), t -> UNIX_MICROS(t.at))"
        due = [f"ARRAY_MIN({event})"]
        if self.computation.ordered:
            due.append(
                f"ARRAY_MIN(TRANSFORM(waiting, r -> UNIX_MICROS(r.{quoted(self.computation.log.event_time)}) + 1L))"
            )
        least = f"LEAST({', '.join(due)})" if len(due) > 1 else due[0]
        items = [quoted(name) for name in self._state.fieldNames() if name not in _COUNTED]
        items += [f"{least} AS {_DUE}", f"ARRAY_MIN({wall}) AS {_WALL}"]
        items.append(f"ARRAY_MIN(TRANSFORM(timers, t -> UNIX_MICROS(t.holds))) AS {_HOLDS}")
        return f"SELECT {', '.join(items)} FROM ({rows}) WHERE _place = 1 AND NOT gone"


_COUNTED = (_DUE, _WALL, _HOLDS)


def _least(frame: DataFrame, column: str) -> int | None:
    (row,) = frame.selectExpr(f"MIN({column}) AS least").collect()
    return None if row["least"] is None else int(row["least"])


def given(spark: SparkSession, computation: Computation, rows: DataFrame) -> DataFrame:
    """The records that others read of a computation's ledger rows, as a frame (`stateful.record_of`)."""
    return queried(spark, rows, lambda view: productions(computation, view))


@dataclass(frozen=True)
class _Step:
    """What a Python worker does with one bucket: what its keys have and their records, as Arrow tables."""

    computation: Computation
    clock: Clock
    before: Clock | None
    schema: pa.Schema

    def __call__(self, held: pa.Table, bundle: pa.Table) -> pa.Table:
        given = [{name: value for name, value in one.items() if name != BUCKET} for one in bundle.to_pylist()]
        in_flight = tuple(self._fed_back(one) for one in given if one.get(_RETURNED) is not None)
        records = [one for one in given if one.pop(_RETURNED, None) is None]
        state = State(self._keys(held), self.before, in_flight)
        outcome = step(self.computation, state, records, self.clock)
        columns = {key: self._columns(one) for key, one in outcome.state.keys.items()}
        rows = [{"state": self._kept(key, one, columns[key])} for key, one in outcome.state.keys.items()]
        rows += [{"said": row} for row in self._said(outcome, columns)]
        return pa.Table.from_pylist(rows, schema=self.schema)

    def _key(self, row: Mapping[str, Any]) -> Key:
        return tuple([row[name] for name in self.computation.key])

    def _keys(self, held: pa.Table) -> dict[Key, KeyState]:
        found = {}
        for one in held.to_pylist():
            timers = tuple(
                Timer(
                    timer["name"],
                    instant(timer["at"]),
                    Domain(timer["domain"]),
                    None if timer["holds"] is None else instant(timer["holds"]),
                )
                for timer in one["timers"]
            )
            found[self._key(one)] = KeyState(one.get("state") or {}, timers, tuple(one.get("waiting") or ()))
        return found

    def _kept(self, key: Key, one: KeyState, columns: Row) -> Row:
        """A key's row of the state."""
        at = self.computation.log.event_time
        events = [timer.time for timer in one.timers if timer.domain is EVENT]
        events += [instant(record[at]) + 1 for record in one.waiting[:1]]
        return (
            dict(zip(self.computation.key, key, strict=True))
            | columns
            | {
                _DUE: min(events, default=None),
                _WALL: min((timer.time for timer in one.timers if timer.domain is PROCESSING), default=None),
                _HOLDS: min((timer.holds for timer in one.timers if timer.holds is not None), default=None),
            }
        )

    def _columns(self, one: KeyState) -> Row:
        timers = [
            {
                "name": timer.name,
                "domain": timer.domain.value,
                "at": moment(timer.time),
                "holds": None if timer.holds is None else moment(timer.holds),
            }
            for timer in one.timers
        ]
        found: Row = {"timers": timers}
        if self.computation.fields:
            found["state"] = {name: one.fields.get(name, f.default) for name, f in self.computation.fields.items()}
        return found | ({"waiting": list(one.waiting)} if self.computation.ordered else {})

    def _said(self, outcome: Outcome, columns: Mapping[Key, Row]) -> Iterator[Row]:
        nothing = self._columns(NOTHING)
        for key, work in outcome.work.items():
            yield self._partial(key, columns.get(key, nothing), work, gone=key not in columns)
        for made in outcome.productions:
            record = record_of(self.computation, made)
            places = dict(zip(_SOURCE, (record.pop(name) for name in PLACE), strict=True))
            yield self._row(PRODUCTION, made.key, **record, **places)
        for back in outcome.state.in_flight:
            values = {"feedback": dict(back.values)} if back.values else {}
            places = dict(zip(_SOURCE, (back.epoch, back.out_of, back.place), strict=True))
            yield self._row(FEEDBACK, back.key, **{PANE_TIME: moment(back.at)}, **values, **places)
        watermark = self.before.watermark if self.before else BEGINNING
        for late in outcome.late:
            judged = {"watermark": moment(watermark), "behind": late.behind}
            yield self._row(LATE, late.key, **self._left(late), **judged)
        for bad in outcome.rejected:
            came = {"returned": int(bad.returned)} if self.computation.loops else {}
            yield self._row(REJECTED, self._key(bad.record), **self._left(bad), **came, reason=bad.reason)

    def _partial(self, key: Key, columns: Row, work: Work, *, gone: bool) -> Row:
        counts = {"taken": work.taken, "timers_set": work.set, "timers_fired": work.fired}
        counts["timers_dropped"] = work.dropped
        if self.computation.loops:
            counts["returned"] = work.returned
        return self._row(PARTIAL, key, gone=gone, **counts, **columns)

    def _left(self, one: Late | Rejected) -> Row:
        record, returned = one.record, isinstance(one, Rejected) and one.returned
        places = dict(zip(_SOURCE, (record[name] for name in PLACE), strict=True))
        return {PANE_TIME: record[PANE_TIME if returned else self.computation.log.event_time], **places}

    def _fed_back(self, row: Mapping[str, Any]) -> Feedback:
        """What a record of the loop is."""
        epoch, out_of, place = (row[name] for name in PLACE)
        returned = row[_RETURNED]
        return Feedback(
            self._key(row), returned.get("feedback") or {}, instant(returned[PANE_TIME]), epoch, out_of, place
        )

    def _row(self, kind: str, key: Key, **values: Any) -> Row:
        own = {"kind": kind, "epoch": self.clock.epoch, "processing_time": moment(self.clock.processing_time)}
        return own | dict(zip(self.computation.key, key, strict=True)) | values


_SOURCE = ("source_epoch", "source_partition", "source_offset")
