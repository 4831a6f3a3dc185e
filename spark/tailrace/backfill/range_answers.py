"""The answers of a definition's stages over a range of the log, each computed once for its own run and the next stage.

The records that the last stage needs are read. They include the records that earlier stages need, for a stage reaches
as far back as the stage before it, and further by its own windows.
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

    The answers of a stage that a later stage reads are kept for as long as the session is open.
    """

    def __init__(self, session: Session, pipeline: Pipeline, first: int, last: int) -> None:
        self.session, self.first, self.last = session, first, last
        self.ends = answering(session, pipeline.finished)
        self._relations: dict[tuple[str, int], Relation] = {}

    def answers(self, stage: Pipeline, epoch: int, first: int, last: int) -> Query:
        """Write the query of a stage's answers as of an epoch of the log; `[first, last)` lies in the whole range.

        Answers that a later stage reads are computed at the first call, and the process takes over what it can
        (`Answering.brought`).
        """
        one = self.ends
        while one.pipeline.name != stage.name:
            assert one.earlier is not None, f"{stage.name} is no stage up to {self.ends.pipeline.name}"
            one = one.earlier
        if one is self.ends:
            # Of windows that are wholly read or not at all, none is outside of the range.
            within = ALWAYS if reads_whole_windows(stage) else in_range(first, last)
            rows = self._read(one, epoch, first, last)
            return one.brought(rows, within)
        return Query(f"SELECT * FROM {self._all(one, epoch)} WHERE {in_range(first, last)}")

    def _read(self, stage: Answering, epoch: int, first: int, last: int) -> Relation:
        """Write the query, in brackets, of a stage's records, as far as a range of the last stage needs them."""
        if stage.earlier is None:
            return range_records(self.ends, first, last, epoch)
        return stage.changed(all_of(self._all(stage.earlier, epoch)))

    def _all(self, stage: Answering, epoch: int) -> Relation:
        """Return a relation of all answers of a stage in the whole range, computed once for each epoch."""
        at = stage.pipeline.name, epoch
        if at not in self._relations:
            rows = self._read(stage, epoch, self.first, self.last)
            self._relations[at] = self.session.materialized(stage.brought(rows))
        return self._relations[at]


def range_records(answering: Answering, first: int, last: int, epoch: int) -> Relation:
    """Write the query, in brackets, of the log's records up to an epoch that windows of `[first, last)` may hold.

    The range is of window timestamps, in microseconds (rule V5).
    """
    pipeline = answering.pipeline
    log = pipeline.stages[0].log
    since, until = events_from(pipeline, first), events_until(pipeline, last)
    if pipeline.where.merges and since is not None:
        since = _reached_back(answering, first, epoch)
    return log_records.rows_of_log(answering.session, log, epoch, since, until)


def _reached_back(answering: Answering, first: int, epoch: int) -> int:
    """Find an event time, in microseconds, before which no session that ends after `first` begins.

    The span that is searched doubles until no such session begins within a gap of the span's start. The span ends a gap
    after `first`: a session that goes on beyond it has a window in the span that ends after `first`, too.
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
