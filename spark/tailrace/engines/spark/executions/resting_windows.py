"""Move open windows to files if too many are in memory, and move the windows that an epoch touches back to memory.

Windows that an epoch touched stay in memory until there are too many windows in memory again. The cost of an epoch
therefore depends on three things: the windows that the epoch touches, the windows that recent epochs touched, and a
search of the buckets and row groups that may contain windows that the epoch touches.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.spark.executions.open_windows import OpenWindows, checkpoint, free, without_constraints
from tailrace.engines.spark.executions.preparation import empty_frame, schema_of
from tailrace.engines.spark.executions.resting_files import Reach, RestingFiles, RestingState
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.table_names import RESTING
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.outlook import Outlook, outlook, passed_before, stays
from tailrace.model.step.transition import Times
from tailrace.sql.epoch.clock_row import clock_row
from tailrace.sql.epoch.ledger_rows import state_types
from tailrace.sql.epoch.touched_windows import changed_by_clock

FRAMES = 16
"""If there are at least this many data frames of windows in memory, they are combined into a single data frame.

Each of these data frames contains the windows that one epoch took out of the files.
"""

A_PART = 1_000_000
"""The approximate number of partials (state rows of windows) per task when windows are restored from the ledger."""


class RestingWindows:
    """The resting windows of one fold: open windows in files, because more than `most` windows were in memory."""

    def __init__(
        self, spark: SparkSession, lake: Lake, pipeline: Pipeline, most: int, *, streams: bool = False
    ) -> None:
        """Initialize without creating a file.

        `streams` is true if the fold belongs to a stream, which has the lease and may therefore remove the files of
        earlier streams.
        """
        self.spark, self.pipeline, self.most = spark, pipeline, most
        self.files = RestingFiles(spark, lake, pipeline, RESTING if streams else f"replay_{RESTING}")
        self._streams = streams
        self._outlook = outlook(pipeline)
        self._changing, self._schema = changed_by_clock(pipeline), schema_of(state_types(pipeline))
        self._settled: tuple[OpenWindows, OpenWindows] | None = None
        self._taken: list[DataFrame] = []
        self._past: list[DataFrame] = []

    def spread(self, partials: DataFrame, number: int) -> DataFrame:
        """Divide a ledger's partials (state rows of windows) into parts that are each small enough for one task.

        All partials of a window are in the same part. `number` is the number of partials.
        """
        tasks = int(self.spark.conf.get("spark.sql.shuffle.partitions") or 1)
        return partials.repartition(max(tasks, number // A_PART + 1), *self.pipeline.key, *SPAN)

    def restored(self, rows: DataFrame, clock: Clock, generation: int, partials: int) -> OpenWindows:
        """Write restored windows to files. If at most `most` windows were restored, move them back to memory.

        `rows` contains the restored windows. `partials` is an upper bound on their number.
        """
        resting = self.files.made(rows, partials)
        if resting.rows <= self.most:
            windows, count = checkpoint(self.files.read(resting), F.lit(True), eager=True)
            self.files.close()
            return OpenWindows(windows, clock, generation, (windows,), count)
        state = OpenWindows(self._none(), clock, generation, (), _nothing, resting)
        if self._outlook is not Outlook.SAME:
            return state
        now, after = self._standing(state), passed_before(self.pipeline, clock.watermark)
        windows, count = checkpoint(self.files.changed(resting, now, after), F.lit(True), eager=True)
        self._taken.append(windows)
        return replace(state, windows=windows, count=count, resting=resting.less(windows, count))

    def settled(self, state: OpenWindows) -> OpenWindows:
        """Move a state's windows to files if too many windows are in memory, or too many have been taken out of the
        files.

        Returns the resulting state. The given state must be published, or its windows must at least be computed.
        Otherwise the files would contain windows of an epoch that may still be dropped or folded again. A second call
        with the same state returns the same result.
        """
        if self._settled is not None and self._settled[0] is state:
            return self._settled[1]
        there = state.count() if state.count is not None else 0
        gone = 0 if state.resting is None else state.resting.gone()
        made = state
        if max(there, gone) > self.most:
            made = self._rest(state, there)
        elif state.resting is not None and len(state.resting.taken) >= FRAMES:
            made = replace(state, resting=self._in_one(state.resting))
        self._settled = state, made
        return made

    def reaching(self, state: OpenWindows, *, windows: bool) -> tuple[Column, ...]:
        """Return the aggregates that compute bounds on the windows that an epoch's records can touch (`Reach`).

        The tuple is empty if no window rests in files. `windows` is true if each record has been assigned to a window.
        Otherwise, only the key of each record is known.
        """
        return () if state.resting is None else self.files.reach(state.resting, windows=windows)

    def awake(
        self, state: OpenWindows, records: DataFrame, reach: Reach | None, clock: Clock, *, by_key: bool
    ) -> tuple[DataFrame, RestingState | None]:
        """Return the windows that an epoch processes, and the windows that rest (stay in files) after the epoch.

        If no window rests, the second result is None. `reach` limits the search in the files (`Reach`). If `by_key` is
        true, a record touches all windows of its key. Otherwise, a record touches only the windows that contain it.
        """
        if (resting := state.resting) is None:
            return state.windows, None
        assert reach is not None, "records were consumed after a state whose windows rest"
        now = self.spark.sql(clock_row(self.pipeline, state.clock, clock, state.generation))
        until = self._until(state, clock)
        found = self.files.touched(resting, records, reach, now, until, by_key=by_key)
        with without_constraints(self.spark):
            taken, count = checkpoint(self.files.taken_out(resting, found), F.lit(True))
        self._taken.append(taken)
        return state.windows.unionByName(taken), resting.less(taken, count)

    def every(self, state: OpenWindows) -> DataFrame:
        """Return all open windows, both from memory and from files.

        Only the columns that the caller uses are read from files.
        """
        if state.resting is None:
            return state.windows
        return state.windows.unionByName(self.files.live(state.resting))

    def begin(self) -> None:
        """Remove the files of the fold's previous state. In a stream, also remove the files of earlier streams.

        This is safe, because the stream holds the lease: no earlier stream can write any more.
        """
        self.close()
        if self._streams:
            self.files.drop_others()

    def close(self) -> None:
        """Remove the files, and free the data frames of windows that were taken out of the files."""
        self.files.close()
        # The first call of `_release` only retires the data frames; the second call frees them.
        self._release()
        self._release()
        self._settled = None

    def _rest(self, state: OpenWindows, there: int) -> OpenWindows:
        """Move a state's windows to files, except the windows that the next epoch changes even without a new record."""
        goes, resting, names = state.windows, state.resting, state.windows.columns
        stay, count = self._none(), _nothing
        if self._outlook is Outlook.SAME and state.clock is not None:
            after = passed_before(self.pipeline, state.clock.watermark)
            stays = F.expr(f"window_end >= {after}L AND {self._changing}").alias(_STAYS)
            judged = goes.crossJoin(self._standing(state)).select(*names, stays)
            goes = judged.where(f"NOT {_STAYS}").select(*names)
            stay, count = checkpoint(judged.where(_STAYS).select(*names), F.lit(True), eager=True)
        made = self.files.made(goes, there) if resting is None else self.files.returned(resting, goes)
        self._release(*(() if count is _nothing else (stay,)))
        return replace(state, windows=stay, count=count, resting=made)

    def _until(self, state: OpenWindows, clock: Clock) -> int | None:
        """Return a limit for the end times of windows in files.

        In the epoch of `clock`, the windows in files that end at the limit or later change only through new records.
        Returns None if this epoch may change any window in files, even without a new record.
        """
        passed = passed_before(self.pipeline, clock.watermark)
        if self._outlook is not Outlook.ANY:
            return passed
        return passed if stays(self.pipeline, Times.of(self.pipeline, state.clock, clock)) else None

    def _standing(self, state: OpenWindows) -> DataFrame:
        """Return the clock's row for an epoch that would follow `state` immediately, without any time passing."""
        assert state.clock is not None
        again = replace(state.clock, signals=())
        return self.spark.sql(clock_row(self.pipeline, state.clock, again, state.generation))

    def _in_one(self, resting: RestingState) -> RestingState:
        rows = reduce(DataFrame.unionAll, (frame.select(*self.pipeline.key, *SPAN) for frame in resting.taken))
        frame, count = checkpoint(rows, F.lit(True), eager=True)
        self._release()
        self._taken.append(frame)
        return replace(resting, taken=(frame,), counts=(count,))

    def _release(self, *more: DataFrame) -> None:
        """Free the data frames that the previous call retired, and then retire more data frames.

        The newly retired frames are `more` and the frames of the windows that epochs took out since the previous call.
        A retired frame is kept until the next call, because an epoch that was computed but not published may be folded
        again from a state that needs the frame.
        """
        for frame in self._past:
            free(frame)
        self._past, self._taken = [*self._taken, *more], []

    def _none(self) -> DataFrame:
        return empty_frame(self.spark, self._schema)


def _nothing() -> int:
    return 0


_STAYS = "_stays"
