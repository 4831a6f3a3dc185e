"""The audit of a join: its pairs are those of a batch over its logs less the late records, each given once (L1, X6)."""

from __future__ import annotations

from functools import partial

from tailrace.engines import log_records
from tailrace.engines.batch.run_engine import here_first, session_for
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.drift import check_definition
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.pins import pinned
from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import LATE, PRODUCTION
from tailrace.lake.schema.filters import EVERYTHING
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.join import Join
from tailrace.model.definition.join_input import SIDE, SIDES
from tailrace.model.logs.log import PANE_TIME, PLACE
from tailrace.sql.epoch import join_rows
from tailrace.sql.results import join_output
from tailrace.sql.terms import Query, Relation, all_of, bracketed
from tailrace.verify.audit_checks import Audited, corrections_came
from tailrace.verify.tampering.audit_result import Audit, Check


def audit_join(lake: Lake, join: Join) -> Audit:
    """Audit a join and its logs as of the last epoch in the ledger.

    Raises `OtherDefinitionError` where the tables are another definition's.
    """
    check_definition(lake, join)
    return here_first(lake, partial(_audited, join=join))


def _audited(lake: Lake, join: Join) -> Audit:
    ledger = ledger_name(join.name)
    reads = [*log_records.read(lake, join.log, lake.head(ledger).number("epoch")), (ledger, EVERYTHING)]
    with session_for(lake, join, "audit", reads) as session:
        auditing = _JoinAudit(session, join)
        with pinned(lake, {auditing.ledger: auditing.head.snapshot}):
            return auditing.run()


class _JoinAudit(Audited):
    of = "pairs"

    def __init__(self, session: Session, join: Join) -> None:
        super().__init__(session, join)
        self.join = join
        self.log = session.view(all_of(log_records.streamed(session, join.log, self.epoch)))
        self.rows = session.view(all_of(session.table(self.ledger, snapshot=self.head.snapshot)))
        self.entries = {side: self._entries(self.log, side) for side in SIDES}
        self.current = session.materialized(join_output.current(join, self.rows))

    def _entries(self, records: Relation, side: str) -> Relation:
        rows = bracketed(join_rows.entries(self.join, records, side))
        return self.session.materialized(join_rows.added(self.join, side, rows))

    def run(self) -> Audit:
        counts = self._counts()
        checks = [*self.landed(counts), self.in_order(), self._late(counts)]
        if not self.join.log.takes_back:
            checks.append(self._in_its_epoch())
        if self.join.set_aside:
            rejected, by = bracketed(join_rows.rejected(self.rows)), {name: name for name in (SIDE, *PLACE)}
            checks.append(self.rejected_again(rejected, join_rows.set_aside_of(self.join, self.log), by))
        held = Query(f"SELECT * EXCEPT (epoch) FROM {self.current}")
        checks.append(
            self.compared("pairs are the batch's", join_output.differences(self.join, self._expected(), held))
        )
        checks += corrections_came(self.lake, self.join)
        return Audit(counts, tuple(checks), self.session.choice)

    def _counts(self) -> dict[str, int]:
        production = f"kind = '{PRODUCTION}'"
        relations = {
            "records": self.log,
            "rejected": self.rejected_by_sources(),
            "rows": self.current,
            "retractions": f"{self.rows} WHERE {production} AND retraction",
            "late": f"{self.rows} WHERE kind = '{LATE}'",
        }
        return self.counted(relations)

    def _late(self, counts: dict[str, int]) -> Check:
        """Check that each late row points at a record of the log, and that none is there twice."""
        found = 0
        for side in SIDES:
            place = zip(JOIN_PLACE[side], PLACE, strict=True)
            same = [f"l.{ours} <=> e.{theirs}" for ours, theirs in place]
            same += ["UNIX_MICROS(l.window_start) = e.window_start"] if self.join.where is not None else []
            rows = f"{self.rows} l JOIN {self.entries[side]} e ON {' AND '.join(same)}"
            found += self.session.count(Relation(f"{rows} WHERE l.kind = '{LATE}' AND l.side = '{side}'"))
        names = ", ".join(["side", *join_output.identity(self.join)])
        twice = f"SELECT 1 FROM {self.rows} WHERE kind = '{LATE}' GROUP BY {names} HAVING COUNT(*) > 1"
        doubled = self.session.count(bracketed(Query(twice)))
        detail = f"{counts['late']:,} late rows, {found:,} of them found in the logs, {doubled:,} doubled"
        return Check("late rows are records of the logs", found == counts["late"] and not doubled, detail)

    def _in_its_epoch(self) -> Check:
        """Check that a stream gave a pair in the epoch of its later record, and so once (X2)."""
        later = "GREATEST(left_epoch, right_epoch)"
        own = f"kind = '{PRODUCTION}' AND writer = 'stream' AND left_epoch IS NOT NULL AND right_epoch IS NOT NULL"
        apart = self.session.count(Relation(f"{self.rows} WHERE {own} AND epoch <> {later}"))
        detail = f"{apart:,} pairs in an epoch that is not their later record's"
        return Check("a pair came in the epoch of its later record", apart == 0, detail)

    def _expected(self) -> Query:
        """Write the SQL of the pairs that are to stand: of the logs less the late ones, or all where a run mended."""
        less = {
            side: self.session.view(join_rows.not_late(self.join, side, rows, self.rows))
            for side, rows in self.entries.items()
        }
        batch = join_output.output(self.join, join_rows.finished(self.join, less, self.watermark))
        runs = self.repairs()
        if not runs:
            return batch
        last = max(run.log_epoch or 0 for run in runs)
        whole = {side: self._seen(side, less[side], last) for side in SIDES}
        mended = join_output.output(self.join, join_rows.finished(self.join, whole, self.watermark))
        # An answer has no epoch of its own.
        later = "COALESCE(left_epoch, right_epoch, 0L), COALESCE(right_epoch, left_epoch, 0L)"
        at = f"UNIX_MICROS({PANE_TIME})"
        in_run = " OR ".join(
            f"({at} >= {run.first}L AND {at} < {run.last}L AND GREATEST({later}) <= {run.log_epoch}L)" for run in runs
        )
        return Query(f"SELECT * FROM ({batch}) WHERE NOT ({in_run}) UNION ALL SELECT * FROM ({mended}) WHERE {in_run}")

    def _seen(self, side: str, less: Relation, last: int) -> Relation:
        """Name a relation of a side's entries as runs have seen them up to an epoch, and those since but late ones.

        A run reads what stands of other definitions, which other runs may have mended before.
        """
        log = self.join.side(side)
        rows = self.entries[side]
        if not log.landed:
            rows = self._entries(log_records.records(self.session, self.join.log, self.epoch), side)
        if log.takes_back:
            return rows
        # A late record that came after every run is in no run's pairs.
        since = Query(f"SELECT * FROM {less} WHERE _epoch > {last}L")
        return self.session.view(Query(f"SELECT * FROM {rows} WHERE _epoch <= {last}L UNION ALL {since}"))
