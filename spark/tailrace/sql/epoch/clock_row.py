"""Write the clock of an epoch in SQL, as a table of one row; a query joins this row to every window."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.step.transition import Times
from tailrace.sql.terms import Query

TIMES = ["watermark_before", "watermark_after", "before", "now", "epoch", "new_generation"]
"""The columns of the clock's row: four instants in microseconds, the epoch's number, and the stream's generation."""


def clock_columns(pipeline: Pipeline) -> list[str]:
    """Return the columns of the clock's row: `TIMES`, and one column per signal of the trigger.

    The column of a signal is true if the signal arrived in the epoch.
    """
    return [*TIMES, *(f"signal_{name}" for name in sorted(pipeline.when.signals()))]


def clock_terms(pipeline: Pipeline) -> Times:
    """Return the columns of the clock's row as the SQL expressions to which the rules of `model.step.transition`
    apply.
    """
    signals = {name: f"signal_{name}" for name in pipeline.when.signals()}
    return Times("watermark_before", "watermark_after", "before", "now", signals)


def clock_values(pipeline: Pipeline, before: Clock | None, clock: Clock, generation: int) -> dict[str, int | bool]:
    """Return a dict that maps the columns of the clock's row to their values.

    `clock` is the clock of the epoch, and `before` is the clock of the previous epoch.
    """
    times = Times.of(pipeline, before, clock)
    numbers = (times.watermark_before, times.watermark, times.before, times.now, clock.epoch, generation)
    return dict(zip(TIMES, numbers, strict=True)) | {f"signal_{name}": came for name, came in times.signals.items()}


def clock_row(pipeline: Pipeline, before: Clock | None, clock: Clock, generation: int) -> Query:
    """Return the query for the clock's row.

    `clock` is the clock of the epoch, and `before` is the clock of the previous epoch.
    """
    return row_of(clock_values(pipeline, before, clock, generation))


def row_of(values: Mapping[str, int | bool]) -> Query:
    """Return the query for a table of one row with the given values.

    The step's query reads the values from this table. If the values were literals in the step's query, Spark would
    compile that query again in every epoch.
    """
    terms = [str(value).lower() if isinstance(value, bool) else f"{value}L" for value in values.values()]
    return Query(f"SELECT * FROM VALUES ({', '.join(terms)}) AS clock({', '.join(values)})")
