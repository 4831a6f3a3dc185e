"""The result of an epoch for the stream, and the epoch that a fold hands on to its readers (rules X2 and T3)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from tailrace.engines.protocol import AnySide, BundleRecords, EpochCounts
from tailrace.lake.commit.epoch_properties import EpochCommit
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING


@dataclass
class Phases:
    """The seconds of an epoch's phases, by name."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def end(self, name: str) -> None:
        """Add the time since the end of the last phase to the phase that ends now."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


@dataclass(frozen=True, kw_only=True)
class EpochResult(EpochCounts):
    """The result of an epoch for one definition: its counts, clock and engine, and the writer of its commit.

    The writer is the stream's `generation` and the `token` of its lease; None for a computation, which has no
    generations.
    """

    clock: Clock
    generation: int | None = None
    token: int | None = None
    engine: str = "spark"

    @property
    def panes(self) -> int:
        """The number of panes, without retractions."""
        return sum(self.timings.values())


@dataclass(frozen=True)
class PassedEpoch:
    """An epoch for its readers: the records, the clock, and the bound of the readers' watermark (rule T3).

    `onward` is that bound, in microseconds. A reader of several logs does not wait for an `idle` log.
    """

    bundle: BundleRecords
    clock: Clock
    onward: int
    idle: bool = False

    @classmethod
    def of(cls, bundle: BundleRecords, clock: Clock, *, idle: bool = False) -> PassedEpoch:
        """Make an epoch of a landed log, whose readers have the watermark of the log."""
        return cls(bundle, clock, clock.watermark, idle)

    def clock_after(self, before: Clock | None) -> Clock:
        """Return the clock of a reader after its clock `before`: it never goes back."""
        watermark, now = self.onward, self.clock.processing_time
        if before is not None:
            watermark, now = max(watermark, before.watermark), max(now, before.processing_time)
        return Clock(self.clock.epoch, watermark, now, self.clock.signals)


def passed_again(side: AnySide, epoch: int, there: EpochCommit | None, after: int | None = None) -> PassedEpoch:
    """Return an epoch of a ledger for its readers, by a side of its definition.

    Where its commit is gone, the readers' watermark stays until the next epoch.
    """
    records = side.passed_again(epoch, after)
    if there is None:
        return PassedEpoch(records, Clock(epoch, BEGINNING, 0), BEGINNING)
    # Where no state holds readers back, the ledger need not have the bound of each epoch.
    free = BEGINNING if side.holds else there.clock.watermark
    return PassedEpoch(records, replace(there.clock, epoch=epoch), free if there.onward is None else there.onward)
