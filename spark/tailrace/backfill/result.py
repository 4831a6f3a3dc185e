"""The results of backfills, and the error that backfills raise."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.engines.choose import EngineChoice
from tailrace.lake.catalog.run import Run
from tailrace.model.base.errors import TailraceError


class BackfillError(TailraceError, RuntimeError):
    """A backfill is impossible, or not possible yet; nothing was changed."""


@dataclass(frozen=True)
class Backfilled:
    """The result of a run: how many windows it fired (again or for the first time), left untouched, or only retracted.

    Open windows for which only the state was corrected also count as changed. `gave_way` is the run to which this run
    gave way.
    """

    run: Run
    changed: int
    untouched: int
    retracted: int
    seconds: float
    engine: EngineChoice
    gave_way: Run | None = None
