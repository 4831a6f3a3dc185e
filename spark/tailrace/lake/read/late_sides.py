"""Records that came too late for a join, by ranges that a backfill would repair (rule X6), without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.run import Run
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.late_records import LateRange, LateReport
from tailrace.lake.schema.contracts import LATE
from tailrace.lake.schema.filters import equal
from tailrace.lake.schema.table_names import ledger_name, runs_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, minutes
from tailrace.model.definition.join import Join
from tailrace.model.logs.log import PANE_TIME

_LEAST = minutes(1) // minutes(0).resolution
"""Microseconds of event time whose late records are told of together, where a join reaches no further."""


@dataclass(frozen=True)
class _Came:
    """Records of a span of event time that came too late in one epoch; `first` to `last` is where their rows are."""

    first: int
    last: int
    epoch: int
    records: int
    behind: int


def late_sides_report(lake: Lake, join: Join) -> LateReport:
    """Report the records that came too late for a join, of both sides; a record counts once for each window.

    Raises `LakeError` where the join has no ledger, and `OtherDefinitionError` where that is another definition's.
    """
    check_definition(lake, join)
    ledger = lake.table(ledger_name(join.name))
    rows = ledger.scan(row_filter=equal("kind", LATE), selected_fields=(PANE_TIME, "epoch", "behind"))
    came = list(_came(join, rows.to_arrow_batch_reader()))
    runs = Runs(lake, join).all() if lake.has(runs_name(join.name)) else []
    open_ = [one for one in came if not _taken_in(one, runs)]
    total, left = (sum(one.records for one in of) for of in (came, open_))
    watermark = head_of(ledger).number("watermark", BEGINNING)
    closed = END_OF_TIME if join.kind == "inner" and not join.takes_back else join.closed_until(watermark)
    return LateReport(join, total, total - left, tuple(_ranges(open_)), closed)


def _came(join: Join, batches: pa.RecordBatchReader) -> Iterator[_Came]:
    """Count late records by span of event time and epoch; one batch is in memory at a time."""
    reach = max(join.reach) if join.where is None else join.where.longest or 0
    span = max(reach, _LEAST)
    many = []
    for batch in batches:
        since = pc.subtract(pc.cast(batch[PANE_TIME], pa.int64()), BEGINNING)
        columns = {"place": pc.divide(since, span), "epoch": batch["epoch"], "behind": batch["behind"]}
        grouped = pa.table(columns).group_by(["place", "epoch"])
        many.append(grouped.aggregate([([], "count_all"), ("behind", "max")]))
    if not many:
        return
    sums = pa.concat_tables(many).group_by(["place", "epoch"])
    for row in sums.aggregate([("count_all", "sum"), ("behind_max", "max")]).to_pylist():
        first = BEGINNING + row["place"] * span
        yield _Came(first - reach, first + span + reach, row["epoch"], row["count_all_sum"], row["behind_max_max"])


def _taken_in(came: _Came, runs: Iterable[Run]) -> bool:
    """Tell whether a backfill of logs that held these records has computed all rows that they may be in."""
    return any(
        run.kind == "backfill" and run.status == "committed" and (run.log_epoch or -1) >= came.epoch
        and run.covers(came.first, came.last)
        for run in runs
    )  # fmt: skip


def _ranges(late: Iterable[_Came]) -> Iterator[LateRange]:
    """Group what is late into ranges of event time; spans that touch are one range."""
    end, number = BEGINNING, 0
    numbered = list[tuple[int, _Came]]()
    for one in sorted(late, key=lambda one: (one.first, one.epoch)):
        number += one.first > end
        end = max(end, one.last)
        numbered.append((number, one))
    for _, group in groupby(numbered, key=lambda pair: pair[0]):
        of = [one for _, one in group]
        yield LateRange(
            first=min(one.first for one in of),
            last=max(one.last for one in of),
            records=sum(one.records for one in of),
            windows=len({one.first for one in of}),
            behind=max(one.behind for one in of),
            first_epoch=min(one.epoch for one in of),
            last_epoch=max(one.epoch for one in of),
        )
