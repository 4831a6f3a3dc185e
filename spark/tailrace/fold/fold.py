"""The interface of folds to the stream that runs them, and what a fold hands on to its readers (rules X2 and T3)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from tailrace.engines.protocol import AnySide
from tailrace.engines.spark.bundles import Bundled
from tailrace.fold.task_thread import TaskThread
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.commit.epoch_properties import EpochCommit
from tailrace.lake.commit.lease import Lease
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.definition import Definition


@dataclass
class Phases:
    """The times of an epoch's phases: seconds by the phase's name."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def end(self, name: str) -> None:
        """Add the time since the last phase's end to the phase that just ended."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


@dataclass(frozen=True)
class EpochResult:
    """The counts of an epoch for one definition: panes of a pipeline, productions of a computation.

    `timings` counts the panes by their timing, `reasons` the late records by their reason, and `unanswered` the panes
    that lack a result, with why. `open` is the number of windows open after the epoch; `generation` and
    `token` are what its commit says of its writer. `fed_back` is the number of records in flight on a computation's
    loop after the epoch, `claimed` that of the productions that another had claimed.
    """

    clock: Clock
    panes: int
    retractions: int
    late: int
    rejected: int = 0
    timings: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    open: int | None = None
    generation: int | None = None
    token: int | None = None
    productions: int = 0
    claimed: int = 0
    fed_back: int = 0
    engine: str = "spark"
    unanswered: int = 0


@dataclass(frozen=True)
class PassedEpoch:
    """An epoch as its readers take it: its records, its clock, and the bound of their watermark (rule T3).

    `onward` is that bound, in microseconds. A reader of several logs does not wait for one that is `idle`.
    """

    bundle: Bundled
    clock: Clock
    onward: int
    idle: bool = False

    @classmethod
    def of(cls, bundle: Bundled, clock: Clock, *, idle: bool = False) -> PassedEpoch:
        """Make an epoch of a log itself, whose readers have its own watermark."""
        return cls(bundle, clock, clock.watermark, idle)

    def clock_after(self, before: Clock | None) -> Clock:
        """Return the clock of a reader whose last one was `before`: it never goes back."""
        watermark, now = self.onward, self.clock.processing_time
        if before is not None:
            watermark, now = max(watermark, before.watermark), max(now, before.processing_time)
        return Clock(self.clock.epoch, watermark, now, self.clock.signals)


class FoldState(Protocol):
    """The state of a fold between two epochs."""

    @property
    def clock(self) -> Clock | None:
        """The clock of the last epoch."""


class Ledger(Protocol):
    """A ledger as its readers find it: by its name, and by its head."""

    @property
    def table(self) -> str: ...

    @property
    def head(self) -> Head: ...


class Recorded(Protocol):
    """A definition whose epochs are read again from its ledger."""

    @property
    def lease(self) -> Ledger: ...

    def passed_on_again(self, epoch: int, there: EpochCommit | None, after: int | None = None) -> PassedEpoch:
        """Return an epoch of the ledger as its readers take it; `there` is its commit, None where that is gone.

        With `after` it has the records of all epochs since that one.
        """


def passed_again(side: AnySide, epoch: int, there: EpochCommit | None, after: int | None = None) -> PassedEpoch:
    """Return an epoch of a ledger as its readers take it, by a side of its definition.

    Where its commit is gone, their watermark stays where it is until the next epoch.
    """
    records = side.passed_again(epoch, after)
    if there is None:
        return PassedEpoch(records, Clock(epoch, BEGINNING, 0), BEGINNING)
    # Where no state holds a reader back, the ledger need not record the bound of each epoch.
    free = BEGINNING if side.holds else there.clock.watermark
    return PassedEpoch(records, replace(there.clock, epoch=epoch), free if there.onward is None else there.onward)


class Fold(Protocol):
    """The running fold of one definition: epochs are staged, then published, one after the other."""

    lease: Lease
    feeds: bool

    @property
    def definition(self) -> Definition: ...

    @property
    def state(self) -> FoldState: ...

    @property
    def epoch(self) -> int:
        """The last epoch in the ledger."""

    def stage(self, passed: PassedEpoch, phases: Phases) -> EpochResult:
        """Step an epoch that was passed on, and write it to the ledger's branch."""

    def passed_on(self) -> PassedEpoch:
        """Return the staged epoch, or the last one where that is published, as its readers take it."""

    def passed_on_again(self, epoch: int, there: EpochCommit | None, after: int | None = None) -> PassedEpoch:
        """Return an epoch of the ledger as its readers take it (`Recorded`)."""

    def publish(self) -> bool:
        """Make the staged epoch visible; return False where it is to be staged again, on another state (X4)."""

    def anew(self) -> None:
        """Restore the state from the ledger; the staged epoch is not published."""

    def due(self) -> int | None:
        """Return when, in microseconds of processing time, something may happen without a record; None if never."""

    @property
    def in_flight(self) -> int:
        """The number of records in flight on a loop after the last epoch."""

    def follow(self, beside: TaskThread) -> None:
        """Have the tables that follow the ledger brought up with it."""

    def close(self) -> None:
        """Bring the tables that follow up with the ledger, and give its lease back."""

    def leave(self) -> None:
        """Let go of the fold as it is: another process has it."""
