"""Keep resting windows (open windows that an epoch does not touch) in files of the lake, and not on executors.

The files belong to an Iceberg table next to the ledger. The table is partitioned into buckets by a hash of the key, and
each file is sorted by the windows' end times. An epoch reads only the buckets of its keys. From these buckets it reads
only the row groups that may contain windows that the epoch touches. A state refers to a snapshot of the table and to
the windows that epochs took out of the table after that snapshot (`RestingState`), so later writes do not change the
state. When windows return to the table, the rows of the windows that were taken out are deleted by position. Buckets
with many files, or with mostly deleted rows, are rewritten, a few buckets at a time (O'Neil et al., The Log-Structured
Merge-Tree, 1996). The table is only a copy of data in the ledger. A fold removes its table when the fold ends, and
maintenance removes the table of a fold that crashed.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.spark.executions.preparation import view_frame
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.column_groups import SPAN
from tailrace.lake.schema.contracts import MERGE_ON_READ, PROPERTIES, Contract
from tailrace.lake.schema.contracts import Column as ContractColumn
from tailrace.lake.schema.lake_errors import LakeError
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.ledger_rows import state_types
from tailrace.sql.epoch.touched_windows import windows_changed_by_clock, windows_with_records
from tailrace.sql.query_shapes import equal_in
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.terms import ALWAYS, Condition, Relation, quoted

BUCKET = "_bucket"

A_BUCKET = 500_000
"""The intended number of windows per bucket.

If buckets contain more than four times as many windows on average, all windows move to a new table with more buckets.
"""

FEWEST, MOST = 4, 64
"""The minimum and the maximum number of buckets in a table.

The set of buckets that an epoch needs is represented by the bits of a 64-bit number, so there are at most 64 buckets.
"""

FEW = 1_000_000
"""The maximum number of rows that Spark broadcasts to all tasks that read the table's files."""

FILES = 8
"""A bucket with more than this number of files may be rewritten."""

_KEPT = 4
"""The number of snapshots of the table that are kept.

If an epoch is not published, the epoch is folded again from a state that refers to an earlier snapshot.
"""

_ROW_GROUP = 4 * 2**20
"""The size in bytes of a row group in the table's files. A query reads or skips a row group as a whole."""


@dataclass(frozen=True)
class RestingState:
    """The resting windows: the windows in a table's snapshot, except the windows that epochs have taken out since.

    `rows` is the number of windows in the snapshot. `taken` contains one data frame per epoch, with the windows that
    the epoch took out. `counts` contains one function per data frame. The function returns the number of windows in the
    frame, and can be called once the frame has been computed.
    """

    table: str
    buckets: int
    snapshot: int
    rows: int
    taken: tuple[DataFrame, ...] = ()
    counts: tuple[Callable[[], int], ...] = ()

    def count(self) -> int:
        """Return the number of resting windows, which are open windows in files."""
        return self.rows - self.gone()

    def gone(self) -> int:
        """Return the number of windows that epochs have taken out of the snapshot."""
        return sum(count() for count in self.counts)

    def less(self, taken: DataFrame, count: Callable[[], int]) -> RestingState:
        """Return the resting windows except the windows in the frame `taken`, which an epoch takes out of the files.

        `count` is a function that returns the number of windows in `taken`.
        """
        return replace(self, taken=(*self.taken, taken), counts=(*self.counts, count))


@dataclass(frozen=True)
class Reach:
    """Bounds on the windows that an epoch's records can touch.

    `records` is the number of rows from which the bounds were computed: partials of the records, or keys. `buckets` has
    one bit for each bucket that contains a key of the records. The other fields are the earliest start, the earliest
    end and the latest end of the records' windows. These fields are None if the records have not been assigned to
    windows yet.
    """

    records: int
    buckets: int | None = None
    first_start: int | None = None
    first_end: int | None = None
    last_end: int | None = None


class RestingFiles:
    """The tables in whose files the open windows of one fold rest while no epoch touches them.

    Only the newest table is in use.
    """

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: Pipeline, kind: str) -> None:
        """Initialize without creating a table.

        `kind` is a part of the tables' names, and differs between streams and replays.
        """
        self.spark, self.lake, self.pipeline = spark, lake, pipeline
        self._prefix = f"{pipeline.name}__{kind}_"
        self._types = state_types(pipeline)
        self._own = join_items([quoted(name) for name in self._types])
        self._tables: list[str] = []

    def made(self, rows: DataFrame, expected: int) -> RestingState:
        """Write windows to a new table. `expected` is the approximate number of windows."""
        buckets = min(MOST, max(FEWEST, 1 << (expected // A_BUCKET).bit_length()))
        table = f"{self._prefix}{uuid.uuid4().hex[:8]}"
        self.lake.ensure(self._contract(table))
        self._tables.append(table)
        self._append(table, rows, buckets, tasks=buckets)
        return self._standing(table, buckets)

    def returned(self, resting: RestingState, rows: DataFrame) -> RestingState:
        """Write the windows in `rows` back to the table, and delete from the table the windows that epochs have taken
        out.
        """
        total = resting.count()
        if resting.buckets < MOST and total > 4 * A_BUCKET * resting.buckets:
            both = self.live(resting).unionByName(rows.selectExpr(*map(quoted, self._types)))
            return self.made(both, total)
        self._drop(table for table in self._tables if table != resting.table)
        name = self.lake.spark_name(resting.table)
        if resting.taken:
            with view_frame(self.spark, self._taken(resting)) as taken:
                self.spark.sql(f"DELETE FROM {name} t WHERE {self._among('t', resting, taken)}")
        self._append(resting.table, rows, resting.buckets, tasks=min(resting.buckets, self._tasks))
        self._tidied(resting)
        settings, before = self.lake.settings, datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        self.spark.sql(
            f"CALL `{settings.catalog}`.system.expire_snapshots(table => '{settings.namespace}.{resting.table}', "
            f"older_than => TIMESTAMP '{before}', retain_last => {_KEPT})"
        )
        return self._standing(resting.table, resting.buckets)

    def live(self, resting: RestingState) -> DataFrame:
        """Return the resting windows: the windows of the snapshot without the windows that epochs have taken out."""
        rows = self.read(resting)
        return self._less(rows, resting) if resting.taken else rows

    def read(self, resting: RestingState, where: str = "true") -> DataFrame:
        """Read the snapshot's windows that meet the condition `where`, which refers to a window's bounds and bucket.

        Files that contain no such window are skipped.
        """
        reader = self.spark.read.format("iceberg").option("versionAsOf", resting.snapshot)
        rows = reader.load(self.lake.identifier(resting.table)).where(where)
        return rows.selectExpr(*map(quoted, self._types))

    def reach(self, resting: RestingState, *, windows: bool) -> tuple[Column, ...]:
        """Return the aggregates that compute a `Reach` from an epoch's partials, or from the keys of its records.

        If `windows` is false, the rows are keys, and the bounds on the times of windows are left out.
        """
        bits = f"BIT_OR(SHIFTLEFT(1L, {self._bucket(resting.buckets)}))"
        found = [F.count(F.lit(1)).alias("records"), F.expr(bits).alias("buckets")]
        if windows:
            start, end = SPAN
            found += [F.min(start).alias("first_start"), F.min(end).alias("first_end"), F.max(end).alias("last_end")]
        return tuple(found)

    def touched(
        self,
        resting: RestingState,
        records: DataFrame,
        reach: Reach,
        clock: DataFrame,
        until: int | None,
        *,
        by_key: bool,
    ) -> DataFrame:
        """Return the snapshot's windows that `records` touch or the clock changes.

        The result may contain windows that earlier epochs have already taken out of the files. The clock changes no
        window that ends at `until` or later. If `until` is None, the clock may change any window. If `by_key` is true,
        a record touches all windows of its key.
        """
        parts, pipeline = [], self.pipeline
        soon = self.read(resting, "true" if until is None else f"window_end < {until}L")
        with ExitStack() as views:
            partials, now = (views.enter_context(view_frame(self.spark, frame)) for frame in (records, clock))
            if reach.records:
                there = self.read(resting, f"{self._in_buckets(resting, reach)} AND {self._within(reach)}")
                state = views.enter_context(view_frame(self.spark, there))
                few = reach.records <= FEW
                parts.append(self.spark.sql(windows_with_records(pipeline, state, partials, by_key=by_key, few=few)))
            state = views.enter_context(view_frame(self.spark, soon))
            less = partials if reach.records else None
            within = self._within(reach)
            parts.append(
                self.spark.sql(windows_changed_by_clock(pipeline, state, now, less, by_key=by_key, within=within))
            )
        return reduce(DataFrame.unionAll, parts)

    def changed(self, resting: RestingState, clock: DataFrame, after: int) -> DataFrame:
        """Return the snapshot's windows that end at `after` or later and that the clock changes."""
        with view_frame(self.spark, self.read(resting, f"window_end >= {after}L")) as state, \
             view_frame(self.spark, clock) as now:  # fmt: skip
            return self.spark.sql(windows_changed_by_clock(self.pipeline, state, now, None, by_key=True))

    def taken_out(self, resting: RestingState, found: DataFrame) -> DataFrame:
        """Return the windows of `found` that have not been taken out yet, partitioned by key and window."""
        rows = self._less(found, resting) if resting.taken else found
        by = [F.col(name) for name in [*self.pipeline.key, *SPAN]]
        return rows.repartition(*by)

    def close(self) -> None:
        """Drop this fold's tables."""
        self._drop(self._tables)

    def drop_others(self) -> None:
        """Drop the tables that earlier streams of this definition have left behind.

        This stream holds the lease, so no earlier stream can write to these tables any more.
        """
        mine = re.compile(rf"{re.escape(self._prefix)}[0-9a-f]{{8}}")
        for table in self.lake.tables:
            if mine.fullmatch(table) and table not in self._tables:
                self.lake.drop(table)

    def _drop(self, tables: Iterable[str]) -> None:
        for table in list(tables):
            self._tables.remove(table)
            with suppress(LakeError):
                # Ignore the error if the table does not exist: maintenance removes the table if the stream makes no
                # progress for long.
                self.lake.drop(table)

    @property
    def _tasks(self) -> int:
        return int(self.spark.conf.get("spark.sql.shuffle.partitions") or 1)

    def _contract(self, table: str) -> Contract:
        columns = {BUCKET: ContractColumn("int", "the bucket of the key")}
        columns |= {name: ContractColumn(type, "as in the state") for name, type in self._types.items()}
        layout = PROPERTIES | MERGE_ON_READ | {
            "write.spark.fanout.enabled": "false",
            "write.parquet.row-group-size-bytes": str(_ROW_GROUP),
            "write.delete.distribution-mode": "hash",
        }  # fmt: skip
        doc = f"open windows of {self.pipeline.name} that rest, while a fold runs"
        return Contract(table, doc, columns, partition_by=(BUCKET,), properties=MappingProxyType(layout))

    def _append(self, table: str, rows: DataFrame, buckets: int, tasks: int) -> None:
        self._placed(rows, buckets, tasks).writeTo(self.lake.identifier(table)).append()

    def _placed(self, rows: DataFrame, buckets: int, tasks: int) -> DataFrame:
        """Add the bucket to each row, and sort the rows of each task by bucket.

        A task therefore writes one file after another.
        """
        all_ = rows.selectExpr(f"{self._bucket(buckets)} AS {BUCKET}", *map(quoted, self._types))
        order = [BUCKET, "window_end", *key_names(self.pipeline)]
        return all_.repartitionById(tasks, F.expr(f"PMOD({BUCKET}, {tasks})")).sortWithinPartitions(*order)

    def _tidied(self, resting: RestingState) -> None:
        """Rewrite all buckets with mostly deleted rows, and some of the buckets with too many files.

        A bucket has too many files if it has more than `FILES` files. Of these buckets, one call rewrites at most an
        eighth of the table's number of buckets, but at least one bucket. The buckets with the most files are rewritten
        first.
        """
        found = self.spark.sql(
            f"SELECT partition.{BUCKET} AS bucket, file_count AS files, record_count AS there, "
            f"position_delete_record_count AS gone FROM {self.lake.spark_name(resting.table)}.partitions"
        ).collect()
        dead = {row["bucket"] for row in found if row["gone"] * 2 > row["there"]}
        many = sorted((row for row in found if row["files"] > FILES), key=lambda row: -row["files"])
        some = sorted(dead | {row["bucket"] for row in many[: max(1, resting.buckets // 8)]})
        if not some:
            return
        where = f"{BUCKET} IN ({', '.join(map(str, some))})"
        table = self.lake.identifier(resting.table)
        rows = self.spark.table(table).where(where).selectExpr(*map(quoted, self._types))
        self._placed(rows, resting.buckets, min(len(some), resting.buckets)).writeTo(table).overwrite(F.expr(where))

    def _standing(self, table: str, buckets: int) -> RestingState:
        head = self.lake.table(table).current_snapshot()
        assert head is not None
        assert head.summary is not None
        counts = head.summary.additional_properties
        rows = int(counts["total-records"]) - int(counts["total-position-deletes"])
        return RestingState(table, buckets, head.snapshot_id, rows)

    def _less(self, rows: DataFrame, resting: RestingState) -> DataFrame:
        with view_frame(self.spark, rows) as there, view_frame(self.spark, self._taken(resting)) as taken:
            return self.spark.sql(f"SELECT t.* FROM {there} t WHERE NOT {self._among('t', resting, taken)}")

    def _among(self, row: str, resting: RestingState, taken: Relation) -> Condition:
        """Return the condition that the window in the row `row` has been taken out of the snapshot."""
        hint = "/*+ BROADCAST(x) */ " if resting.gone() <= FEW else ""
        same = equal_in(row, "x", key_names(self.pipeline), SPAN)
        return Condition(f"EXISTS (SELECT {hint}1 FROM {taken} x WHERE {same})")

    def _taken(self, resting: RestingState) -> DataFrame:
        key = [*key_names(self.pipeline), *SPAN]
        return reduce(DataFrame.unionAll, (frame.selectExpr(*key) for frame in resting.taken))

    def _within(self, reach: Reach) -> Condition:
        """Return the condition on a window's bounds under which an epoch's records can touch the window."""
        if reach.last_end is None:
            return ALWAYS
        if self.pipeline.where.merges:
            # Select the windows that overlap the range of the records' windows. This is sufficient: the open windows of
            # a key do not overlap each other, so an open window that a record merges into a larger window overlaps the
            # window of some record.
            return Condition(f"(window_end >= {reach.first_start}L AND window_start <= {reach.last_end}L)")
        return Condition(f"(window_end BETWEEN {reach.first_end}L AND {reach.last_end}L)")

    def _in_buckets(self, resting: RestingState, reach: Reach) -> Condition:
        """Return the condition that a window is in a bucket that contains the key of a record."""
        bits = -1 if reach.buckets is None else reach.buckets
        some = [number for number in range(resting.buckets) if bits >> number & 1]
        if len(some) == resting.buckets:
            return ALWAYS
        return Condition(f"{BUCKET} IN ({', '.join(map(str, some))})")

    def _bucket(self, buckets: int) -> str:
        own = ", ".join(key_names(self.pipeline))
        return f"PMOD(HASH({own}), {buckets})" if own else "0"
