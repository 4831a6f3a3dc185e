"""Run a computation on Spark. The executors run the step in Python, one bucket of keys at a time (MillWheel, 4.1, 6.2).

A key that has neither a record nor a due timer rests, which means that an epoch does not touch the key
(`engines.spark.executions.buckets`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from tailrace.engines.choose import EngineChoice
from tailrace.engines.claims import CLAIM_PLACE, Claiming
from tailrace.engines.protocol import BundleRecords, SteppedRows
from tailrace.engines.python.key_epoch import KeyRows
from tailrace.engines.python.keys import KeyStep
from tailrace.engines.spark.bundles import as_frame
from tailrace.engines.spark.cluster import ClusterSession
from tailrace.engines.spark.executions.buckets import BUCKET, BucketStep, bucket_term, keys_of, split_state
from tailrace.engines.spark.executions.open_windows import free
from tailrace.engines.spark.executions.preparation import empty_frame, schema_of, view_frame
from tailrace.engines.spark.productions import SparkProducer
from tailrace.engines.spark.rows.branch_rows import as_of_snapshot
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_groups import SOURCE
from tailrace.lake.schema.contracts import CLAIMED, FEEDBACK, PRODUCTION
from tailrace.model.base.clock import Clock
from tailrace.model.definition.computation import Computation, ComputationError
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
"""The column with the values of a record that a key fed back. The column is null if the record comes from the log."""


@dataclass(frozen=True)
class SparkKeyState:
    """The state of a computation's keys between two epochs, with the clock of the last epoch.

    `held` are the checkpoints that the state depends on. `loop` contains the ledger rows of the records that the
    computation has sent back to its own input in the last epoch; `loop` is None for a computation that sends back no
    records.
    """

    frame: DataFrame
    clock: Clock | None
    held: tuple[DataFrame, ...] = ()
    loop: DataFrame | None = None

    def forget(self) -> None:
        """Free the checkpoints of this state. The fold calls this method after the next state has been computed."""
        for frame in self.held:
            free(frame)

    @property
    def in_flight(self) -> int:
        """The number of records in flight: the computation has fed them back to itself, but not yet processed them."""
        return self._flying[0]

    @property
    def oldest(self) -> int | None:
        """The earliest event time, in microseconds, of the records that were fed back.

        The value is None if no record was fed back.
        """
        return self._flying[1]

    @cached_property
    def _flying(self) -> tuple[int, int | None]:
        if self.loop is None:
            return 0, None
        (row,) = self.loop.selectExpr("COUNT(*) AS count", f"UNIX_MICROS(MIN({PANE_TIME})) AS oldest").collect()
        return row["count"], row["oldest"]


class SparkKeys(SparkProducer):
    """The implementation of `Side` that runs computations on Spark, for data that does not fit into this process.

    Bundles are data frames or Arrow tables.
    """

    holds = True

    def __init__(self, spark: SparkSession, lake: Lake, computation: Computation, choice: EngineChoice) -> None:
        super().__init__(spark, lake, computation, choice)
        self.computation, self.weak = computation, computation.productions == "weak"
        types = ledger_types(computation)
        self._state = schema_of(key_row_types(computation))
        self._step = BucketStep(spark, self._state, schema_of(types))
        self._bucket = f"{bucket_term(computation.key)} AS {BUCKET}"
        self._fed_back = [name for name in loop_types(computation) if name not in (*computation.key, *SOURCE)]
        self._returned = f"struct<{','.join(f'{name}:{types[name]}' for name in self._fed_back)}>"

    def nothing(self, generation: int = 1) -> SparkKeyState:
        loop = None
        if self.computation.loops:
            loop = empty_frame(self.spark, schema_of(loop_types(self.computation)))
        return SparkKeyState(empty_frame(self.spark, self._state), None, loop=loop)

    def restored(self, snapshot: int | None, clock: Clock, generation: int = 1) -> SparkKeyState:
        return self.restore(as_of_snapshot(self.spark, self.lake, self.ledger, snapshot), clock)

    def restore(self, ledger: DataFrame, clock: Clock) -> SparkKeyState:
        """Restore the keys' state as it was after the epoch of `clock`. `ledger` contains a ledger's rows."""
        with view_frame(self.spark, ledger) as rows:
            frame = self.spark.sql(restored_keys(self.computation, rows, clock.epoch)).localCheckpoint()
            if not self.computation.loops:
                return SparkKeyState(frame, clock, (frame,))
            loop = self.spark.sql(restored_loop(self.computation, rows, clock.epoch)).localCheckpoint()
        return SparkKeyState(frame, clock, (frame, loop), loop)

    def consume(self, bundle: BundleRecords, state: SparkKeyState) -> DataFrame:
        return as_frame(self.spark, bundle)

    def step(self, state: SparkKeyState, consumed: DataFrame, clock: Clock) -> SteppedRows[DataFrame, SparkKeyState]:
        clock.after(state.clock)
        step = KeyStep(
            self.computation, clock, state.clock, *self._step.schemas, stops=self.lake.settings.poison == "stop"
        )
        names = [*map(quoted, self.computation.record_columns), *PLACE]
        if state.loop is not None:
            consumed = consumed.selectExpr(*names, f"{null(self._returned)} AS {_RETURNED}")
            consumed = consumed.unionByName(state.loop.selectExpr(*self._as_records()))
            names.append(_RETURNED)
        records = consumed.selectExpr(*names, self._bucket)
        now = self.spark.sql(row_of({"_watermark": clock.watermark, "_now": clock.processing_time}))
        keys, keyed = keys_of(records, self.computation.key), state.frame.selectExpr("*", self._bucket)
        touched, resting = split_state(keyed, keys, self.computation.key, now, IS_DUE)
        made = self._step.frame(touched, records, partial(_with_loop, step), resting).localCheckpoint(eager=False)
        rows, frame = self._step.parts(made)
        loop = rows.where(f"kind = '{FEEDBACK}'") if self.computation.loops else None
        return SteppedRows(rows, SparkKeyState(frame, clock, (made, keys), loop))

    def settled(
        self, stepped: SteppedRows[DataFrame, SparkKeyState], claiming: Claiming, epoch: int
    ) -> SteppedRows[DataFrame, SparkKeyState]:
        asked = ClusterSession(self.spark, self.lake, self.choice, small=False)
        with closing(asked) as session, view_frame(self.spark, stepped.rows) as ledger_rows:
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
        return SteppedRows(rows, replace(stepped.state, held=(*stepped.state.held, rows)))

    def onward(self, state: SparkKeyState) -> int:
        """Return the upper limit of the readers' watermark after an epoch (`computation_step.onward`).

        The limit is in microseconds. This call computes the epoch, so it raises `ComputationError` if the computation
        fails on an executor.
        """
        assert state.clock is not None
        try:
            held = (_least(state.frame, HOLDS), state.oldest)
        except PythonException as error:
            # Only the message is kept, because the error's text also contains stack traces of Python and of the JVM.
            found = re.search(r"ComputationError: (.*)", str(error))
            if found is None:
                raise
            raise ComputationError(found[1]) from error
        return min([self.computation.reached(state.clock.watermark), *(one for one in held if one is not None)])

    def due(
        self, state: SparkKeyState, periods: Iterable[tuple[int, int]] = (), delays: Iterable[int] = ()
    ) -> int | None:
        return _least(state.frame, WALL)

    def close(self) -> None:
        """Do nothing, because the checkpoints are freed with each state (`SparkKeyState.forget`)."""

    def _as_records(self) -> list[str]:
        """Return the select-list items that convert the ledger rows of fed-back records into input records."""
        log, key = self.computation.record_columns, self.computation.key
        items = [quoted(name) if name in key else f"{null(type)} AS {quoted(name)}" for name, type in log.items()]
        items += [f"{ours} AS {theirs}" for ours, theirs in zip(SOURCE, PLACE, strict=True)]
        return [*items, f"STRUCT({', '.join(self._fed_back)}) AS {_RETURNED}"]


def _with_loop(step: KeyStep, held: pa.Table, bundle: pa.Table) -> KeyRows:
    """Split `bundle` into the log's records and the records that were fed back, and run the step for the bucket."""
    if _RETURNED not in bundle.column_names:
        return step(held, bundle, None)
    back = pc.is_valid(bundle[_RETURNED])
    flying = bundle.filter(back)
    names = {name: flying[name] for name in step.computation.key}
    names |= {ours: flying[theirs] for ours, theirs in zip(SOURCE, PLACE, strict=True)}
    values = flying[_RETURNED]
    loop = pa.table(names | {one.name: pc.struct_field(values, one.name) for one in values.type})
    return step(held, bundle.filter(pc.invert(back)), loop)


def _least(frame: DataFrame, column: str) -> int | None:
    (row,) = frame.selectExpr(f"MIN({column}) AS least").collect()
    return None if row["least"] is None else int(row["least"])
