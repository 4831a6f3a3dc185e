"""Define a run over a range of event time. A run is read from its latest row in the table of runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Run:
    """A run over a range of window timestamps, in microseconds: from `first` up to, but not including, `last`.

    `inputs` states which runs of the input definitions this run has taken into account (`commit.run_inputs`).
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
        """Return True if the run's range overlaps the range from `first` to `last`."""
        return self.first < last and first < self.last

    def covers(self, first: int, last: int) -> bool:
        """Return True if the run's range covers the whole range from `first` to `last`."""
        return self.first <= first and last <= self.last
