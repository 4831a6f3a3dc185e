"""Records that came too late for a join, by ranges that a backfill would repair (rule X6), without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.lake.catalog.drift import check_meaning
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.late_records import Came, LateReport, late_counted, late_ranges
from tailrace.lake.schema.contracts import LATE
from tailrace.lake.schema.filters import equal
from tailrace.lake.schema.table_names import ledger_name, runs_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, minutes
from tailrace.model.definition.join import Join
from tailrace.model.logs.log import PANE_TIME
from tailrace.model.windows.windows import Window

_LEAST = minutes(1) // minutes(0).resolution
"""Microseconds of event time whose late records are told of together, where a join reaches no further."""


def late_join_report(lake: Lake, join: Join) -> LateReport:
    """Report the records that came too late for a join, of both sides; a record counts once for each window.

    Raises `LakeError` where the join has no ledger, and `OtherDefinitionError` where that is another definition's.
    """
    check_meaning(lake, join)
    ledger = lake.table(ledger_name(join.name))
    rows = ledger.scan(row_filter=equal("kind", LATE), selected_fields=(PANE_TIME, "epoch", "behind"))
    came = list(_came(join, rows.to_arrow_batch_reader()))
    runs = Runs(lake, join).all() if lake.has(runs_name(join.name)) else []
    open_ = [one for one in came if not _taken_in(one, runs)]
    total, left = (sum(one.records for one in of) for of in (came, open_))
    watermark = head_of(ledger).number("watermark", BEGINNING)
    return LateReport(join, total, total - left, tuple(late_ranges(open_)), join.open_from(watermark))


def _came(join: Join, batches: Iterable[pa.RecordBatch]) -> Iterator[Came]:
    """Count late records by epoch and the span of event time that their rows may be in."""
    reach = max(join.reach) if join.where is None else join.where.longest or 0
    span = max(reach, _LEAST)
    for row in late_counted((_placed(batch, span) for batch in batches), ("place", "epoch")):
        first = BEGINNING + row["place"] * span
        rows = Window(max(BEGINNING, first - reach), min(END_OF_TIME, first + span + reach))
        yield Came(rows, row["epoch"], row["count_all"], row["behind_max"])


def _placed(batch: pa.RecordBatch, span: int) -> pa.RecordBatch:
    """Number the span of event time that each late record is in, from the beginning of time."""
    since = pc.subtract(pc.cast(batch[PANE_TIME], pa.int64()), BEGINNING)
    columns = {"place": pc.divide(since, span), "epoch": batch["epoch"], "behind": batch["behind"]}
    return pa.RecordBatch.from_pydict(columns)


def _taken_in(came: Came, runs: Iterable[Run]) -> bool:
    """Tell whether a backfill of logs that held these records has computed all rows that they may be in."""
    return any(
        run.kind == "backfill" and run.status == "committed" and run.log_epoch is not None
        and run.log_epoch >= came.epoch and run.covers(came.span.start, came.span.end)
        for run in runs
    )  # fmt: skip
