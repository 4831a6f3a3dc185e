"""Define the results of backfills, and the error that backfills raise."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.engines.choose import EngineChoice
from tailrace.lake.catalog.run import Run
from tailrace.model.base.errors import TailraceError


class BackfillError(TailraceError, RuntimeError):
    """The error for a backfill that is impossible, or that is not possible yet.

    A backfill that raises this error has changed nothing.
    """


@dataclass(frozen=True)
class Backfilled:
    """The result of a backfill run: the numbers of windows or rows that it changed, left untouched, or retracted.

    A window counts as `changed` if it fired, for the first time or again. An open window also counts as `changed` if
    only its state was corrected. A window counts as `retracted` if it has no answer any more. If this run changed
    nothing because a run of a higher generation covers its range, `gave_way` is that other run; otherwise, it is None.
    """

    run: Run
    changed: int
    untouched: int
    retracted: int
    seconds: float
    engine: EngineChoice
    gave_way: Run | None = None
