"""Records that came too late for a join, by ranges that a backfill would repair (rule X6), without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.read.late_records import Came, Groups, late_counted
from tailrace.lake.schema.contracts import LATE
from tailrace.lake.schema.filters import equal
from tailrace.model.base.time import BEGINNING, END_OF_TIME, minutes
from tailrace.model.definition.join import Join
from tailrace.model.logs.log import PANE_TIME
from tailrace.model.windows.windows import Window

_LEAST = minutes(1) // minutes(0).resolution
"""Microseconds of event time whose late records are told of together, where a join reaches no further."""


class LateJoinRecords:
    """The records of both sides that came too late for a join; a record counts once for each window."""

    def __init__(self, join: Join, lake: Lake, ledger: Table, groups: Groups) -> None:
        self.join, self.ledger = join, ledger

    def came(self) -> Iterable[Came]:
        """Count the late records by epoch and the span of event time that their rows may be in."""
        rows = self.ledger.scan(row_filter=equal("kind", LATE), selected_fields=(PANE_TIME, "epoch", "behind"))
        return _came(self.join, rows.to_arrow_batch_reader())

    def left(self, came: Iterable[Came], runs: Iterable[Run]) -> list[Came]:
        """Select the late records that no backfill has taken in."""
        runs = list(runs)
        return [one for one in came if not _taken_in(one, runs)]

    def closed(self, watermark: int) -> int:
        """Return up to where ranges can be backfilled now."""
        return self.join.open_from(watermark)


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
