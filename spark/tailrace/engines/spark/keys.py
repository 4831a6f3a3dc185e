"""A computation on Spark: the reference step on the executors, a bucket of keys at a time (MillWheel, 4.1 and 6.2).

State and bundle are brought together by a hash of the key, as in `engines.spark.executions.per_key`; keys that have
neither a record nor a due timer rest (`engines.spark.executions.resting_state`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tailrace.engines.choose import EngineChoice
from tailrace.engines.claims import CLAIM_PLACE, Claiming
from tailrace.engines.protocol import EpochCounts
from tailrace.engines.python.keys import KeyStep
from tailrace.engines.spark.bundles import Bundled, as_frame
from tailrace.engines.spark.cluster import ClusterSession
from tailrace.engines.spark.executions.observed_counts import ObservedCounts
from tailrace.engines.spark.executions.open_windows import free
from tailrace.engines.spark.executions.per_key import BUCKET, as_pair, bucketed
from tailrace.engines.spark.executions.preparation import empty_frame, schema_of, viewed
from tailrace.engines.spark.executions.resting_state import brought, split_state, with_resting
from tailrace.engines.spark.productions import SparkProducer
from tailrace.engines.spark.rows.branch_rows import append, as_of_snapshot
from tailrace.engines.spark.workers.python_tasks import over_group
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.column_groups import SOURCE
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, LATE, PRODUCTION, REJECTED
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.context import ComputationError
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.sql.epoch.clock_row import row_of
from tailrace.sql.epoch.key_state import (
    HOLDS,
    IS_DUE,
    WALL,
    key_row_types,
    ledger_types,
    loop_types,
    restored_keys,
    restored_loop,
)
from tailrace.sql.terms import null, quoted

_RETURNED = "_returned"
"""The column of an epoch's records with what was fed back; null for a record of the log."""


@dataclass(frozen=True)
class KeysThere:
    """The state of the keys between two epochs, and the last epoch's clock. `held` are the checkpoints behind it.

    `loop` has the ledger's rows of the records fed back in that epoch; None for a computation without a loop.
    """

    frame: DataFrame
    clock: Clock | None
    held: tuple[DataFrame, ...] = ()
    loop: DataFrame | None = None

    def forget(self) -> None:
        """Free the checkpoints, once the state after this one is computed."""
        for frame in self.held:
            free(frame)

    @property
    def in_flight(self) -> int:
        """The number of records in flight on the loop."""
        return self._flying[0]

    @property
    def oldest(self) -> int | None:
        """The oldest event time of the records in flight, in microseconds."""
        return self._flying[1]

    @cached_property
    def _flying(self) -> tuple[int, int | None]:
        if self.loop is None:
            return 0, None
        (row,) = self.loop.selectExpr("COUNT(*) AS count", f"UNIX_MICROS(MIN({PANE_TIME})) AS oldest").collect()
        return row["count"], row["oldest"]


@dataclass(frozen=True)
class ComputedThere:
    """The result of an epoch: the ledger's rows, computed when they are first read, and the keys after it."""

    rows: DataFrame
    state: KeysThere


class SparkKeys(SparkProducer):
    """A computation on Spark, for large work. Bundles are frames, or Arrow tables that become frames."""

    direct = False
    holds = True

    def __init__(self, spark: SparkSession, lake: Lake, computation: Computation, choice: EngineChoice) -> None:
        self.spark, self.lake, self.computation, self.choice = spark, lake, computation, choice
        self.definition, self.ledger = computation, ledger_name(computation.name)
        types = ledger_types(computation)
        self._state = schema_of(key_row_types(computation))
        self._schema = StructType([StructField("state", self._state), StructField("ledger", schema_of(types))])
        self._bucket = f"{bucketed(computation.key)} AS {BUCKET}"
        self._fed_back = [name for name in loop_types(computation) if name not in (*computation.key, *SOURCE)]
        self._returned = f"struct<{','.join(f'{name}:{types[name]}' for name in self._fed_back)}>"

    def nothing(self, generation: int = 1) -> KeysThere:
        loop = None
        if self.computation.loops:
            loop = empty_frame(self.spark, schema_of(loop_types(self.computation)))
        return KeysThere(empty_frame(self.spark, self._state), None, loop=loop)

    def restored(self, snapshot: int | None, clock: Clock, generation: int = 1) -> KeysThere:
        return self.restore(as_of_snapshot(self.spark, self.lake, self.ledger, snapshot), clock)

    def restore(self, ledger: DataFrame, clock: Clock) -> KeysThere:
        """Restore the state after the epoch of `clock` from a ledger's rows."""
        with viewed(self.spark, ledger) as rows:
            frame = self.spark.sql(restored_keys(self.computation, rows, clock.epoch)).localCheckpoint()
            if not self.computation.loops:
                return KeysThere(frame, clock, (frame,))
            loop = self.spark.sql(restored_loop(self.computation, rows, clock.epoch)).localCheckpoint()
        return KeysThere(frame, clock, (frame, loop), loop)

    def consume(self, bundle: Bundled, state: KeysThere) -> DataFrame:
        return as_frame(self.spark, bundle)

    def step(self, state: KeysThere, consumed: DataFrame, clock: Clock) -> ComputedThere:
        """Take the keys through an epoch. Raises `ClockError` if the clock goes back."""
        clock.after(state.clock)
        schema = to_arrow_schema(self._schema)
        states, ledger = (pa.schema(list(schema.field(part).type)) for part in ("state", "ledger"))
        step = KeyStep(self.computation, clock, state.clock, states, ledger, self.lake.settings.poison == "stop")
        bucket = _Bucket(step, schema)
        names = [*map(quoted, self.computation.log.columns), *PLACE]
        if state.loop is not None:
            consumed = consumed.selectExpr(*names, f"{null(self._returned)} AS {_RETURNED}")
            consumed = consumed.unionByName(state.loop.selectExpr(*self._as_records()))
            names.append(_RETURNED)
        records = consumed.selectExpr(*names, self._bucket)
        now = self.spark.sql(row_of({"_watermark": clock.watermark, "_now": clock.processing_time}))
        keyed = state.frame.selectExpr("*", self._bucket)
        there = brought(records, self.computation.key)
        touched, resting = split_state(keyed, there, self.computation.key, now, IS_DUE)
        both = touched.groupBy(BUCKET).cogroup(records.groupBy(BUCKET))
        stepped = both.applyInArrow(lambda left, right: over_group(bucket, left, right), self._schema)
        made = with_resting(self.spark, stepped, resting, self._schema).localCheckpoint(eager=False)
        rows, frame = (made.where(f"{part} IS NOT NULL").select(f"{part}.*") for part in ("ledger", "state"))
        loop = rows.where(f"kind = '{FEEDBACK}'") if self.computation.loops else None
        return ComputedThere(rows, KeysThere(frame, clock, (made, there), loop))

    def settled(self, stepped: ComputedThere, claiming: Claiming, epoch: int) -> ComputedThere:
        asked = ClusterSession(self.spark, self.lake, self.choice, small=False)
        with closing(asked) as session, viewed(self.spark, stepped.rows) as ledger_rows:
            others = claiming.left_out(session, ledger_rows, epoch)
            if others is None:
                return stepped
            same = " AND ".join(f"r.{name} = m.{name}" for name in CLAIM_PLACE)
            kinds = {"kind": f"IF(m.{CLAIM_PLACE[0]} IS NULL, r.kind, '{CLAIMED}')"}
            items = (
                f"{kinds.get(name, f'r.{quoted(name)}')} AS {quoted(name)}" for name in ledger_types(self.computation)
            )
            marked = f"FROM {ledger_rows} r LEFT JOIN {others} m ON r.kind = '{PRODUCTION}' AND {same}"
            rows = self.spark.sql(f"SELECT {', '.join(items)} {marked}").localCheckpoint()
        return ComputedThere(rows, replace(stepped.state, held=(*stepped.state.held, rows)))

    def write(self, stepped: ComputedThere, branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        kind = F.col("kind")
        kinds = (PRODUCTION, CLAIMED, FEEDBACK, LATE, REJECTED)
        counts = ObservedCounts(stepped.rows, *(F.count_if(kind == one).alias(one) for one in kinds))
        rows = counts.rows
        if self.computation.productions == "weak":
            rows = rows.where(kind != PRODUCTION)
        append(rows, branch, properties)
        return EpochCounts.of_kinds(counts.read())

    def onward(self, state: KeysThere) -> int:
        """Return the bound, in microseconds, of the readers' watermark after an epoch (`computation_step.onward`).

        This computes the epoch, so it raises `ComputationError` where the computation fails on an executor.
        """
        assert state.clock is not None
        try:
            held = (_least(state.frame, HOLDS), state.oldest)
        except PythonException as error:
            # The message comes with the traces of Python and of the JVM.
            found = re.search(r"ComputationError: (.*)", str(error))
            if found is None:
                raise
            raise ComputationError(found[1]) from error
        return min([self.computation.reached(state.clock.watermark), *(one for one in held if one is not None)])

    def due(self, state: KeysThere, periods: Iterable[tuple[int, int]] = (), delays: Iterable[int] = ()) -> int | None:
        return _least(state.frame, WALL)

    def close(self) -> None:
        """Do nothing: the checkpoints are freed with each state (`KeysThere.forget`)."""

    def _as_records(self) -> list[str]:
        """Write the items that turn the ledger's rows of records fed back into records that go to their keys."""
        log, key = self.computation.log.columns, self.computation.key
        items = [quoted(name) if name in key else f"{null(type)} AS {quoted(name)}" for name, type in log.items()]
        items += [f"{ours} AS {theirs}" for ours, theirs in zip(SOURCE, PLACE, strict=True)]
        return [*items, f"STRUCT({', '.join(self._fed_back)}) AS {_RETURNED}"]


@dataclass(frozen=True)
class _Bucket:
    """The call of a Python worker on one bucket: the state of its keys and their records, as Arrow tables.

    The result has two columns of structs: a key's row in `state`, a row of the ledger in `ledger`.
    """

    step: KeyStep
    schema: pa.Schema

    def __call__(self, held: pa.Table, bundle: pa.Table) -> pa.Table:
        loop = None
        if _RETURNED in bundle.column_names:
            back = pc.is_valid(bundle[_RETURNED])
            bundle, loop = bundle.filter(pc.invert(back)), self._loop(bundle.filter(back))
        return as_pair(self.schema, *self.step(held, bundle, loop))

    def _loop(self, records: pa.Table) -> pa.Table:
        """Turn the records in flight into rows of the ledger."""
        names = {name: records[name] for name in self.step.computation.key}
        names |= {ours: records[theirs] for ours, theirs in zip(SOURCE, PLACE, strict=True)}
        back = records[_RETURNED]
        return pa.table(names | {one.name: pc.struct_field(back, one.name) for one in back.type})


def _least(frame: DataFrame, column: str) -> int | None:
    (row,) = frame.selectExpr(f"MIN({column}) AS least").collect()
    return None if row["least"] is None else int(row["least"])
