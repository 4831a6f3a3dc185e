"""The common base of the executions on Spark: what an epoch goes through, and its result.

The open windows are a frame with the state columns of `model.step.transition`, whichever execution made them, so a
ledger's partials restore the state of either.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.engines.spark.executions.open_windows import OpenWindows, checkpointed
from tailrace.engines.spark.executions.preparation import empty_frame, held_once, prepare, queried, schema_of
from tailrace.engines.spark.executions.resting_files import Reach, Resting
from tailrace.engines.spark.executions.resting_windows import RestingWindows
from tailrace.engines.spark.workers.worker_queries import LogFiles
from tailrace.lake.schema.contracts import PARTIAL
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.holds import holds_back, oldest_held
from tailrace.sql.epoch.ledger_rows import Rows, state_types
from tailrace.sql.records.selections import FAILED, may_fail


@dataclass(frozen=True)
class PreparedBundle:
    """A bundle after the definition's steps: the records, those that a step rejected, and the checkpoints of both."""

    records: DataFrame
    rejected: DataFrame | None = None
    held: tuple[DataFrame, ...] = ()


@dataclass(frozen=True)
class Consumed:
    """The result of an epoch's first job, on its bundle.

    `closest` is the end of the first window in microseconds; None in an empty bundle, or where the execution does not
    need it. `furthest` is that of the last. `rejected` are the records that a step rejected, and `held` the checkpoints
    that all this depends on. `reach` says which of the windows that rest the partials can meet, where some rest.
    `count` is how many partials there are, 0 where nobody has counted. `records` is how many records the bundle has,
    and `late` whether some came too late; None where nobody has looked.
    """

    partials: DataFrame
    closest: int | None
    furthest: int | None
    rejected: DataFrame | None = None
    held: tuple[DataFrame, ...] = ()
    reach: Reach | None = None
    count: int = 0
    records: int | None = None
    late: bool | None = None


@dataclass(frozen=True)
class Stepped:
    """The result of an epoch: the rows of the ledger, computed when they are written, and the state after it.

    `partials` is how many partials the rows come of, at most as many as there are rows; 0 where nobody has counted.
    `ends` is when the first and the last of the windows that they are of end, in microseconds; None where that is not
    known. `most` is how many windows and late records they are of at most; None where that is not known.
    """

    rows: DataFrame
    state: OpenWindows
    partials: int = 0
    ends: tuple[int, int] | None = None
    most: int | None = None


class SparkExecution:
    """A definition in a Spark session: it takes bundles and open windows through epochs."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, rest: RestingWindows | None = None) -> None:
        """Take a definition in; `rest` has windows rest in files where many are open, else all stay in memory."""
        self.spark, self.pipeline, self._rest = spark, pipeline, rest
        self.rows = Rows(pipeline)

    def nothing(self, generation: int = 0) -> OpenWindows:
        """Return the state before the first epoch."""
        self._begin()
        return OpenWindows(empty_frame(self.spark, self._state_schema()), None, generation)

    def restore(self, ledger: DataFrame, clock: Clock, generation: int, partials: int = 0) -> OpenWindows:
        """Restore the state after the epoch of `clock` from a ledger's partials, of which there are so many at most."""
        self._begin()
        text = partial(self.rows.within_reach, watermark=clock.watermark)
        if self._rest is not None and partials > self._rest.most:
            # In parts small enough for a task, each of which has all partials of its windows.
            spread = self._rest.spread(ledger.where(f"kind = '{PARTIAL}'"), partials)
            return self._rest.restored(queried(self.spark, spread, text), clock, generation, partials)
        windows, count = checkpointed(queried(self.spark, ledger, text), F.lit(True), eager=True)
        return OpenWindows(windows, clock, generation, (windows,), count, ends=count.ends)

    def _begin(self) -> None:
        if self._rest is not None:
            self._rest.begin()

    def close(self) -> None:
        """Remove the files of windows that rest; the other windows are freed with each state (`OpenWindows.forget`)."""
        if self._rest is not None:
            self._rest.close()

    def _settled(self, state: OpenWindows) -> OpenWindows:
        """Return a state whose windows rest in files where too many of them are in memory."""
        return state if self._rest is None else self._rest.settled(state)

    def _awake(
        self, state: OpenWindows, records: DataFrame, reach: Reach | None, clock: Clock, *, by_key: bool
    ) -> tuple[DataFrame, Resting | None]:
        """Return the windows that an epoch takes through the rules, and those that rest after it, if any do.

        Records meet the windows of their key, or those alone that they are in.
        """
        state = self._settled(state)
        if self._rest is None or reach is None:
            assert state.resting is None
            return state.windows, None
        return self._rest.awake(state, records, reach, clock, by_key=by_key)

    def every(self, state: OpenWindows) -> DataFrame:
        """Return all open windows of a state, those that rest included."""
        return state.windows if self._rest is None else self._rest.every(state)

    def consume(self, bundle: DataFrame, state: OpenWindows, files: LogFiles | None = None) -> Consumed:
        """Prepare a bundle for the step; `files` hold the same records, where a log's files hold just these.

        It has the log's columns and where each record came from; a later stage's also has each record's sign.
        """
        raise NotImplementedError

    def _prepared(self, bundle: DataFrame) -> PreparedBundle:
        """Take a bundle through the definition's steps."""
        frame = prepare(bundle, self.pipeline)
        if not may_fail(self.pipeline):
            return PreparedBundle(frame)
        frame, held = held_once(frame, self.pipeline)
        good, bad = (frame.where(f"{FAILED} IS {which}") for which in ("NULL", "NOT NULL"))
        return PreparedBundle(good.drop(FAILED), bad, held)

    def _with_rejected(self, rows: DataFrame, consumed: Consumed, clock: Clock) -> DataFrame:
        """Append the rows of the records that a step rejected to the ledger's other rows."""
        rejected = consumed.rejected
        if rejected is None:
            return rows
        return rows.unionAll(queried(self.spark, rejected, lambda view: self.rows.of_rejected(view, clock)))

    @property
    def holds(self) -> bool:
        """Whether open windows can hold a later stage's watermark at all."""
        return holds_back(self.pipeline)

    def held(self, state: OpenWindows) -> int | None:
        """Find the oldest timestamp that the open windows hold for a later stage (rule T3), in microseconds.

        None if they hold none. It is computed as in `tailrace.model.step.stages.watermark`.
        """
        if not self.holds:
            return None
        (row,) = self.every(state).selectExpr(f"{oldest_held(self.pipeline)} AS oldest").collect()
        found = row["oldest"]
        return None if found is None else int(found)

    def onward(self, state: OpenWindows) -> int:
        """Return the bound, in microseconds, of a later stage's watermark after this state's epoch (rule T3)."""
        assert state.clock is not None
        held = self.held(state)
        return state.clock.watermark if held is None else min(state.clock.watermark, held)

    def step(self, state: OpenWindows, consumed: Consumed, clock: Clock) -> Stepped:
        """Take the open windows through an epoch. Raises `ClockError` if the clock goes back.

        Nothing is computed yet: the first action on the result's `rows` computes them and the state after the epoch.
        """
        raise NotImplementedError

    def _state_schema(self) -> StructType:
        return schema_of(state_types(self.pipeline))
