"""Reports of a stream's epochs to the observers of the stream: a terminal, metrics, logs or lineage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.fold.fold import EpochResult
from tailrace.fold.fold_group import MissedEpoch
from tailrace.ingest.row_landing import LandedCounts
from tailrace.model.step.progress import Progress


@dataclass(frozen=True)
class EpochReport:
    """A report of an epoch for the stream's observers: the results of all definitions, and the times of the phases.

    `seconds` is the time from the end of the preceding epoch to the end of this epoch. The phases `trigger`, `read` and
    `land` run at the same time as other phases of the preceding epoch, so the sum of all phases may be larger than
    `seconds`. `progress` is the progress of the logs; it is None for an epoch that was folded from the logs.
    """

    epoch: int
    landed: LandedCounts
    folded: dict[str, EpochResult]
    seconds: float
    phases: dict[str, float]
    recovered: bool = False
    progress: Progress | None = None

    @classmethod
    def of_missed(cls, one: MissedEpoch, landed: LandedCounts | None = None, *, recovered: bool = True) -> EpochReport:
        """Build the report for an epoch that was folded from the logs."""
        return cls(one.epoch, landed or LandedCounts(0, 0), one.folded, one.seconds, one.phases, recovered)


Watch = Callable[[EpochReport], None]
