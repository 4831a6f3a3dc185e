"""A backfill of a join: the pairs of a range are computed from the logs, late records included, and compared (rule V4).

A pair belongs to the interval that holds its event time, that of its later record (V5). A stream that runs on gives no
pair of records that the run has seen, so a run takes no lease. Where records without a partner are given, or what was
given may be taken back, a range ends where the stream has done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tailrace.backfill.range_run import RowsRun, folded_head
from tailrace.backfill.result import Backfilled, BackfillError, Found, as_of
from tailrace.engines.batch import log_records
from tailrace.engines.batch.run_engine import session_for
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.commit.branch import Branch
from tailrace.lake.commit.run_inputs import SeenRuns
from tailrace.lake.schema.filters import Filter
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING, END_OF_TIME, text
from tailrace.model.definition.join import Join
from tailrace.model.definition.joined_sides import SIDES
from tailrace.sql.epoch import join_rows
from tailrace.sql.results import join_output
from tailrace.sql.terms import Query, Relation, bracketed


def backfill_join(
    lake: Lake,
    join: Join,
    first: int,
    last: int,
    seen: Mapping[str, SeenRuns],
    *,
    reason: str | None = None,
    dry_run: bool = False,
    begun: Callable[[Session], None] = lambda session: None,
    must: bool = True,
) -> list[Backfilled]:
    """Recompute the pairs that happened in `[first, last)`, in microseconds, as one run, which has seen these runs.

    Where all of the range is still open to the stream there is no run, or with `must` a `BackfillError`, which is
    raised where no stream has run yet, too.
    """
    pinned = folded_head(lake, join)
    end = min(last, join.open_from(pinned.number("watermark", BEGINNING)))
    if first >= end:
        if not must:
            return []
        raise BackfillError(
            f"from {text(end)} on records of {join.name} may still get a partner or be corrected, which the stream "
            "sees to: pass an earlier --from, or wait"
        )
    with session_for(lake, join, "backfill", read(lake, join, first, end)) as session:
        begun(session)
        return [JoinRun(session, join, first, end, pinned).run(reason, dry_run, seen)]


def read(lake: Lake, join: Join, first: int, last: int) -> list[tuple[str, Filter]]:
    """Return the tables that a range reads, each with the filter of the files that hold its records."""
    epoch = lake.head(ledger_name(join.name)).number("epoch")
    return log_records.read(lake, join.log, epoch, *_reached(join, first, last))


class JoinRun(RowsRun):
    """The run of a join over a range of event time."""

    def __init__(self, session: Session, join: Join, first: int, last: int, pinned: Head) -> None:
        super().__init__(session, join, first, last, pinned)
        self.join = join

    def write(self, found: Found, run: Run, pinned: Head, branch: Branch, properties: Mapping[str, str]) -> None:
        self.session.write(join_output.corrected(self.join, found.different, as_of(run, pinned)), branch, properties)

    def _computed(self, epoch: int) -> Found:
        session, join = self.session, self.join
        records = log_records.records(session, join.log, epoch, *_reached(join, self.first, self.last))
        entries = {side: _entries(session, join, records, side) for side in SIDES}
        found = join_output.output(join, join_rows.finished(join, entries, self.pinned.number("watermark", BEGINNING)))
        within = self._within()
        computed = Query(f"SELECT * FROM ({found}) WHERE {within}")
        held = join_output.current(join, session.table(self.ledger, self._in_ledger()), within, until=epoch)
        return self._counted(join_output.differences(join, computed, Query(f"SELECT * EXCEPT (epoch) FROM ({held})")))


def _entries(session: Session, join: Join, records: Relation, side: str) -> Relation:
    """Name a relation of a side's entries."""
    return session.materialized(join_rows.added(join, side, bracketed(join_rows.entries(join, records, side))))


def _reached(join: Join, first: int, last: int) -> tuple[int | None, int | None]:
    """Return the event times of the records that may be in pairs of a range; None for a side without a bound."""
    length = max(join.reach) if join.where is None else join.where.longest
    since_ = None if first <= BEGINNING or length is None else max(BEGINNING, first - length)
    return since_, None if last >= END_OF_TIME or length is None else min(END_OF_TIME, last + length + 1)
