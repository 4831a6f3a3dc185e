"""Audit a pipeline: every record must be accounted for, and the answers must equal a batch's answers (X6, L1, L2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

from tailrace.engines import log_records
from tailrace.engines.batch.batch_answers import answering
from tailrace.engines.batch.held_answers import held_answers
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import STAMP, Head
from tailrace.lake.commit.epoch_properties import epoch_commits
from tailrace.lake.commit.run_inputs import standing_runs
from tailrace.lake.schema.column_groups import SPAN, VERSION
from tailrace.lake.schema.contracts import LATE, PANE, PARTIAL, REJECTED
from tailrace.lake.schema.filters import equal
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.partials import is_closed
from tailrace.sql.query_shapes import equal_in
from tailrace.sql.records.assignment import join_items, key_names
from tailrace.sql.records.selections import leaves_out
from tailrace.sql.records.ways import may_reject
from tailrace.sql.results.answers import answer_rows, current_answers, latest_answers
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, all_of, bracketed, quoted
from tailrace.verify.audit_checks import RowsAudit
from tailrace.verify.tampering.audit_result import Check
from tailrace.verify.window_account import WindowAccount, as_streamed


class PipelineAudit(RowsAudit[Pipeline]):
    """The audit of a stage's panes, late records and answers, and of the records that the first stage reads."""

    def __init__(self, definition: Pipeline, session: Session, head: Head) -> None:
        super().__init__(definition, session, head)
        self.pipeline, self.first = definition, definition.stages[0]
        self.answering = answering(session, definition)
        # `repaired` lists the backfills whose results the ledger contains. If `apply` built a new generation of a later
        # stage, this generation does not contain the results of earlier backfills, so these backfills are left out.
        later = self.first is not definition
        self.repaired = standing_runs(self.lake, definition.name) if later else self.committed_runs()
        with closing(session.follower(definition, "audit")) as follower:
            follower.follow()
        self._views()

    def checks(self, counts: dict[str, int]) -> Iterator[Check]:
        yield from (*self.landing_checks(counts), self.order_check())
        window = [*key_names(self.pipeline), *SPAN, "generation", "epoch"]
        # Check that a window has at most one pane and at most one retraction per version, and at most one state per
        # epoch.
        yield self.once_check({PANE: [*window, "pane_index", "retraction"], PARTIAL: [*window, "gone", "writer"]})
        yield self._late_are_records(counts)
        yield self.account.late_as_judged()
        yield self.account.every_record(_left_out(counts))
        if self.pipeline is not self.first:
            yield self._no_correction_late()
        elif may_reject(self.first):
            # Only the records that a stream has read are checked. A stream does not read later corrections of other
            # definitions, so it cannot have rejected these corrections.
            streamed = as_streamed(self.session, self.first, self.log, self.epoch)
            yield self.rejected_check(self.rejected, self.answering.failed(streamed))
        yield self._batch_answers()
        if self.lake.has(self.pipeline.name):
            yield self._panes_give_answers()

    def _views(self) -> None:
        """Create views of the log, of each kind of ledger row, and of the answers, all up to the audited epoch."""
        view = self.session.view
        self.first_rows = self.rows
        self.log = view(all_of(log_records.rows_of_log(self.session, self.first.log, self.epoch)))
        self.panes, self.late_own, self.rejected = (
            view(Query(f"SELECT * FROM {self.session.table(self.ledger, equal('kind', kind), self.head.snapshot)} "
                       f"WHERE kind = '{kind}'")) for kind in (PANE, LATE, REJECTED)
        )  # fmt: skip
        # Records can be too late only in the first stage, because every later stage waits for corrections.
        self.late = self.late_own
        if self.first is not self.pipeline:
            rows = self.session.table(ledger_name(self.first.name))
            self.first_rows = view(Query(f"SELECT * FROM {rows} WHERE epoch <= {self.epoch}L"))
            self.late = view(Query(f"SELECT * FROM {self.first_rows} WHERE kind = '{LATE}'"))
        self.account = WindowAccount(
            self.session, self.answering.first, self.log, self.first_rows, self.late, self.epoch
        )
        self.answers = held_answers(self.session, self.pipeline, snapshot=self.head.snapshot)

    def counts(self) -> dict[str, int]:
        relations = {
            "late": self.late,
            "panes": f"{self.panes} WHERE NOT retraction",
            "retractions": f"{self.panes} WHERE retraction",
            "answers": self.answers,
        }
        if self.first.keep is not None:
            relations["left_out"] = f"({self.answering.first.left_out(self.log)})"
        return self.count_rows(relations)

    def _late_are_records(self, counts: dict[str, int]) -> Check:
        """Check that each late row refers to a record of the log, and that a record has one late row per window."""
        place = "l.source_epoch = r._epoch AND l.source_partition = r._source AND l.source_offset = r._offset"
        matched = self.session.count(Relation(f"{self.late} l JOIN {self.log} r ON {place}"))
        spans = "source_epoch, source_partition, source_offset, window_start, window_end"
        twice = self.session.count(Relation(f"(SELECT 1 FROM {self.late} GROUP BY {spans} HAVING COUNT(*) > 1)"))
        if leaves_out(self.first):
            # A step may make several records from one record, and each of these records may be too late. So two late
            # rows for the same record and window are not a fault.
            twice = 0
        detail = f"{counts['late']:,} late rows, {matched:,} of them found in the log, {twice:,} doubled"
        return Check("late rows are records of the log", matched == counts["late"] and twice == 0, detail)

    def _no_correction_late(self) -> Check:
        """Check that no correction by an earlier stage was too late; each stage waits for corrections (T3)."""
        too_late = self.session.count(self.late_own)
        return Check("corrections came in time", too_late == 0, f"{too_late:,} answers of earlier stages came too late")

    def _batch_answers(self) -> Check:
        """Check that each closed window has the answer that a batch computes from the log without the late records
        (L1).

        If a backfill has computed a window, the window's answer also includes the records that had been too late before
        the backfill.
        """
        closed = self._closed()
        answers = current_answers(self.pipeline, self.answers, closed)
        batch, onward = self.answering.batch, self.answering.onward
        if self.pipeline is self.first:
            # In the first stage, a late row names the window for which the record was too late. Therefore, one batch
            # computes the answers of all windows.
            if self.pipeline.where.merges:
                rows = onward(self._accepted(late=self._late_of_sessions()))
                windows = self.session.materialized(batch(rows))
                expected = Query(f"SELECT * FROM {windows} WHERE {closed}")
                answers = self._not_merged_away(answers, Query(f"SELECT * FROM {windows} WHERE NOT {closed}"))
            else:
                rows = onward(self._accepted(self._mended(_within("UNIX_MICROS(window_end)"))))
                expected = batch(rows, closed)
        else:
            mended, late = self._covered(), self._late_of_sessions(while_open=True)
            others = Condition(" AND ".join([closed, *(f"NOT {ranges}" for ranges in mended.values())]))
            texts = [batch(onward(self._accepted(late=late)), others)]
            for epoch, ranges in mended.items():
                accepted = self._accepted(Condition(f"epoch > {epoch}L"), late)
                texts.append(batch(onward(accepted), Condition(f"{closed} AND {ranges}")))
            expected = Query(" UNION ALL ".join(all_of(bracketed(text_)) for text_ in texts))
        return self.differences_check(
            "answers are the batch answers", answer_rows(self.pipeline).differences(expected, answers)
        )

    def _not_merged_away(self, answers: Query, open_: Query) -> Query:
        """Select the answers whose windows do not overlap a window that is still open.

        A closed window that has merged into an open window keeps its answer until the open window fires (rule V3).
        """
        within = "o.window_start < a.window_end AND a.window_start < o.window_end"
        same = " AND ".join(filter(None, [equal_in("o", "a", key_names(self.pipeline)), within]))
        return Query(f"SELECT a.* FROM ({answers}) a LEFT ANTI JOIN ({open_}) o ON {same}")

    def _mended(self, within: Callable[[Run], Condition]) -> Condition:
        """Return the SQL condition that no backfill has computed a late row's window after the row was written."""
        ranges = [f"({within(run)} AND epoch <= {run.log_epoch}L)" for run in self.repaired]
        return Condition(f"NOT ({' OR '.join(ranges)})") if ranges else ALWAYS

    def _late_of_sessions(self, *, while_open: bool = False) -> Relation:
        """Return the first stage's late rows whose records have not been included in a window by a later backfill.

        If windows merge, a backfill includes a late record if the record's window is part of a merged window in the
        backfill's range. A late row alone does not show the merged window, because the late row has only the window of
        its own record. If `while_open` is set, a backfill counts only for windows that were still open at that time,
        because later stages read the corrections of these windows.
        """
        first = self.answering.first
        runs = self.repaired if first is self.answering else self.committed_runs(self.first)
        if not (self.first.where.merges and runs and self.session.count(self.late)):
            return self.late
        keys, known, texts = key_names(self.first), epoch_commits(self.lake, ledger_name(self.first.name)), []
        for run in runs:
            within = _within("window_end")(run)
            if while_open:
                if run.log_epoch not in known:
                    continue
                reach = self.first.closed_until(known[run.log_epoch].clock.watermark)
                within = Condition(f"{within} AND window_end > {reach}L")
            until = f"SELECT * FROM {self.log} WHERE _epoch <= {run.log_epoch}L"
            windows = first.batch(first.placed(bracketed(Query(until))), within)
            texts.append(f"SELECT {join_items(keys, list(SPAN), [f'{run.log_epoch}L AS _until'])} FROM ({windows})")
        if not texts:
            return self.late
        inside = "m.window_start <= UNIX_MICROS(l.window_start) AND UNIX_MICROS(l.window_end) <= m.window_end"
        on = " AND ".join(filter(None, [equal_in("m", "l", keys), inside, "l.epoch <= m._until"]))
        return self.session.view(
            Query(f"SELECT l.* FROM {self.late} l LEFT ANTI JOIN ({' UNION ALL '.join(texts)}) m ON {on}")
        )

    def _covered(self) -> dict[int, Condition]:
        """Return SQL conditions for the windows that backfills have computed.

        The keys are the epochs of the log up to which the backfills have read. If several backfills have computed a
        window, the backfill with the highest generation counts.
        """
        within, conditions, above = _within("window_end"), dict[int, list[str]](), list[str]()
        for run in sorted(self.repaired, key=lambda run: -run.generation):
            own = " AND ".join([within(run), *(f"NOT {range_}" for range_ in above)])
            conditions.setdefault(run.log_epoch or 0, []).append(f"({own})")
            above.append(within(run))
        return {epoch: Condition(f"({' OR '.join(ranges)})") for epoch, ranges in conditions.items()}

    def _panes_give_answers(self) -> Check:
        """Check that the table of answers has one row for each window's latest pane, with the pane's values (L2).

        A window whose latest row in the ledger is a retraction has no answer.
        """
        stamped = self.lake.head(self.pipeline.name).properties.get(STAMP)
        if stamped != str(self.head.snapshot):
            return Check("panes give the answers", True, "left out: the table moved on while the audit ran")
        standing = Query(f"SELECT * FROM ({latest_answers(self.pipeline, self.panes)}) WHERE NOT retraction")
        columns = [*key_names(self.pipeline), *SPAN, *map(quoted, self.pipeline.answer_columns), "timing", *VERSION]
        return self.same_rows_check("panes give the answers", columns, bracketed(standing), self.answers)

    def _closed(self) -> Condition:
        """Return the SQL condition that the watermark has closed a window.

        All accepted records of a closed window are in panes, so the window's answer can be compared with a batch.
        """
        return is_closed(self.pipeline, "window_end", f"{self.watermark}L")

    def _accepted(self, lost: Condition = ALWAYS, late: Relation | None = None) -> Query:
        """Return SQL for pairs of a first-stage record and a window for which the record was not too late.

        `late` is a relation of late rows; if `late` is None, all late rows are used. A late row excludes its record
        only if the row meets the condition `lost`.
        """
        late_ = f"SELECT * FROM {late or self.late} WHERE {lost}"
        place = "r._epoch = l.source_epoch AND r._source = l.source_partition AND r._offset = l.source_offset"
        place += "".join(f" AND r.{name} <=> l.{name}" for name in key_names(self.first))
        if not self.first.where.merges:
            place += " AND r.window_start = UNIX_MICROS(l.window_start)"
        placed = self.account.windows or self.answering.first.placed(self.log)
        return Query(f"SELECT r.* FROM ({placed}) r LEFT ANTI JOIN ({late_}) l ON {place}")


def _left_out(counts: Mapping[str, int]) -> str:
    if "left_out" not in counts:
        return ""
    return f"; {counts['left_out']:,} of {counts['records']:,} records are left out by keep"


def _within(end: str) -> Callable[[Run], Condition]:
    """Return a function that maps a run to the SQL condition that a window is in the run's range.

    `end` is the SQL term for the end of the window, in microseconds.
    """
    return lambda run: Condition(f"({end} > {run.first}L AND {end} <= {run.last}L)")
