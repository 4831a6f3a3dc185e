"""Write SQL that computes when open windows may fire without a record, and at which time they hold back later
stages.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.terms import quoted


def oldest_held(pipeline: Pipeline) -> str:
    """Return SQL for the earliest timestamp at which open windows hold back a later stage's watermark (rule T3).

    The SQL is an aggregate over the state. The timestamp is in microseconds; `tailrace.model.step.stages.watermark` is
    the reference.
    """
    stamp, terms = pipeline.stamp, []
    if pipeline.where.merges:
        own = "_old.window_end - 1L" if stamp is None else f"_old.{quoted(stamp)}"
        terms.append(f"ARRAY_MIN(TRANSFORM(predecessors, _old -> {own}))")
    if stamp is not None:
        both = ", ".join(quoted(f"{which}_{stamp}") for which in ("fired", "pending"))
        terms.append(f"LEAST({both})" if pipeline.where.merges else f"IF(settled, NULL, LEAST({both}))")
    least = f"LEAST({', '.join(terms)})" if len(terms) > 1 else terms[0]
    return f"MIN({least})"


def due_terms(now: int, delays: Iterable[int]) -> list[str]:
    """Return one aggregate per delay: the next time after `now` at which a window will have waited for this delay.

    Times and delays are in microseconds.
    """
    return [f"MIN(IF(waiting_since + {wait}L > {now}L, waiting_since + {wait}L, NULL))" for wait in delays]


def due_items(pipeline: Pipeline, now: int, delays: Iterable[int]) -> list[str]:
    """Return the aggregates over the state from which `next_due` computes the next due time after `now`.

    If the pipeline reads `Arrivals`, processing time closes windows. The next time at which a window ends or closes is
    then also a due time.
    """
    items = ["COUNT_IF(fresh > 0)", *due_terms(now, delays)]
    if pipeline.by_arrival:
        closes = f"window_end + {pipeline.lateness}L"
        items.append(f"MIN(IF(window_end > {now}L, window_end, IF({closes} > {now}L, {closes}, NULL)))")
    return items


def next_due(now: int, periods: Iterable[tuple[int, int]], count: int, *waits: int | None) -> int | None:
    """Return the first processing time after `now` at which a window may fire without a record; None if never.

    `periods` are pairs of a period and its offset, in microseconds. `count` is the number of windows with fresh
    records; if it is 0, no period makes a window fire. `waits` are the values of the aggregates from `due_items`,
    except the first aggregate, which is `count`.

    >>> next_due(70, [(60, 0)], 1, 90), next_due(70, [(60, 0)], 0), next_due(70, [], 1, None)
    (90, None, None)
    """
    ends = [(now - offset) // period * period + period + offset for period, offset in periods if count]
    return min((at for at in (*ends, *waits) if at is not None), default=None)


def holds_back(pipeline: Pipeline) -> bool:
    """Return True if open windows of this pipeline can ever hold back a later stage's watermark (rule T3)."""
    return pipeline.where.merges or pipeline.stamp is not None
