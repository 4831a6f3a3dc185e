"""A backfill of a map: the rows of a range are computed from the log and compared with the ledger's (rule V4).

A record belongs to the interval that holds its event time (V5). Nothing of a map is open to a stream, so a run takes no
lease: rows that differ are retracted and written again, in a generation of the run's own, while a stream runs on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tailrace.backfill.range_run import RowsRun, folded_head
from tailrace.backfill.result import Backfilled, Found, as_of
from tailrace.engines.batch import log_records
from tailrace.engines.batch.batch_answers import mapped
from tailrace.engines.batch.run_engine import session_for
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import FileChange, Head
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.range_replacement import COUNTS
from tailrace.lake.commit.run_inputs import SeenRuns
from tailrace.lake.schema.filters import Filter
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.map import Map
from tailrace.sql.results import map_rows
from tailrace.sql.terms import Condition, Query, bracketed


def backfill_map(
    lake: Lake,
    definition: Map,
    first: int,
    last: int,
    seen: Mapping[str, SeenRuns],
    *,
    reason: str | None = None,
    dry_run: bool = False,
    begun: Callable[[Session], None] = lambda session: None,
) -> list[Backfilled]:
    """Recompute a map's rows for the records of event times `[first, last)`, in microseconds, as one run.

    The run has `seen` these runs. Raises `BackfillError` where no stream has run yet.
    """
    pinned = folded_head(lake, definition)
    with session_for(lake, definition, "backfill", read(lake, definition, first, last)) as session:
        begun(session)
        return [MapRun(session, definition, first, last, pinned).run(reason, dry_run, seen)]


def read(lake: Lake, definition: Map, first: int, last: int) -> list[tuple[str, Filter]]:
    """Return the tables that a range reads, each with the filter of the files that hold its records."""
    epoch = lake.head(ledger_name(definition.name)).number("epoch")
    return log_records.read(lake, definition.log, epoch, *_bounds(first, last))


class MapRun(RowsRun):
    """The run of a map over a range of event time."""

    def __init__(self, session: Session, definition: Map, first: int, last: int, pinned: Head) -> None:
        super().__init__(session, definition, first, last, pinned)
        self.map = definition

    def compute(self, run: Run, pinned: Head) -> Found:
        epoch = pinned.number("epoch")
        computed = self._mapped(epoch)
        if self._held():
            return self._compared(computed, epoch)
        # Rows that are compared with none are written as they are computed, and counted by what was written.
        new = bracketed(map_rows.new(self.map, computed))
        files = self.session.files(map_rows.corrected(self.map, new, as_of(run, pinned)), self.ledger)
        if files is None:
            return self._new(computed)
        return Found(None, {**_NOTHING, "changed": sum(file.record_count for file in files)}, tuple(files))

    def write(self, found: Found, run: Run, pinned: Head, branch: Branch, properties: Mapping[str, str]) -> None:
        if found.changes is None:
            branch.hold(FileChange(found.files), properties)
            return
        self.session.write(map_rows.corrected(self.map, found.different, as_of(run, pinned)), branch, properties)

    def _computed(self, epoch: int) -> Found:
        computed = self._mapped(epoch)
        return self._compared(computed, epoch) if self._held() else self._new(computed)

    def _compared(self, computed: Query, epoch: int) -> Found:
        """Compare computed rows with those of the ledger."""
        within = Condition(f"source_epoch <= {epoch}L AND {self._within()}")
        held = map_rows.current(self.map, self.session.table(self.ledger, self._in_ledger()), within)
        return self._counted(map_rows.differences(self.map, computed, held))

    def _mapped(self, epoch: int) -> Query:
        """Write the query of the rows that the log gives, up to an epoch."""
        first, last = _bounds(self.first, self.last)
        return mapped(self.session, self.map, log_records.records(self.session, self.map.log, epoch, first, last))

    def _held(self) -> bool:
        """Tell whether the ledger may have rows of the range, by its files' statistics."""
        return any(True for _ in self.lake.table(self.ledger).scan(row_filter=self._in_ledger()).plan_files())

    def _new(self, computed: Query) -> Found:
        """Count every computed row as new, where the ledger has no row of the range."""
        text = map_rows.new(self.map, computed)
        if not self.session.direct:
            return self._counted(text)
        # Counting in the process reads only the columns that the condition needs; the others are read when written.
        relation = self.session.view(text)
        return Found(relation, {**_NOTHING, "changed": self.session.count(relation)})


_NOTHING: Mapping[str, int] = dict.fromkeys(COUNTS, 0)
"""The counts of a run that finds nothing."""


def _bounds(first: int, last: int) -> tuple[int | None, int | None]:
    """Return a range's bounds, None for a side on which the range is open."""
    return None if first <= BEGINNING else first, None if last >= END_OF_TIME else last
