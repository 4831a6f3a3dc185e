"""The backfill of a join: compute the pairs of a range from the logs, and compare them with the ledger's pairs (V4).

The computed pairs include pairs with late records. A pair belongs to the range that contains the event time of its
later record (V5). A running stream never outputs a pair of two records that the run has already read, so a run takes no
lease. If the join outputs records without a partner or may retract its output, the range is cut off at the first event
time at which the stream may still change the output.
"""

from __future__ import annotations

from functools import cached_property

from tailrace.backfill.range_run import Found, RangeBackfill, RangeRun, RowsRun, folded_head
from tailrace.backfill.result import BackfillError
from tailrace.engines import log_records
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.schema.filters import Filter
from tailrace.model.base.time import BEGINNING, END_OF_TIME, text
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDES
from tailrace.sql.epoch import join_rows
from tailrace.sql.terms import Query, Relation, bracketed


class JoinBackfill(RangeBackfill[Join]):
    """The backfill of a join, limited to the part of the range that the stream cannot change any more."""

    @cached_property
    def pinned(self) -> Head:
        """The commit of the ledger at which the backfill begins to read."""
        return folded_head(self.lake, self.definition)

    @property
    def end(self) -> int:
        """The end of the range that is computed: the stream cannot change rows with an earlier event time any more."""
        return min(self.last, self.definition.open_from(self.pinned.number("watermark", BEGINNING)))

    def check(self) -> None:
        super().check()
        if self.asked and self.first >= self.end:
            raise BackfillError(
                f"from {text(self.end)} on records of {self.definition.name} may still get a partner or be corrected, "
                "which the stream sees to: pass an earlier --from, or wait"
            )

    def reads(self) -> list[tuple[str, Filter]]:
        if self.first >= self.end:
            return []
        join, epoch = self.definition, self.pinned.number("epoch")
        return log_records.tables_of_log(self.lake, join.log, epoch, *_reached(join, self.first, self.end))

    def runs(self, session: Session) -> list[tuple[Join, list[RangeRun[Join]]]]:
        if self.first >= self.end:
            return [(self.definition, [])]
        return [(self.definition, [JoinRun(session, self.definition, self.first, self.end, self.pinned)])]


class JoinRun(RowsRun[Join]):
    """The run of a join over a range of event time."""

    def differences(self, run: Run, pinned: Head) -> Found:
        session, join, epoch = self.session, self.definition, pinned.number("epoch")
        records = log_records.rows_of_log(session, join.log, epoch, *_reached(join, self.first, self.last))
        entries = {side: _entries(session, join, records, side) for side in SIDES}
        found = join_rows.output(join, join_rows.finished(join, entries, self.pinned.number("watermark", BEGINNING)))
        return self.compare(Query(f"SELECT * FROM ({found}) WHERE {self.within()}"), epoch)


def _entries(session: Session, join: Join, records: Relation, side: str) -> Relation:
    """Return a relation with the entries of one side of a join."""
    return session.materialized(join_rows.added_entries(join, side, bracketed(join_rows.entries(join, records, side))))


def _reached(join: Join, first: int, last: int) -> tuple[int | None, int | None]:
    """Return the event-time bounds of the records that pairs of a range may contain; None means no bound."""
    length = max(join.reach) if join.where is None else join.where.longest
    since_ = None if first <= BEGINNING or length is None else max(BEGINNING, first - length)
    return since_, None if last >= END_OF_TIME or length is None else min(END_OF_TIME, last + length + 1)
