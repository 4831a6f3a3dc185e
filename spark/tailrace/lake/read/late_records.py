"""Find the ranges of event time in which records were too late; a backfill of such a range includes these records (X6).

The search needs no JVM.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.read.current_answers import answers_source
from tailrace.lake.schema.column_groups import SPAN, VERSION
from tailrace.lake.schema.contracts import LATE
from tailrace.lake.schema.filters import after, equal, every, up_to
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.panes import Key
from tailrace.model.windows.window_spans import touching_groups
from tailrace.model.windows.windows import Window

MOST_APART = 3
"""The maximum number of separate backfills to propose.

If there are more late ranges, one backfill over all ranges is proposed.
"""


@dataclass(frozen=True)
class LateRange:
    """A half-open range of adjacent windows with late records; a backfill of this range would include the records.

    `behind` is the maximum time by which the watermark had passed the end of a late record's window. Times are in
    microseconds. The records arrived in the epochs from `first_epoch` to `last_epoch`.
    """

    first: int
    last: int
    records: int
    windows: int
    behind: int
    first_epoch: int
    last_epoch: int


@dataclass(frozen=True)
class LateReport:
    """A report of a ledger's late records: their number, and the number of late records that backfills have included.

    `ranges` are the ranges of late records that no backfill has included. A record that was too late for several
    windows counts once for each of these windows. A range that ends at or before the event time `closed` can be
    backfilled now. A later range can be backfilled once the watermark has advanced.
    """

    pipeline: Definition
    records: int
    repaired: int
    ranges: tuple[LateRange, ...]
    closed: int

    @property
    def ready(self) -> tuple[LateRange, ...]:
        """The ranges that can be backfilled now."""
        return tuple(one for one in self.ranges if self.wait(one) == 0)

    def wait(self, one: LateRange) -> int:
        """Return by how many microseconds the watermark has to advance before a range can be backfilled."""
        return max(0, one.last - self.closed)


@dataclass(frozen=True)
class LateSpan:
    """The records of one epoch that were too late for the same span of event time.

    `span` is the window for which the records were too late. If this window would merge with other windows, `span` is
    the merged window.
    """

    span: Window
    epoch: int
    records: int
    behind: int


Groups: TypeAlias = Callable[[Table, Sequence[str]], list[dict[str, Any]]]
"""A function that groups a ledger's late records by some of the ledger's columns, as `group_late_rows` does."""


def propose_backfills(ready: Iterable[LateRange]) -> list[tuple[int, int]]:
    """Propose one backfill per late range, or one backfill over all ranges if the ranges are many or overlap.

    A backfill changes only windows whose results differ. Therefore, one backfill over all ranges makes no unnecessary
    changes.
    """
    spans = sorted({(one.first, one.last) for one in ready})
    apart = all(one[1] <= two[0] for one, two in pairwise(spans))
    if len(spans) > MOST_APART or not apart:
        spans = [(spans[0][0], max(last for _, last in spans))]
    return spans


def group_late_rows(ledger: Table, names: Sequence[str]) -> list[dict[str, Any]]:
    """Group a ledger's late records by the columns `names`.

    In a returned group, `count_all` is the number of records. `behind_max` is the largest value of the column `behind`,
    the time by which a record was too late.
    """
    scan = ledger.scan(row_filter=equal("kind", LATE), selected_fields=(*names, "behind"))
    return count_late_rows(scan.to_arrow_batch_reader(), names)


def count_late_rows(rows: Iterable[pa.RecordBatch], names: Sequence[str]) -> list[dict[str, Any]]:
    """Group rows by the columns `names`; return the columns, the count and the largest `behind` of each group.

    Window bounds are returned in microseconds. The rows are read in portions, so only some of the rows are in memory at
    a time. A ledger file has the rows of a single epoch, which are few. Therefore, the rows of many files are collected
    before these rows are grouped.
    """
    many, held = list[pa.Table](), list[pa.RecordBatch]()
    for batch in rows:
        held.append(batch)
        if sum(map(len, held)) >= _TOGETHER:
            many.append(_grouped(held, names))
            held = []
    many += [_grouped(held, names)] if held else []
    if not many:
        return []
    totals = pa.concat_tables(many).group_by(names).aggregate([("count_all", "sum"), ("behind_max", "max")])
    totals = totals.rename_columns({"count_all_sum": "count_all", "behind_max_max": "behind_max"})
    for name in (name for name in SPAN if name in names):
        # Convert the timestamps to integers, because converting an integer to a Python object takes one tenth of the
        # time.
        place = totals.column_names.index(name)
        totals = totals.set_column(place, name, totals[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))
    found: list[dict[str, Any]] = totals.to_pylist()
    return found


def _grouped(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> pa.Table:
    return pa.Table.from_batches(batches).group_by(names).aggregate([([], "count_all"), ("behind", "max")])


_TOGETHER = 100_000
"""The minimum number of rows that are collected before these rows are grouped."""


def late_windows(lake: Lake, pipeline: Pipeline, ledger: Table, groups: Groups) -> Iterator[LateSpan]:
    """Count a stage's late records by epoch and window."""
    names = (*(pipeline.key if pipeline.where.merges else ()), *SPAN, "epoch")
    by_key: dict[Key, list[Mapping[str, Any]]] = {}
    for group in groups(ledger, names):
        key = tuple(group[name] for name in pipeline.key) if pipeline.where.merges else ()
        by_key.setdefault(key, []).append(group)
    held = _answers(lake, pipeline, by_key) if pipeline.where.merges else {}
    for key, own in by_key.items():
        windows = {window_of(group) for group in own}
        spans = {window: window for window in windows}
        if pipeline.where.merges:
            # The session of a late record is merged with all sessions that this session overlaps.
            gathered = pipeline.where.gathered(windows | held.get(key, set()))
            spans = {member: span for span, members in gathered.items() for member in members}
        for row in own:
            yield LateSpan(spans[window_of(row)], row["epoch"], row["count_all"], row["behind_max"])


def window_of(row: Mapping[str, Any]) -> Window:
    """Return the window of a row with the columns `window_start` and `window_end`."""
    return Window(instant(row["window_start"]), instant(row["window_end"]))


def _answers(lake: Lake, pipeline: Pipeline, late: Mapping[Key, Iterable[Mapping[str, Any]]]) -> dict[Key, set[Window]]:
    """Return, for each key with late records, the windows with an answer that may merge with late windows.

    All windows in the time from the start of the first late window to the end of the last late window are considered.
    """
    windows = [window_of(row) for rows in late.values() for row in rows]
    if not windows:
        return {}
    table, of = answers_source(lake, pipeline)
    inside = [of]
    first, last = min(window.start for window in windows), max(window.end for window in windows)
    if first > BEGINNING:
        inside.append(after("window_end", first))
    if last < END_OF_TIME:
        inside.append(up_to("window_start", last))
    names = (*pipeline.key, *SPAN, *VERSION, *(() if table == pipeline.name else ("retraction",)))
    scan = lake.table(table).scan(row_filter=every(*inside), selected_fields=names)
    latest: dict[tuple[Key, Window], tuple[int | bool, ...]] = {}
    for batch in scan.to_arrow_batch_reader():
        for row in batch.to_pylist():
            key = tuple(row[name] for name in pipeline.key)
            if key in late:
                # The last pane of a window shows whether the window has an answer. If a retraction and a pane have the
                # same version, the pane counts as the later row.
                version = (*(row[name] for name in VERSION), not row.get("retraction"))
                place = key, window_of(row)
                latest[place] = max(version, latest.get(place, version))
    answered: dict[Key, set[Window]] = {}
    for (key, window), version in latest.items():
        if version[-1]:
            answered.setdefault(key, set()).add(window)
    return answered


def taken_in_until(runs: Iterable[Run]) -> list[tuple[int, int]]:
    """Return, for each range of window timestamps, the epoch of the log up to which backfills have read (rule V5).

    The result is a list of steps in order of time. Each step is a pair of a time and an epoch. The epoch applies to all
    windows whose timestamp is at or after this time and before the time of the next step. The epoch is -1 if no
    backfill has computed these windows.

    >>> from dataclasses import replace
    >>> one = Run("a", "backfill", "committed", 2, first=10, last=20, fingerprint="", log_epoch=7)
    >>> taken_in_until([one, replace(one, first=15, last=30, log_epoch=4)])
    [(10, 7), (20, 4), (30, -1)]
    """
    done = [run for run in runs if run.kind == "backfill" and run.status == "committed" and run.log_epoch is not None]
    starts = sorted((run.first, run.last, run.log_epoch or 0) for run in done)
    steps, open_, place = list[tuple[int, int]](), list[tuple[int, int]](), 0
    for at in sorted({edge for run in done for edge in (run.first, run.last)}):
        while place < len(starts) and starts[place][0] <= at:
            heappush(open_, (-starts[place][2], starts[place][1]))
            place += 1
        while open_ and open_[0][1] <= at:
            heappop(open_)
        epoch = -open_[0][0] if open_ else -1
        if not steps or steps[-1][1] != epoch:
            steps.append((at, epoch))
    return steps


def is_taken_in(late: LateSpan, steps: Sequence[tuple[int, int]]) -> bool:
    """Return True if a backfill has read these late records and has computed their window (rule V5)."""
    place = bisect_right(steps, late.span.timestamp, key=lambda step: step[0]) - 1
    return place >= 0 and steps[place][1] >= late.epoch


def late_ranges(late_spans: Iterable[LateSpan]) -> Iterator[LateRange]:
    """Group the spans of late records into ranges of event time; spans that touch or overlap form one range."""
    for of in touching_groups(late_spans, lambda one: one.span):
        yield LateRange(
            first=min(one.span.start for one in of),
            last=max(one.span.end for one in of),
            records=sum(one.records for one in of),
            windows=len({one.span for one in of}),
            behind=max(one.behind for one in of),
            first_epoch=min(one.epoch for one in of),
            last_epoch=max(one.epoch for one in of),
        )
