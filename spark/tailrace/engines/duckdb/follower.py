"""Update the table of answers from the ledger, in this process. Only the files with changed windows are rewritten.

Each file that this follower writes covers a range of window end times. The ranges of different files do not overlap, so
a change to few windows rewrites few files. One commit replaces the old files with the new files: a reader sees either
all old files or all new files.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from tailrace.engines.choose import in_bytes
from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import read_batches
from tailrace.engines.duckdb.database.dialect import in_duckdb
from tailrace.engines.duckdb.database.scans import Scan, bytes_read, scan_files, table_bytes
from tailrace.engines.duckdb.database.written_rows import FileRows, rows_of_files, write_parts
from tailrace.lake.catalog.lake import Lake, head_of
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.read.current_answers import AnswersFollowing
from tailrace.lake.read.file_bounds import bounds
from tailrace.lake.schema.column_groups import SPAN, VERSION
from tailrace.lake.schema.contracts import PANE
from tailrace.lake.schema.filters import equal
from tailrace.lake.schema.lake_errors import MovedError
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.query_shapes import NEWEST, first_of
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.results.answers import latest_answers, pane_answers
from tailrace.sql.terms import Query, Relation, bracketed, quoted

_LEDGER = Relation(f"(SELECT * FROM tailrace_ledger WHERE kind = '{PANE}')")

ROWS_A_FILE = 100_000
"""The approximate number of answers per file.

A lower number results in more files. With a higher number, each change rewrites more rows.
"""

MOST_ALIKE = 1_000_000
"""The approximate maximum number of answers with the same window end that are written to one file."""

PANES_A_SHARE = 1_000_000
"""The approximate number of panes that are merged at once. Finding the last pane of each window takes 200 bytes of
memory per pane.
"""


class ProcessFollower(AnswersFollowing):
    """The follower that updates the answers of one pipeline from its ledger, in this process."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, lake: Lake, pipeline: Pipeline, owner: str) -> None:
        super().__init__(lake, pipeline, owner)
        self.connection = connection
        self.ledger = ledger_name(pipeline.name)
        self._columns = [*key_names(pipeline), *SPAN, *map(quoted, pipeline.answer_columns), "timing", *VERSION]

    def small(self, since: int | None, until: int, *, fresh: bool, empty: bool) -> bool:
        """Return True if this process's memory suffices to merge the panes of the snapshots from `since` to `until`.

        The size of the merge is the total size of the files with the new panes and of the files of answers. The files
        of answers are not counted if the merge need not read them, which is the case if `fresh` or `empty` is True.
        """
        size = bytes_read(self._gaining(since, until))
        if not (fresh or empty):
            size += table_bytes(self.lake.table(self.name))
        return size <= in_bytes(self.lake.settings.memory)

    def merge(self, since: int | None, until: int, stamp: Mapping[str, str], *, fresh: bool, empty: bool) -> None:
        table = self.lake.table(self.name)
        if head_of(table).snapshot != self.branch.base:
            raise MovedError(f"{self.name} was moved while it was merged into")
        if fresh:
            with self._panes(since, until) as rows:
                self._hold([in_duckdb(self._fresh).replace("tailrace_ledger", rows)], [], stamp)
            return
        with self._panes(since, until) as rows, self._ends(rows) as ends:
            touched = [] if empty else self._touched(table, ends)
            with scan_files(self.connection, table, table.scan(), touched) as held:
                text = in_duckdb(self._merged)
                shares = (
                    text.replace("tailrace_ledger", f"(FROM {rows} WHERE {share})").replace(
                        "tailrace_held", f"(FROM {held} WHERE {share})"
                    )
                    for share in self._shares(ends)
                )
                self._hold(shares, touched, stamp)

    def _hold(self, texts: Iterable[str], touched: Sequence[FileScanTask], stamp: Mapping[str, str]) -> None:
        """Write the rows of queries to files, and stage a commit that replaces the touched files with the new files.

        A few files are written at a time.
        """
        readers = (read_batches(self.connection, text, ROWS_A_FILE) for text in texts)
        each = (part for reader in readers for part in cut_into_files(reader))
        files = write_parts(self.lake, (FileRows(self.name, part) for part in each)).get(self.name, [])
        self.branch.hold(FileChange(tuple(files), tuple(task.file for task in touched)), stamp)

    def write_new(self, panes: Query) -> tuple[list[DataFile], list[DataFile]]:
        """Write panes to files of the ledger, and their answers to files of the table of answers; return both lists.

        Neither table lists the files yet. The panes are computed and sorted only once. There must be exactly one pane
        per window, and no retractions. If there is no table of answers, the second list is empty.
        """
        parts = rows_of_files(self.connection, panes, self.lake, self.ledger, ("window_end", "window_start"))
        files = write_parts(self.lake, self._with_answers(parts) if self.lake.has(self.name) else parts)
        return files.get(self.ledger, []), files.get(self.name, [])

    def _with_answers(self, panes: Iterable[FileRows]) -> Iterator[FileRows]:
        """Yield the rows of the ledger's files, each followed by the rows of those files of answers that are complete.

        The answers are those of `_fresh`.
        """
        cutter, literals = FileCutter(), None
        for part in panes:
            yield part
            found = self._answers_of(part)
            literals = found.literals
            yield from (found._replace(rows=rows) for rows in cutter.take(found.rows))
        yield from (FileRows(self.name, rows, literals) for rows in cutter.rest())

    def _answers_of(self, panes: FileRows) -> FileRows:
        """Return the answers in panes of the ledger, as `pane_answers` selects them."""
        names = [*self.pipeline.key, *SPAN, *self.pipeline.answer_columns, "timing", *VERSION]
        rows, literals = panes.rows, panes.literals
        if self.pipeline.how.value == "discarding":
            for name in self.pipeline.answer_columns:
                rows = _with_column(rows, name, pc.struct_field(rows["answer"], name))
        own = rows.select([name for name in names if name in rows.column_names])
        apart = None if literals is None else literals.select([n for n in names if n in literals.column_names])
        return FileRows(self.name, own, apart)

    @contextmanager
    def _panes(self, since: int | None, until: int) -> Iterator[Relation]:
        """Yield the name of a relation of the panes that the ledger gained between two snapshots."""
        scan = self._gaining(since, until)
        with scan_files(self.connection, self.lake.table(self.ledger), scan, list(scan.plan_files())) as rows:
            yield rows

    def _gaining(self, since: int | None, until: int) -> Scan:
        """Return the scan of the panes that the ledger gained between two snapshots."""
        loaded, panes = self.lake.table(self.ledger), equal("kind", PANE)
        if since is None:
            return loaded.scan(row_filter=panes, snapshot_id=until)
        # The scan reads the files that each append added, even if a compaction has since merged them.
        return loaded.incremental_append_scan(
            from_snapshot_id_exclusive=since, to_snapshot_id_inclusive=until, row_filter=panes
        )

    @property
    def _fresh(self) -> Query:
        """The query that computes all answers, for a table of answers that is still empty.

        The ledger must have exactly one pane per window, and no retractions.
        """
        answers = pane_answers(self.pipeline, _LEDGER)
        return Query(f"SELECT {join_items(self._columns)} FROM ({answers}) ORDER BY window_end, window_start")

    @contextmanager
    def _ends(self, rows: Relation) -> Iterator[Relation]:
        """Yield the name of a table that contains each distinct window end of the ledger rows.

        For each window end, the table also contains the number of panes.
        """
        name = Relation(f"tailrace_ends_{uuid.uuid4().hex[:12]}")
        panes = f"FROM {rows} WHERE kind = '{PANE}'"
        self.connection.execute(
            f"CREATE TEMP TABLE {name} AS SELECT window_end, COUNT(*) AS panes {panes} GROUP BY window_end"
        )
        try:
            yield name
        finally:
            self.connection.execute(f"DROP TABLE {name}")

    def _shares(self, ends: Relation) -> list[str]:
        """Return SQL conditions on the window end that divide the panes into portions of about `PANES_A_SHARE`."""
        before = "SUM(panes) OVER (ORDER BY window_end) - panes"
        cuts = self.connection.execute(
            f"SELECT epoch_us(MIN(window_end)) FROM (SELECT window_end, ({before}) // {PANES_A_SHARE} AS share "
            f"FROM {ends}) GROUP BY share HAVING share > 0 ORDER BY share"
        ).fetchall()
        at = [f"make_timestamptz({cut})" for (cut,) in cuts]
        firsts = ["true", *(f"window_end >= {one}" for one in at)]
        lasts = [*(f"window_end < {one}" for one in at), "true"]
        return [f"{first} AND {last}" for first, last in zip(firsts, lasts, strict=True)]

    def _touched(self, table: Table, changed: Relation) -> list[FileScanTask]:
        """Find the files of answers whose range of window ends contains the end of a changed window."""
        tasks = list(table.scan().plan_files())
        end = table.schema().find_field("window_end")
        spans = [(place, *(bounds([task.file], end) or (None, None))) for place, task in enumerate(tasks)]
        columns = {"place": pa.int64(), "low": pa.int64(), "high": pa.int64()}
        rows = [dict(zip(columns, span, strict=True)) for span in spans]
        with register(self.connection, pa.Table.from_pylist(rows, pa.schema(list(columns.items())))) as files:
            found = self.connection.execute(
                f"SELECT place FROM {files} f WHERE low IS NULL OR EXISTS (SELECT 1 FROM {changed} t "
                "WHERE epoch_us(t.window_end) BETWEEN f.low AND f.high)"
            ).fetchall()
        return [tasks[place] for (place,) in found]

    @property
    def _merged(self) -> Query:
        """The query that returns all rows of the touched files after the merge.

        For each window, the query returns the row with the highest version. If the highest version is retracted, the
        query returns no row for the window.
        """
        own = join_items(self._columns)
        new = f"SELECT {own}, retraction AS _gone, 1 AS _new FROM ({latest_answers(self.pipeline, _LEDGER)})"
        both = Query(f"{new} UNION ALL SELECT {own}, false AS _gone, 0 AS _new FROM tailrace_held")
        # Only a higher version replaces a row. If the versions are equal, the row in the table stays (rule V1).
        newest = first_of(bracketed(both), [*key_names(self.pipeline), *SPAN], [*NEWEST, "_new"])
        return Query(f"SELECT {own} FROM ({newest}) WHERE NOT _gone ORDER BY window_end, window_start")


class FileCutter:
    """Splits rows, which arrive sorted by window end, into one table per file.

    Rows with the same window end stay in the same file, up to `MOST_ALIKE` rows.
    """

    def __init__(self) -> None:
        self._left: pa.Table | None = None

    def take(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Take the next rows; yield the tables of the files that are complete now."""
        left = rows if self._left is None else pa.concat_tables([self._left, rows])
        while left.num_rows > ROWS_A_FILE and (cut := _cut(left)) is not None:
            yield left.slice(0, cut)
            left = left.slice(cut)
        self._left = left

    def rest(self) -> Iterator[pa.Table]:
        """Yield the table of the last file, if there are rows left."""
        if self._left is not None and self._left.num_rows:
            yield self._left


def _with_column(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.append_column(name, values) if place < 0 else rows.set_column(place, name, values)


def cut_into_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Split rows, which are sorted by window end, into one table per file (`FileCutter`)."""
    cutter = FileCutter()
    for batch in batches:
        yield from cutter.take(pa.Table.from_batches([batch]))
    yield from cutter.rest()


def _cut(rows: pa.Table) -> int | None:
    """Return the index of the row at which the next file starts.

    The first `ROWS_A_FILE` rows are always in the current file. The next file starts at the first later row whose
    window end differs from the window end of the row before it. If there is no such row, and there are at least
    `MOST_ALIKE` rows, the next file starts after all these rows. Returns None if more rows must be read first.
    """
    ends = rows["window_end"]
    differs = pc.index(pc.not_equal(ends.slice(ROWS_A_FILE), ends[ROWS_A_FILE - 1]), pa.scalar(True)).as_py()
    if differs >= 0:
        return int(ROWS_A_FILE + differs)
    return rows.num_rows if rows.num_rows >= MOST_ALIKE else None
