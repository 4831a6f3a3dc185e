"""The results of backfills, and their error."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.engines.choose import EngineChoice
from tailrace.lake.catalog.run import Run
from tailrace.model.base.errors import TailraceError


class BackfillError(TailraceError, RuntimeError):
    """A backfill that cannot be done, or not yet; nothing was changed."""


@dataclass(frozen=True)
class Backfilled:
    """The result of a run: how many windows it fired (again or for the first time), left alone, and only retracted.

    Windows still open of which only the state was corrected count as changed, too. `gave_way` is the run that this one
    gave way to.
    """

    run: Run
    changed: int
    untouched: int
    retracted: int
    seconds: float
    engine: EngineChoice
    gave_way: Run | None = None
