"""Audit a join: it must have exactly the pairs that a batch computes, each pair once (L1, X6).

The batch reads all records of the logs except the late records.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.engines import log_records
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import LATE, PRODUCTION
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDE, SIDES
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.sql.epoch import join_rows
from tailrace.sql.results.output_rows import output_rows
from tailrace.sql.terms import Query, Relation, all_of, bracketed
from tailrace.verify.audit_checks import RowsAudit
from tailrace.verify.tampering.audit_result import Check


class JoinAudit(RowsAudit[Join]):
    """The audit of a join's ledger rows."""

    of = "pairs"

    def __init__(self, definition: Join, session: Session, head: Head) -> None:
        super().__init__(definition, session, head)
        self.log = session.view(all_of(log_records.streamed_rows(session, definition.log, self.epoch)))
        self.entries = {side: self._entries(self.log, side) for side in SIDES}
        self.current = session.materialized(output_rows(definition).current(self.rows))

    def _entries(self, records: Relation, side: str) -> Relation:
        rows = bracketed(join_rows.entries(self.definition, records, side))
        return self.session.materialized(join_rows.added_entries(self.definition, side, rows))

    def checks(self, counts: dict[str, int]) -> Iterator[Check]:
        yield from (*self.landing_checks(counts), self.order_check(), self._late(counts))
        if not self.definition.log.takes_back:
            yield self._in_its_epoch()
        if self.definition.set_aside:
            rejected, by = bracketed(join_rows.rejected(self.rows)), {name: name for name in (SIDE, *PLACE)}
            yield self.rejected_check(rejected, join_rows.set_aside_of(self.definition, self.log), by)
        rows = output_rows(self.definition)
        yield self.differences_check("pairs are the batch's", rows.differences(self._expected(), all_of(self.current)))

    def counts(self) -> dict[str, int]:
        production = f"kind = '{PRODUCTION}'"
        relations = {
            "rows": self.current,
            "retractions": f"{self.rows} WHERE {production} AND retraction",
            "late": f"{self.rows} WHERE kind = '{LATE}'",
        }
        return self.count_rows(relations)

    def _late(self, counts: dict[str, int]) -> Check:
        """Check that each row for a late record refers to a record of the log, and that no such row occurs twice."""
        found = 0
        for side in SIDES:
            place = zip(JOIN_PLACE[side], PLACE, strict=True)
            same = [f"l.{ours} <=> e.{theirs}" for ours, theirs in place]
            same += ["UNIX_MICROS(l.window_start) = e.window_start"] if self.definition.where is not None else []
            rows = f"{self.rows} l JOIN {self.entries[side]} e ON {' AND '.join(same)}"
            found += self.session.count(Relation(f"{rows} WHERE l.kind = '{LATE}' AND l.side = '{side}'"))
        names = ", ".join(["side", *output_rows(self.definition).identity])
        twice = f"SELECT 1 FROM {self.rows} WHERE kind = '{LATE}' GROUP BY {names} HAVING COUNT(*) > 1"
        doubled = self.session.count(bracketed(Query(twice)))
        detail = f"{counts['late']:,} late rows, {found:,} of them found in the logs, {doubled:,} doubled"
        return Check("late rows are records of the logs", found == counts["late"] and not doubled, detail)

    def _in_its_epoch(self) -> Check:
        """Check that a stream output each pair in the epoch of the pair's later record, and thus only once (X2)."""
        later = "GREATEST(left_epoch, right_epoch)"
        own = f"kind = '{PRODUCTION}' AND writer = 'stream' AND left_epoch IS NOT NULL AND right_epoch IS NOT NULL"
        own += f" AND epoch > {self.built_until}L"
        apart = self.session.count(Relation(f"{self.rows} WHERE {own} AND epoch <> {later}"))
        detail = f"{apart:,} pairs in an epoch that is not their later record's"
        return Check("a pair came in the epoch of its later record", apart == 0, detail)

    def _expected(self) -> Query:
        """Return SQL for the pairs that the join should have; pairs with a record that was too late are left out.

        However, if a run (a backfill) has recomputed the event-time range of such a pair, and has read both records,
        the pair is included.
        """
        less = {
            side: self.session.view(join_rows.not_late(self.definition, side, rows, self.rows))
            for side, rows in self.entries.items()
        }
        batch = join_rows.output(self.definition, join_rows.finished(self.definition, less, self.watermark))
        runs = self.committed_runs()
        if not runs:
            return batch
        last = max(run.log_epoch or 0 for run in runs)
        whole = {side: self._seen(side, less[side], last) for side in SIDES}
        mended = join_rows.output(self.definition, join_rows.finished(self.definition, whole, self.watermark))
        # A record that is an answer of a pipeline has no epoch. If only one record of a pair has an epoch, this epoch
        # counts.
        later = "COALESCE(left_epoch, right_epoch, 0L), COALESCE(right_epoch, left_epoch, 0L)"
        at = f"UNIX_MICROS({PANE_TIME})"
        in_run = " OR ".join(
            f"({at} >= {run.first}L AND {at} < {run.last}L AND GREATEST({later}) <= {run.log_epoch}L)" for run in runs
        )
        return Query(f"SELECT * FROM ({batch}) WHERE NOT ({in_run}) UNION ALL SELECT * FROM ({mended}) WHERE {in_run}")

    def _seen(self, side: str, less: Relation, last: int) -> Relation:
        """Return the entries (records) of one side that the audit uses for ranges that runs (backfills) have computed.

        These are all entries up to epoch `last`, which runs may have read, and the later entries that were not too
        late. If another definition outputs the entries, its corrections by earlier runs are included, because a run
        reads them.
        """
        log = self.definition.side(side)
        rows = self.entries[side]
        if not log.landed:
            rows = self._entries(log_records.rows_of_log(self.session, self.definition.log, self.epoch), side)
        if log.takes_back:
            return rows
        # A late record that arrived after all runs is in no pair, so it is left out.
        since = Query(f"SELECT * FROM {less} WHERE _epoch > {last}L")
        return self.session.view(Query(f"SELECT * FROM {rows} WHERE _epoch <= {last}L UNION ALL {since}"))
