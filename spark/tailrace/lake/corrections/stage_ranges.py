"""Find the ranges of a stage that a correction of another stage affects, for each kind of stage."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, Generic, TypeVar

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.epoch_properties import epoch_commits
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import PANE, PRODUCTION
from tailrace.lake.schema.filters import after, before, equal, every
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.definition.definition import Definition, KindError, Ranged
from tailrace.model.definition.join import Join
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.derived_logs import Panes
from tailrace.model.logs.log import PANE_TIME
from tailrace.model.windows.panes import END_OF_WINDOW
from tailrace.model.windows.window_spans import windows_between, windows_holding

D = TypeVar("D", bound=Definition)
R = TypeVar("R", bound=Ranged)


class StageRanges(Generic[D]):
    """The ranges of a stage's results, in microseconds: by default, ranges of the event times of its rows.

    In the stage's ledger, the results are the rows whose kind is `kind`. A result's time is the time in column `at`,
    minus `after` microseconds. `rows` is the word for the results in messages.
    """

    rows, kind, at, after = "rows", PRODUCTION, PANE_TIME, 0

    def __init__(self, definition: D) -> None:
        self.definition = definition

    def happened(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of event times that readers see for the results in the given range."""
        return first, last

    def made_of(self, lake: Lake, first: int, last: int) -> tuple[int, int]:
        """Return the range of the stage's results that may depend on records with event times in the given range."""
        return first, last

    def any_in(self, first: int, last: int) -> bool:
        """Return True if there may be results in the given range."""
        return True

    def closed(self, lake: Lake, run: Run) -> int:
        """Return the time before which the streams of later stages do not read a run's results."""
        return run.last

    def open_from(self, lake: Lake) -> int | None:
        """Return the time up to which a backfill may compute the stage now, or None if no backfill computes it."""
        return None


class RangedRanges(StageRanges[R]):
    """The ranges of a stage that a backfill can compute."""

    def open_from(self, lake: Lake) -> int | None:
        return self.definition.open_from(lake.head(ledger_name(self.definition.name)).number("watermark", BEGINNING))


class JoinRanges(RangedRanges[Join]):
    """The ranges of a join: a pair may be at the time of either record, or in the window of the records."""

    def made_of(self, lake: Lake, first: int, last: int) -> tuple[int, int]:
        if self.definition.where is not None:
            return windows_holding(self.definition.where, first, last)
        reach = max(self.definition.reach)
        return max(BEGINNING, first - reach), min(END_OF_TIME, last + reach)


class WindowRanges(RangedRanges[Pipeline]):
    """The ranges of a pipeline's stage, which are ranges of window timestamps."""

    rows, kind, at, after = "windows", PANE, SPAN[1], 1

    def happened(self, first: int, last: int) -> tuple[int, int]:
        if self.definition.timestamp is END_OF_WINDOW:
            return first, last
        where = self.definition.where
        longest = None if where.merges else where.longest
        return BEGINNING if longest is None else max(BEGINNING, first - longest), last

    def made_of(self, lake: Lake, first: int, last: int) -> tuple[int, int]:
        span = windows_holding(self.definition.where, first, last)
        return (span[0], self._reached(lake, first, last)) if self.definition.where.merges else span

    def any_in(self, first: int, last: int) -> bool:
        return windows_between(self.definition.where, first, last)

    def closed(self, lake: Lake, run: Run) -> int:
        known = epoch_commits(lake, ledger_name(self.definition.name))
        if run.log_epoch not in known:
            return run.last
        return min(run.last, self.definition.closed_until(known[run.log_epoch].clock.watermark))

    def _reached(self, lake: Lake, first: int, last: int) -> int:
        """Return the latest end of merging windows that may contain an event time of the range, from existing panes.

        Returns `END_OF_TIME` if the log is the panes of another pipeline, or if the windows have no gap.
        """
        pipeline = self.definition
        gap = pipeline.where.reach
        low, high = max(BEGINNING, first - gap), min(END_OF_TIME, last + gap)
        if isinstance(pipeline.log, Panes) or gap == 0:
            return END_OF_TIME
        panes = every(equal("kind", PANE), before(SPAN[0], high), after(SPAN[1], low))
        rows = lake.table(ledger_name(pipeline.name)).scan(row_filter=panes, selected_fields=(SPAN[1],))
        ends = (batch[SPAN[1]].to_pylist() for batch in rows.to_arrow_batch_reader())
        return max((instant(end) for batch in ends for end in batch), default=high)


@singledispatch
def ranges_of(definition: object) -> StageRanges[Any]:
    """Return the `StageRanges` of a definition, according to its kind."""
    raise KindError("reach of corrections", definition)


# The base classes are registered, so a new kind of definition needs no entry of its own.
ranges_of.register(Definition, StageRanges)
ranges_of.register(Ranged, RangedRanges)
ranges_of.register(Pipeline, WindowRanges)
ranges_of.register(Join, JoinRanges)
