"""Backfill windows that are still open to the stream; the stream then continues from the corrected state (rule X4).

The backfill borrows the ledger's lease at an epoch boundary, so that the ledger does not change in the meantime: the
stream continues to land records, but does not commit the epoch that it has folded. The backfill computes the windows
from all records that the log has up to the ledger's epoch. This log may be filled by a source or by another definition.
The backfill compares the computed windows with the open state and the answers (`open_windows_correction`). In one
commit, the backfill writes panes, retractions and window states in a new generation, and returns the lease. The stream
then restores its state from the ledger and folds the uncommitted epoch a second time.
"""

from __future__ import annotations

from tailrace.backfill.open_windows_correction import correction_for
from tailrace.backfill.range_answers import range_records
from tailrace.backfill.range_run import Found, RangeRun, version_as_of
from tailrace.backfill.result import BackfillError
from tailrace.engines import log_records
from tailrace.engines.batch.batch_answers import answering
from tailrace.engines.batch.held_answers import held_answers
from tailrace.engines.session_protocol import Session
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.run import Run
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.commit.answers_merge import Follows
from tailrace.lake.commit.epoch_properties import ONWARD
from tailrace.lake.commit.range_replacement import EndedRun, RangeReplacement
from tailrace.lake.schema.contracts import PARTIAL
from tailrace.lake.schema.filters import equal
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import END_OF_TIME, text
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.ledger_rows import Rows
from tailrace.sql.results.answers import current_answers, events_in, in_range
from tailrace.sql.results.backfill_rows import BackfillVersion
from tailrace.sql.terms import Query


def check_followers(lake: Lake, pipeline: Pipeline, last: int) -> None:
    """Check that later stages can apply corrections of windows that the stream can still change.

    Raises `BackfillError` if a later stage cannot apply such corrections; the message contains `last`, the end of the
    backfilled range.
    """
    head = lake.head(ledger_name(pipeline.name))
    for stage in pipeline.stages:
        if stage.stamp is not None and (stage is not pipeline or ONWARD in head.properties):
            closed = pipeline.closed_until(head.number("watermark"))
            raise BackfillError(
                f"windows up to {text(last)} are still open to the stream, and answers of {stage.name} happen "
                f"at their {stage.timestamp.value} record's time, by which the ledger's are not compared: pass a "
                f"--to of at most {text(closed)}, up to where windows are closed"
            )


class Handover(RangeRun[Pipeline]):
    """The backfill run for the windows that a stream can still change."""

    def __init__(self, session: Session, pipeline: Pipeline, first: int, last: int, pinned: Head) -> None:
        super().__init__(session, pipeline, first, last, pinned)
        self.answering = answering(session, pipeline)
        check_followers(self.lake, pipeline, last)
        # Merging windows are corrected together with the windows that they overlap, which may be outside of the range.
        # So all open windows are read.
        closed = pipeline.closed_until(pinned.number("watermark"))
        self.reached = (closed, END_OF_TIME) if pipeline.where.merges else (first, last)

    def head(self) -> Head:
        """Return the latest commit of the ledger. The stream may commit further epochs after this commit."""
        return self.lake.head(self.ledger)

    def replace_range(self, replacing: RangeReplacement[Found], run: Run) -> EndedRun:
        """Replace the range while the run holds the stream's lease."""
        return replacing.replace_open(run)

    def try_out(self, run: Run, head: Head) -> Found:
        return self._found(version_as_of(run, head), head.snapshot)

    def differences(self, run: Run, pinned: Head) -> Found:
        # While the run holds the stream's lease, the latest state in the ledger is the pinned state, so no snapshot is
        # given.
        return self._found(version_as_of(run, pinned), None)

    def rows(self, found: Found, written: BackfillVersion) -> Query:
        return correction_for(self.session, self.definition, written).rows(found.different)

    def open_follower(self, owner: str) -> Follows:
        return self.session.follower(self.definition, owner)

    def _found(self, written: BackfillVersion, snapshot: int | None) -> Found:
        pipeline, reached = self.definition, in_range(*self.reached)
        correction = correction_for(self.session, pipeline, written)
        computed = self.answering.batch(self._placed(written.epoch), reached)
        ledger = self.session.table(self.ledger, equal("kind", PARTIAL), snapshot)
        open_ = Rows(pipeline).within_reach(ledger, written.watermark)
        state = self.session.materialized(Query(f"SELECT * FROM ({open_}) WHERE {reached}"))
        answers = current_answers(pipeline, held_answers(self.session, pipeline))
        # In a log with retractions, a window whose records were all retracted has a state but no answer. So its
        # correction does not count as a retraction of an answer.
        without = "" if pipeline.log.signed else " OR (change = 'state' AND NOT remains)"
        found = self.count_changes(
            correction.corrected(computed, state, answers, reached, in_range(self.first, self.last)),
            changed="change IN ('changed', 'new') OR (change = 'state' AND remains)",
            untouched="change = 'same' AND computed",
            retracted=f"change = 'gone'{without}",
        )
        self.session.free(state)
        return found

    def _placed(self, epoch: int) -> Query:
        """Return a query for the records that may be in the windows of the range, each record with its windows.

        For a later stage, the records are those current answers of the previous stage that the later stage has already
        read. Corrections that the later stage will read in its next epoch are left out.
        """
        pipeline = self.definition
        if pipeline.earlier is None:
            return self.answering.placed(range_records(self.answering, *self.reached, epoch))
        since = events_in(pipeline, self.reached[0])
        return self.answering.placed(log_records.rows_of_log(self.session, pipeline.log, epoch, since))
