"""Read an epoch as folds read it: as it is being landed, or again from the tables, to catch up (rule T2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace

from tailrace.fold.fold import Fold, PassedEpoch, Recorded
from tailrace.fold.fold_engines import StreamEngines
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import EpochCommit, epoch_commits
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, Union
from tailrace.model.logs.log import Log


class Recordings:
    """Looks up the commits of epochs in logs and ledgers; a table is read when it is first asked for."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._found = lake, dict[str, dict[int, EpochCommit]]()
        self._epochs = dict[str, list[int]]()

    def of(self, table: str) -> dict[int, EpochCommit]:
        """Return the epochs of a table, each with its commit."""
        if table not in self._found:
            self._found[table] = epoch_commits(self._lake, table)
            self._epochs[table] = sorted(self._found[table])
        return self._found[table]

    def latest(self, table: str, epoch: int) -> EpochCommit | None:
        """Return the last commit of a table up to an epoch; None where there is none, or it is gone."""
        found = self.of(table)
        place = bisect_right(self._epochs[table], epoch)
        return found[self._epochs[table][place - 1]] if place else None


class EpochReading(ABC):
    """An epoch as folds read it, by the logs of their definitions."""

    def __init__(self, engines: StreamEngines) -> None:
        self._engines = engines

    def of(self, log: Log) -> PassedEpoch:
        """Return the epoch of a log; the epoch of a union is put together of its parts."""
        if isinstance(log, Union):
            return self._engines.together(log, {member: self._part(part) for member, part in log.members.items()})
        return self._part(log)

    @abstractmethod
    def _part(self, log: Log) -> PassedEpoch:
        """Return the epoch of a log that is no union."""


class LandingEpoch(EpochReading):
    """An epoch that is being landed: `landed` has it by the logs' names, and earlier folds have staged their output."""

    def __init__(self, engines: StreamEngines, folds: Mapping[str, Fold], landed: Mapping[str, PassedEpoch]) -> None:
        super().__init__(engines)
        self._folds, self._landed = folds, landed

    def _part(self, log: Log) -> PassedEpoch:
        if isinstance(log, Panes | Productions):
            return self._folds[log.of.name].passed_on()
        if isinstance(log, Arrivals):
            return self._engines.arrived(log, self._landed[log.of.name])
        return self._landed[log.name]


class RecordedEpoch(EpochReading):
    """An epoch as the tables have it: the records of logs, and the output of folds in their ledgers.

    It has the records after epoch `after`, which is the one before unless several epochs are taken in one.
    """

    def __init__(
        self, engines: StreamEngines, folds: Mapping[str, Recorded], recordings: Recordings, epoch: int, after: int
    ) -> None:
        super().__init__(engines)
        self._folds, self._recordings = folds, recordings
        self._epoch, self._after = epoch, after
        self._found = dict[str, PassedEpoch]()

    def _part(self, log: Log) -> PassedEpoch:
        if isinstance(log, Arrivals):
            known, taken = self._recordings.of(log.of.name), range(self._after + 1, self._epoch + 1)
            times = {epoch: known[epoch].clock.processing_time for epoch in taken if epoch in known}
            return self._engines.arrived(log, self._part(log.of), times)
        if isinstance(log, Panes | Productions):
            return self._of_fold(self._folds[log.of.name])
        if log.name not in self._found:
            self._found[log.name] = self._landed(log)
        return self._found[log.name]

    def _of_fold(self, fold: Recorded) -> PassedEpoch:
        now = EpochCommit.of(fold.lease.head.properties)
        ahead = now.clock.epoch > self._epoch
        return fold.passed_on_again(
            self._epoch, self._recordings.of(fold.lease.table).get(self._epoch) if ahead else now, self._after
        )

    def _landed(self, log: Log) -> PassedEpoch:
        """Read the epoch of a log that a source fills; where the log has no commit of it, time stands still."""
        bundle, there = (
            self._engines.read(log, self._after, self._epoch),
            self._recordings.latest(log.name, self._epoch),
        )
        if there is None:
            return PassedEpoch.of(bundle, Clock(self._epoch, BEGINNING, BEGINNING))
        signals = there.clock.signals if there.clock.epoch == self._epoch else ()
        return PassedEpoch.of(bundle, replace(there.clock, epoch=self._epoch, signals=signals), idle=there.idle)
