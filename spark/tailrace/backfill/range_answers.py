"""The answers of a definition's stages over a range of the log; the answers of each stage are computed only once.

A stage's answers are used by the backfill run of this stage and by the next stage. This module reads only the records
that the last stage needs. These records include all records that the earlier stages need, because each stage needs
records from at least as far back in event time as the previous stage.
"""

from __future__ import annotations

from tailrace.engines import log_records
from tailrace.engines.batch.batch_answers import Answering, answering
from tailrace.engines.session_protocol import Session
from tailrace.model.base.time import instant
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.results.answers import events_from, events_until, in_range, reads_whole_windows
from tailrace.sql.terms import ALWAYS, Condition, Query, Relation, all_of


class RangeAnswers:
    """The answers of the stages up to `pipeline` over the range `[first, last)` of window timestamps, in microseconds.

    If a later stage reads the answers of a stage, these answers stay materialized until the session is closed.
    """

    def __init__(self, session: Session, pipeline: Pipeline, first: int, last: int) -> None:
        self.session, self.first, self.last = session, first, last
        self.ends = answering(session, pipeline.finished)
        self._relations: dict[tuple[str, int], Relation] = {}

    def answers(self, stage: Pipeline, epoch: int, first: int, last: int) -> Query:
        """Return a query for a stage's answers at an epoch of the log; `[first, last)` must lie within this object's
        range.

        Answers that a later stage reads are computed at the first call. A result that is small enough is fetched from
        the engine into this Python process (`Answering.brought`).
        """
        one = self.ends
        while one.pipeline.name != stage.name:
            assert one.earlier is not None, f"{stage.name} is no stage up to {self.ends.pipeline.name}"
            one = one.earlier
        if one is self.ends:
            # If every window is either read completely or not at all, no window is outside of the range, and no filter
            # is needed.
            within = ALWAYS if reads_whole_windows(stage) else in_range(first, last)
            rows = self._read(one, epoch, first, last)
            return one.brought(rows, within)
        return Query(f"SELECT * FROM {self._all(one, epoch)} WHERE {in_range(first, last)}")

    def _read(self, stage: Answering, epoch: int, first: int, last: int) -> Relation:
        """Return a parenthesized query for those input records of a stage that are needed for a range of the last
        stage.
        """
        if stage.earlier is None:
            return range_records(self.ends, first, last, epoch)
        return stage.changed(all_of(self._all(stage.earlier, epoch)))

    def _all(self, stage: Answering, epoch: int) -> Relation:
        """Return a relation of all answers of a stage in the whole range, computed only once for each epoch."""
        at = stage.pipeline.name, epoch
        if at not in self._relations:
            rows = self._read(stage, epoch, self.first, self.last)
            self._relations[at] = self.session.materialized(stage.brought(rows))
        return self._relations[at]


def range_records(answering: Answering, first: int, last: int, epoch: int) -> Relation:
    """Return a parenthesized query for the log's records, up to an epoch, that windows of `[first, last)` may contain.

    `first` and `last` are window timestamps, in microseconds (rule V5).
    """
    pipeline = answering.pipeline
    log = pipeline.stages[0].log
    since, until = events_from(pipeline, first), events_until(pipeline, last)
    if pipeline.where.merges and since is not None:
        since = _reached_back(answering, first, epoch)
    return log_records.rows_of_log(answering.session, log, epoch, since, until)


def _reached_back(answering: Answering, first: int, epoch: int) -> int:
    """Return a lower bound, in microseconds, for the start times of all sessions that end after `first`.

    The function searches a span of event time that ends one gap after `first`. The start of the span is moved backwards
    as long as a session that ends after `first` begins within one gap of the span's start. If a session continues
    beyond the end of the span, its part in the span also ends after `first`.
    """
    pipeline = answering.pipeline
    log, where = pipeline.log, pipeline.where
    gap = where.reach
    earliest, back = instant(log.earliest), 4 * gap
    since = first
    while since > earliest:
        since = max(earliest, first - back)
        span = log_records.rows_of_log(answering.session, pipeline.stages[0].log, epoch, since, first + gap)
        edge = Condition(f"window_end > {first}L AND window_start < {since + gap}L")
        if not answering.session.rows(Query(f"{answering.batch(answering.assigned(span), edge)} LIMIT 1")):
            break
        back *= 2
    return since
