"""Find the log's records that a range of window timestamps needs, as of an epoch (rule V5)."""

from __future__ import annotations

from tailrace.engines.batch import log_records
from tailrace.engines.batch.batch_answers import Answering
from tailrace.model.base.time import instant
from tailrace.sql.results.answers import events_from, events_until
from tailrace.sql.terms import Condition, Query, Relation


def records(answering: Answering, first: int, last: int, epoch: int) -> Relation:
    """Write the query, in brackets, of the log's records up to an epoch that windows of `[first, last)` may hold.

    The range is of window timestamps, in microseconds.
    """
    pipeline = answering.pipeline
    log = pipeline.stages[0].log
    since, until = events_from(pipeline, first), events_until(pipeline, last)
    if pipeline.where.merges and since is not None:
        since = _reached_back(answering, first, epoch)
    return log_records.records(answering.session, log, epoch, since, until)


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
        span = log_records.records(answering.session, pipeline.stages[0].log, epoch, since, first + gap)
        edge = Condition(f"window_end > {first}L AND window_start < {since + gap}L")
        if not answering.session.rows(Query(f"{answering.batch(answering.assigned(span), edge)} LIMIT 1")):
            break
        back *= 2
    return since
