"""What open windows wait for, in SQL: the watermark that they hold back, and when one may fire without a record."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.model.pipeline import Pipeline
from tailrace.sql.algebra import quoted


def oldest_held(pipeline: Pipeline) -> str:
    """Write the oldest timestamp that open windows hold for a later stage (rule T3), as an aggregate of the state.

    As `tailrace.model.stages.watermark` has it, in microseconds.
    """
    stamp, terms = pipeline.stamp, []
    if pipeline.where.merges:
        own = "old.window_end - 1L" if stamp is None else f"old.{quoted(stamp)}"
        terms.append(f"ARRAY_MIN(TRANSFORM(predecessors, old -> {own}))")
    if stamp is not None:
        both = ", ".join(quoted(f"{which}_{stamp}") for which in ("fired", "pending"))
        terms.append(f"LEAST({both})" if pipeline.where.merges else f"IF(settled, NULL, LEAST({both}))")
    least = f"LEAST({', '.join(terms)})" if len(terms) > 1 else terms[0]
    return f"MIN({least})"


def due_terms(now: int, delays: Iterable[int]) -> list[str]:
    """Write when windows with fresh records have waited long enough, for each delay, as aggregates of the state."""
    return [f"MIN(IF(waiting_since + {wait}L > {now}L, waiting_since + {wait}L, NULL))" for wait in delays]
