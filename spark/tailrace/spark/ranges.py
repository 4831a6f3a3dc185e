"""What the log holds for a range of window timestamps, as of an epoch (rule V5)."""

from __future__ import annotations

from tailrace.lake.catalog import Lake
from tailrace.model.time import instant
from tailrace.spark.answering import Answering
from tailrace.spark.computing import relation
from tailrace.sql.algebra import quoted
from tailrace.sql.answers import events_from, events_until


def stamp(micros: int) -> str:
    """An instant in microseconds, as SQL."""
    return f"TIMESTAMP_MICROS({micros}L)"


def records(lake: Lake, answering: Answering, first: int, last: int, epoch: int) -> str:
    """The log's records that windows of the range `[first, last)` may hold, up to an epoch, as a query in brackets."""
    pipeline = answering.pipeline
    log = pipeline.stages[0].log
    since, until = events_from(pipeline, first), events_until(pipeline, last)
    if pipeline.where.merges and since is not None:
        since = _reached_back(lake, answering, first, epoch)
    bounds = [f"_epoch <= {epoch}L"]
    if since is not None:
        bounds.append(f"{quoted(log.event_time)} >= {stamp(since)}")
    if until is not None:
        bounds.append(f"{quoted(log.event_time)} < {stamp(until)}")
    return f"(SELECT * FROM {relation(lake, log)} WHERE {' AND '.join(bounds)})"


def _reached_back(lake: Lake, answering: Answering, first: int, epoch: int) -> int:
    """How far back sessions reach that end at `first` or later, in microseconds.

    The span that is looked at doubles until no session that ends so late begins within a gap of its edge. It ends a gap
    after `first`: a session that goes on from there has a window in the span that ends after `first`, too.
    """
    pipeline = answering.pipeline
    log, where = pipeline.log, pipeline.where
    table, gap = relation(lake, pipeline.stages[0].log), where.reach
    earliest, back = instant(log.earliest), 4 * gap
    since = first
    while since > earliest:
        since = max(earliest, first - back)
        bounds = f"_epoch <= {epoch}L AND {quoted(log.event_time)} >= {stamp(since)} "
        bounds += f"AND {quoted(log.event_time)} < {stamp(first + gap)}"
        rows = answering.assigned(f"(SELECT * FROM {table} WHERE {bounds})")
        edge = f"window_end > {first}L AND window_start < {since + gap}L"
        if not answering.spark.sql(f"{answering.batch(rows, edge)} LIMIT 1").collect():
            break
        back *= 2
    return since
