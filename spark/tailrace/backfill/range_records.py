"""Find the log's records that a range of window timestamps needs, as of an epoch (rule V5)."""

from __future__ import annotations

from tailrace.engines.batch import log_records
from tailrace.engines.batch.batch_answers import Answering
from tailrace.model.base.time import instant
from tailrace.sql.results.answers import events_from, events_until


def records(answering: Answering, first: int, last: int, epoch: int) -> str:
    """The log's records that windows of the range `[first, last)` may hold, up to an epoch, as a query in brackets."""
    pipeline = answering.pipeline
    log = pipeline.stages[0].log
    since, until = events_from(pipeline, first), events_until(pipeline, last)
    if pipeline.where.merges and since is not None:
        since = _reached_back(answering, first, epoch)
    return log_records.records(answering.session, log, epoch, since, until)


def _reached_back(answering: Answering, first: int, epoch: int) -> int:
    """How far back sessions reach that end at `first` or later, in microseconds.

    The span that is looked at doubles until no session that ends so late begins within a gap of its edge. It ends a gap
    after `first`: a session that goes on from there has a window in the span that ends after `first`, too.
    """
    pipeline = answering.pipeline
    log, where = pipeline.log, pipeline.where
    gap = where.reach
    earliest, back = instant(log.earliest), 4 * gap
    since = first
    while since > earliest:
        since = max(earliest, first - back)
        span = log_records.records(answering.session, pipeline.stages[0].log, epoch, since, first + gap)
        edge = f"window_end > {first}L AND window_start < {since + gap}L"
        if not answering.session.rows(f"{answering.batch(answering.assigned(span), edge)} LIMIT 1"):
            break
        back *= 2
    return since
