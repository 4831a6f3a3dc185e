"""Report how many records were too late for a definition, and which ranges of event time to backfill (X6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, singledispatch
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from tailrace.lake.catalog.drift import check_meaning
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.runs_table import committed_backfills
from tailrace.lake.read.late_records import (
    Groups,
    LateReport,
    LateSpan,
    count_late_rows,
    group_late_rows,
    is_taken_in,
    late_ranges,
    late_windows,
    taken_in_until,
)
from tailrace.lake.schema.contracts import LATE
from tailrace.lake.schema.filters import equal
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration, minutes
from tailrace.model.definition.definition import Definition, KindError
from tailrace.model.definition.join import Join
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.logs.log import PANE_TIME
from tailrace.model.windows.windows import Window

_SHORTEST = duration(minutes(1))
"""The minimum length, in microseconds, of the spans of event time into which a join's late records are grouped."""


class LateRows(NamedTuple):
    """The late rows of a ledger, grouped by spans of event time.

    `taken_in` is a function that returns True if backfills have included the records of a span. `closed` is an event
    time: a range that ends at or before this time can be backfilled now.
    """

    spans: Iterable[LateSpan]
    taken_in: Callable[[LateSpan], bool]
    closed: int


@singledispatch
def late_rows(definition: object, lake: Lake, ledger: Table, groups: Groups, runs: Sequence[Run]) -> LateRows:
    """Find the late rows in a definition's ledger.

    The definition must be of a kind whose backfills can include late records (`Definition.repairs_late`).
    """
    raise KindError("report of late records", definition)


@late_rows.register
def _of_pipeline(pipeline: Pipeline, lake: Lake, ledger: Table, groups: Groups, runs: Sequence[Run]) -> LateRows:
    taken_in = partial(is_taken_in, steps=taken_in_until(runs))
    return LateRows(late_windows(lake, pipeline, ledger, groups), taken_in, pipeline.closed_until(_watermark(ledger)))


@late_rows.register
def _of_join(join: Join, lake: Lake, ledger: Table, groups: Groups, runs: Sequence[Run]) -> LateRows:
    def taken_in(late: LateSpan) -> bool:
        """Return True if a backfill has read these late records and has computed all rows that may contain the
        records.
        """
        return any(
            run.log_epoch is not None and run.log_epoch >= late.epoch and run.covers(late.span.start, late.span.end)
            for run in runs
        )

    rows = ledger.scan(row_filter=equal("kind", LATE), selected_fields=(PANE_TIME, "epoch", "behind"))
    return LateRows(_join_spans(join, rows.to_arrow_batch_reader()), taken_in, join.open_from(_watermark(ledger)))


def _watermark(ledger: Table) -> int:
    return head_of(ledger).number("watermark", BEGINNING)


def _join_spans(join: Join, batches: Iterable[pa.RecordBatch]) -> Iterator[LateSpan]:
    """Count the late records of both sides of a join, grouped by epoch and by span of event time."""
    reach = max(join.reach) if join.where is None else join.where.longest or 0
    span = max(reach, _SHORTEST)

    def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return, for each late record, the index of its span of event time; span 0 begins at the beginning of time."""
        since = pc.subtract(pc.cast(batch[PANE_TIME], pa.int64()), BEGINNING)
        columns = {"place": pc.divide(since, span), "epoch": batch["epoch"], "behind": batch["behind"]}
        return pa.RecordBatch.from_pydict(columns)

    for row in count_late_rows(map(numbered, batches), ("place", "epoch")):
        first = BEGINNING + row["place"] * span
        rows = Window(max(BEGINNING, first - reach), min(END_OF_TIME, first + span + reach))
        yield LateSpan(rows, row["epoch"], row["count_all"], row["behind_max"])


def late_report(lake: Lake, definition: Definition, groups: Groups = group_late_rows) -> LateReport:
    """Report the records that were too late for one stage or join.

    `groups` is the function that groups the late records of windows; an engine may pass its own function. Raises
    `LakeError` if there is no ledger, and `OtherDefinitionError` if the ledger belongs to a definition that computes
    something else.
    """
    check_meaning(lake, definition)
    # The runs are read after the ledger, so that every run with rows in the ledger is found.
    ledger = lake.table(ledger_name(definition.name))
    runs = committed_backfills(lake, definition.name)
    late = late_rows(definition, lake, ledger, groups, runs)
    spans = list(late.spans)
    left = [one for one in spans if not late.taken_in(one)]
    total = sum(one.records for one in spans)
    repaired = total - sum(one.records for one in left)
    return LateReport(definition, total, repaired, tuple(late_ranges(left)), late.closed)
