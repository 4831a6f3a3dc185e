"""What a stream asks of the folds that it runs, and what a fold hands on to those that read it (rules X2 and T3)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tailrace.engines.spark.side import Bundled
from tailrace.fold.task_thread import Worker
from tailrace.lake.commit.epoch_properties import EpochCommit
from tailrace.lake.commit.lease import Lease
from tailrace.model.base.clock import Clock
from tailrace.model.definition.chain import Definition


@dataclass
class Phases:
    """Where the time of an epoch goes: seconds by the phase's name."""

    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def end(self, name: str) -> None:
        """The phase that just ended."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


@dataclass(frozen=True)
class EpochResult:
    """Count what came of an epoch for one definition: panes of a pipeline, productions of a computation.

    `timings` counts the panes by their timing, `reasons` the late records by why they were too late. `open` is how many
    windows are open after it; `generation` and `token` are what its commit says of its writer. `fed_back` is how many
    records are in flight on the loop of a computation after it, `claimed` what it would have produced but another had.
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


@dataclass(frozen=True)
class Passed:
    """Hand an epoch on to those who read it: its records, its clock, and how far their watermark may go (rule T3)."""

    bundle: Bundled
    clock: Clock
    onward: int

    def clock_after(self, before: Clock | None) -> Clock:
        """The clock of the one that takes them, which had `before`: it never goes back."""
        watermark, now = self.onward, self.clock.processing_time
        if before is not None:
            watermark, now = max(watermark, before.watermark), max(now, before.processing_time)
        return Clock(self.clock.epoch, watermark, now, self.clock.signals)


class State(Protocol):
    """What a fold keeps between two epochs."""

    @property
    def clock(self) -> Clock | None:
        """The clock of the last epoch."""


class Fold(Protocol):
    """The running fold of one definition: epochs are staged, then published, one after the other."""

    lease: Lease
    feeds: bool

    @property
    def definition(self) -> Definition: ...

    @property
    def state(self) -> State: ...

    @property
    def epoch(self) -> int:
        """The last epoch in the ledger."""

    def stage(self, bundle: Bundled, clock: Clock, phases: Phases) -> EpochResult:
        """Step the epoch of `clock` and write it to the ledger's branch."""

    def stage_after(self, earlier: Fold, phases: Phases) -> EpochResult:
        """Step the epoch that the one before it has staged."""

    def stage_again(self, epoch: int, earlier: Fold, there: EpochCommit | None, phases: Phases) -> EpochResult:
        """Step an epoch that the ledger of the one before it has: `there` is its commit, None where that is gone."""

    def passed_on(self) -> Passed:
        """What the staged epoch has for those who read it."""

    def passed_on_again(self, epoch: int, there: EpochCommit | None) -> Passed:
        """Give an epoch of the ledger to those who read it; `there` is its commit, None where that is gone."""

    def publish(self) -> bool:
        """Make the staged epoch visible; gives False where it is to be staged again, on another state (X4)."""

    def anew(self) -> None:
        """Go on from what the ledger has; what was staged is not published."""

    def due(self) -> int | None:
        """The processing time at which something may happen without a record, in microseconds; None if nothing may."""

    @property
    def in_flight(self) -> int:
        """How many records are in flight on a loop after the last epoch."""

    def follow(self, beside: Worker) -> None:
        """Have what follows the ledger brought up with it."""

    def close(self) -> None:
        """Bring everything up with the ledger, and let go of it."""

    def leave(self) -> None:
        """Let go of it as it is: another process has it."""
