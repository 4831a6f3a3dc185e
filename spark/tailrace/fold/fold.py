"""Define an epoch's result for the stream, and the epoch that a fold passes on to its readers (rules X2 and T3)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tailrace.engines.protocol import AnySide, BundleRecords, EpochCounts
from tailrace.lake.commit.epoch_properties import EpochCommit
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING


@dataclass
class Phases:
    """The duration, in seconds, of each phase of an epoch, by the phase's name."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def end(self, name: str) -> None:
        """End a phase: add the time that has passed since the end of the previous phase to the duration of the named
        phase.
        """
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    def share(self, parts: Iterable[Phases]) -> None:
        """Divide the time that has passed since the end of the previous phase among the phases of `parts`.

        The parts may have run at the same time, so the durations of their phases are added up, and count only in
        proportion to each other.
        """
        spent = dict[str, float]()
        for part in parts:
            for name, seconds in part.seconds.items():
                spent[name] = spent.get(name, 0.0) + seconds
        now, whole = time.perf_counter(), sum(spent.values())
        if not whole:
            return
        for name, seconds in spent.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + (now - self._since) * seconds / whole
        self._since = now


@dataclass(frozen=True, kw_only=True)
class EpochResult(EpochCounts):
    """The result of an epoch for one definition: counts, the clock, the engine, and the writer of the epoch's commit.

    The writer is identified by the stream's `generation` and by the `token` of the stream's lease. `generation` and
    `token` are None for a computation, which has no generations.
    """

    clock: Clock
    generation: int | None = None
    token: int | None = None
    engine: str = "spark"

    @property
    def panes(self) -> int:
        """The number of panes that the epoch emitted, without retractions."""
        return sum(self.timings.values())


@dataclass(frozen=True)
class PassedEpoch:
    """An epoch in the form in which the readers of a fold or log receive it: records, clock and watermark limit (rule
    T3).

    `onward` is the upper limit of the readers' watermark, in microseconds. If the log is `idle`, a reader of several
    logs does not wait for it.
    """

    bundle: BundleRecords
    clock: Clock
    onward: int
    idle: bool = False

    @classmethod
    def of(cls, bundle: BundleRecords, clock: Clock, *, idle: bool = False) -> PassedEpoch:
        """Create the epoch of a landed log. The log's readers have the same watermark as the log."""
        return cls(bundle, clock, clock.watermark, idle)

    def clock_after(self, before: Clock | None) -> Clock:
        """Return the clock of a reader in this epoch. `before` is the reader's clock before the epoch; a clock never
        goes back.
        """
        watermark, now = self.onward, self.clock.processing_time
        if before is not None:
            watermark, now = max(watermark, before.watermark), max(now, before.processing_time)
        return Clock(self.clock.epoch, watermark, now, self.clock.signals)


def passed_again(side: AnySide, epoch: int, there: EpochCommit | None, after: int | None = None) -> PassedEpoch:
    """Read an epoch of a definition from the definition's ledger, in the form that the definition's readers receive.

    `side` is the `Side` that folds the definition on an engine. `there` is the epoch's commit. If `there` is None
    because the commit is gone, the readers' watermark stays as it is until the next epoch.
    """
    records = side.passed_again(epoch, after)
    if there is None:
        return PassedEpoch(records, Clock(epoch, BEGINNING, 0), BEGINNING)
    # If the definition has no state that holds back its readers' watermark, the limit of this watermark is the
    # watermark of the epoch's clock. The ledger then need not record the limit.
    free = BEGINNING if side.holds else there.clock.watermark
    return PassedEpoch(records, replace(there.clock, epoch=epoch), free if there.onward is None else there.onward)
