"""Table `p` follows the ledger in this process: the files of windows that changed are rewritten, and no others.

The files of `p` hold ranges of window time that do not overlap, as far as this follower has written them, so a change
of few windows rewrites few files. One commit takes the old ones out and puts the new ones in: a reader sees either.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import takewhile

import duckdb
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import TimestamptzType

from tailrace.engines.duckdb.dialect import in_duckdb
from tailrace.engines.duckdb.read import path_of, plain
from tailrace.engines.duckdb.records import registered
from tailrace.lake.catalog import Lake, added_files, head_of, lineage
from tailrace.lake.contracts import PANE
from tailrace.lake.drift import check_definition
from tailrace.lake.errors import MovedError
from tailrace.lake.filters import equal
from tailrace.lake.following import Following
from tailrace.lake.generations import settle
from tailrace.lake.tables import Change
from tailrace.lake.trimming import Trimming
from tailrace.model.pipeline import Pipeline
from tailrace.sql.algebra import quoted
from tailrace.sql.answers import SPAN, VERSION, latest
from tailrace.sql.windows import listed, names

ROWS_A_FILE = 100_000
"""About how many answers a file of `p` holds: fewer, and there are many files; more, and a change rewrites more."""


class ProcessFollower(Following):
    """Keeps `p` of one pipeline up with its ledger."""

    lake: Lake

    def __init__(self, connection: duckdb.DuckDBPyConnection, lake: Lake, pipeline: Pipeline, owner: str) -> None:
        super().__init__(lake, pipeline.name, owner, direct=True)
        self.connection, self.pipeline = connection, pipeline
        self.ledger = f"{pipeline.name}__ledger"
        self.trimming = Trimming(lake, self.name, archived=False)
        self._columns = [*names(pipeline), *SPAN, *(quoted(name) for name in pipeline.results), "timing", *VERSION]

    def followed(self) -> None:
        self.trimming.after_commit()

    def begin(self) -> None:
        """Raises `OtherDefinitionError` where the ledger has gone over to a definition with another meaning."""
        check_definition(self.lake, self.pipeline)
        # The ledger may have gone over to another generation, and `p` not yet.
        settle(self.lake, self.name)

    def merge(self, since: int | None, until: int, stamp: Mapping[str, str], *, fresh: bool, empty: bool) -> None:
        table = self.lake.table(self.name)
        if head_of(table).snapshot != self.branch.base:
            raise MovedError(f"{self.name} was moved while it was merged into")
        told = f"tailrace_told_{uuid.uuid4().hex[:12]}"
        self._gained(told, since, until)
        try:
            touched = [] if fresh or empty else self._touched(table, told)
            rows = self._merged(table, told, touched)
            if not rows.num_rows and not touched:
                self.branch.hold(Change(()), stamp)
                return
            files = [file for part in parts(rows) for file in self.lake.written(self.name, part)]
            self.branch.hold(Change(tuple(files), tuple(task.file for task in touched)), stamp)
        finally:
            self.connection.execute(f"DROP TABLE IF EXISTS {told}")

    def _gained(self, told: str, since: int | None, until: int) -> None:
        """What the last pane of each window says that the ledger gained from one snapshot to another, as a table."""
        loaded = self.lake.table(self.ledger)
        if since is None:
            tasks = list(loaded.scan(row_filter=equal("kind", PANE), snapshot_id=until).plan_files())
        else:
            tasks = _appended(loaded, since, until)
        rows = self._read(loaded, tasks)
        with registered(self.connection, rows) if isinstance(rows, pa.Table) else nullcontext(rows) as view:
            kind = f"(SELECT * FROM {view} WHERE kind = '{PANE}')"
            text = in_duckdb(latest(self.pipeline, kind.replace(view, "tailrace_the_view")))
            self.connection.execute(f"CREATE TEMP TABLE {told} AS {text.replace('tailrace_the_view', view)}")

    def _touched(self, table: Table, told: str) -> list[FileScanTask]:
        """The files of `p` whose range of window time holds a window that changed."""
        tasks = list(table.scan().plan_files())
        spans = [(place, *_span(table, task.file)) for place, task in enumerate(tasks)]
        columns = {"place": pa.int64(), "low": pa.int64(), "high": pa.int64()}
        rows = [dict(zip(columns, span, strict=True)) for span in spans]
        with registered(self.connection, pa.Table.from_pylist(rows, pa.schema(list(columns.items())))) as files:
            found = self.connection.execute(
                f"SELECT place FROM {files} f WHERE low IS NULL OR EXISTS (SELECT 1 FROM {told} t "
                "WHERE epoch_us(t.window_end) BETWEEN f.low AND f.high)"
            ).fetchall()
        return [tasks[place] for (place,) in found]

    def _merged(self, table: Table, told: str, touched: Sequence[FileScanTask]) -> pa.Table:
        """The rows of the touched files after the merge: of each window the highest version, or none if taken back."""
        own = listed(self._columns)
        new = f"SELECT {own}, retraction AS _gone, 1 AS _new FROM tailrace_told"
        both = new
        held = self._read(table, touched)
        if touched:
            both = f"{new} UNION ALL SELECT {own}, false AS _gone, 0 AS _new FROM tailrace_held"
        by, order = listed(names(self.pipeline), list(SPAN)), ", ".join(f"{name} DESC" for name in VERSION)
        # Only a higher version takes a row's place: of equal ones the row that is there stays (rule V1).
        place = f"ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}, _new) AS _place"
        text = in_duckdb(
            f"SELECT {own} FROM (SELECT *, {place} FROM ({both})) WHERE _place = 1 AND NOT _gone "
            f"ORDER BY window_end, window_start"
        ).replace("tailrace_told", told)
        with registered(self.connection, held) if isinstance(held, pa.Table) else nullcontext(held) as view:
            return self.connection.execute(text.replace("tailrace_held", view)).to_arrow_table()

    def _read(self, table: Table, tasks: Sequence[FileScanTask]) -> pa.Table | str:
        """The rows of some of a table's files: a relation where DuckDB can read them, else as pyiceberg has them."""
        if tasks and plain(table, list(tasks)):
            paths = ", ".join("'" + path_of(task.file.file_path).replace("'", "''") + "'" for task in tasks)
            return f"read_parquet([{paths}])"
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        return ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(list(tasks))


def parts(rows: pa.Table) -> list[pa.Table]:
    """Cut rows in the order of their windows' ends into files, never between two that end alike."""
    found, start, ends = [], 0, rows["window_end"]
    while start < rows.num_rows:
        stop = min(start + ROWS_A_FILE, rows.num_rows)
        while stop < rows.num_rows and ends[stop] == ends[stop - 1]:
            stop += 1
        found.append(rows.slice(start, stop - start))
        start = stop
    return found


def _span(table: Table, file: DataFile) -> tuple[int | None, int | None]:
    """The first and last end of a window in a file, in microseconds; None where its statistics do not say."""
    number = table.schema().find_field("window_end").field_id
    low, high = ((bounds or {}).get(number) for bounds in (file.lower_bounds, file.upper_bounds))
    if low is None or high is None:
        return None, None
    return int(from_bytes(TimestamptzType(), low)), int(from_bytes(TimestamptzType(), high))


def _appended(table: Table, since: int, until: int) -> list[FileScanTask]:
    """The files that appends after one snapshot up to another brought, whether or not a compaction replaced them."""
    commits = takewhile(lambda one: one.snapshot_id != since, lineage(table, until))
    appends = (one for one in commits if one.summary is None or one.summary.operation is Operation.APPEND)
    return [FileScanTask(file) for one in appends for file in added_files(table, one.snapshot_id)]
