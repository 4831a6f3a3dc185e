"""Report each epoch of a stream to whoever watches it: a terminal, metrics, logs or lineage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.fold.fold import EpochResult
from tailrace.fold.fold_group import MissedEpoch
from tailrace.ingest.landing import LandedCounts
from tailrace.model.step.progress import Progress


@dataclass(frozen=True)
class EpochReport:
    """The report of an epoch to whoever watches: the result for each definition, and the times of the phases.

    `seconds` is from the end of the epoch before to the end of this one: `trigger`, `read` and `land` of an epoch run
    beside the other phases of the one before it, so the phases add up to more. `progress` is the log's progress, None
    for an epoch that is folded again.
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
        """Make the report of an epoch that was folded from the logs."""
        return cls(one.epoch, landed or LandedCounts(0, 0), one.folded, one.seconds, one.phases, recovered)


Watch = Callable[[EpochReport], None]
