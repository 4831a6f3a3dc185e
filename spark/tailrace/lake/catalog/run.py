"""Define a run, such as a backfill. Several rows in the table of runs describe a run; only the latest row counts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Run:
    """A run of a definition, such as a backfill or a restore, over a range of window timestamps.

    The range begins at `first` and ends before `last`; both are in microseconds. `inputs` states which runs of the
    input definitions this run has taken into account (`commit.run_inputs`).
    """

    run: str
    kind: str
    status: str
    generation: int
    first: int
    last: int
    fingerprint: str
    log_epoch: int | None = None
    changed: int | None = None
    untouched: int | None = None
    retracted: int | None = None
    reason: str | None = None
    engine: str | None = None
    inputs: str | None = None
    at: datetime | None = None

    def overlaps(self, first: int, last: int) -> bool:
        """Return True if the run's range overlaps the range that begins at `first` and ends before `last`."""
        return self.first < last and first < self.last

    def covers(self, first: int, last: int) -> bool:
        """Return True if the run's range covers the whole range that begins at `first` and ends before `last`."""
        return self.first <= first and last <= self.last
