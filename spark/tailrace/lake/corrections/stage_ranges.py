"""Find the ranges of a stage's results that a correction of an earlier stage affects, for each kind of stage."""

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
    """Computes ranges of a stage's results, in microseconds; by default, these are ranges of the rows' event times.

    In the stage's ledger, the results are the rows whose kind is `kind`. The time of a result is its value in column
    `at`, minus `after` microseconds. `rows` is the word that messages use for the results.
    """

    rows, kind, at, after = "rows", PRODUCTION, PANE_TIME, 0

    def __init__(self, definition: D) -> None:
        self.definition = definition

    def happened(self, first: int, last: int) -> tuple[int, int]:
        """Return the first and the last bound of the event times with which later stages read the results in the given
        range.
        """
        return first, last

    def made_of(self, lake: Lake, first: int, last: int) -> tuple[int, int]:
        """Return the bounds of the range of this stage's results that can depend on input records in the given range.

        The given range is a range of event times.
        """
        return first, last

    def any_in(self, first: int, last: int) -> bool:
        """Return True if the stage can have results in the given range."""
        return True

    def closed(self, lake: Lake, run: Run) -> int:
        """Return the end of the range in which later stages need a backfill to receive a run's corrections.

        The streams of later stages themselves read the run's corrections at or after this time.
        """
        return run.last

    def open_from(self, lake: Lake) -> int | None:
        """Return the time up to which a backfill can compute the stage at present.

        Returns None if backfills never compute a stage of this kind.
        """
        return None


class RangedRanges(StageRanges[R]):
    """The ranges of a stage's results, for a stage that a backfill can compute."""

    def open_from(self, lake: Lake) -> int | None:
        return self.definition.open_from(lake.head(ledger_name(self.definition.name)).number("watermark", BEGINNING))


class JoinRanges(RangedRanges[Join]):
    """The ranges of a join's results. The time of a joined pair is the time of one of the two records, or a time in
    their window.
    """

    def made_of(self, lake: Lake, first: int, last: int) -> tuple[int, int]:
        if self.definition.where is not None:
            return windows_holding(self.definition.where, first, last)
        reach = max(self.definition.reach)
        return max(BEGINNING, first - reach), min(END_OF_TIME, last + reach)


class WindowRanges(RangedRanges[Pipeline]):
    """The ranges of a pipeline's results, expressed as ranges of window timestamps."""

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
        """Return the latest end of the pipeline's merging windows that can contain an event time of the given range.

        Only windows that have a pane in the pipeline's ledger are considered. If no such window can contain an event
        time of the range, the end of the range plus the gap is returned. Returns `END_OF_TIME` if the pipeline's log
        has the panes of another pipeline, or if the merging windows have no gap.
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
    """Return the `StageRanges` of a definition; the class of the returned object depends on the definition's kind."""
    raise KindError("reach of corrections", definition)


# The classes are registered for base classes of definitions, so a new kind of definition needs no registration.
ranges_of.register(Definition, StageRanges)
ranges_of.register(Ranged, RangedRanges)
ranges_of.register(Pipeline, WindowRanges)
ranges_of.register(Join, JoinRanges)
