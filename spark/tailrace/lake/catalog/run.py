"""Define a run over a range of event time, as in its latest row in the table of runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Run:
    """A run over the half-open range of window timestamps from `first` to `last`, in microseconds.

    `inputs` says which runs of its input definitions the run has seen (`commit.run_inputs`).
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
        """Tell whether the run computed any part of this range."""
        return self.first < last and first < self.last

    def covers(self, first: int, last: int) -> bool:
        """Tell whether the run computed all of this range."""
        return self.first <= first and last <= self.last
