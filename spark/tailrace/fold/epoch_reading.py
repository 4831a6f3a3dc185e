"""Provide the records of an epoch to folds, while the epoch is being landed, or later from the tables (rule T2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tailrace.fold.fold import PassedEpoch, passed_again
from tailrace.fold.fold_engines import StreamEngines
from tailrace.fold.ledger_fold import LedgerFold
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import Head
from tailrace.lake.commit.epoch_properties import EpochCommit, epoch_commits
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.derived_logs import Arrivals, Panes, Productions, Union
from tailrace.model.logs.log import Log


class Recordings:
    """The commits of epochs in logs and ledgers. The commits of a table are read when they are needed for the first
    time.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake, self._found = lake, dict[str, dict[int, EpochCommit]]()
        self._epochs = dict[str, list[int]]()

    def of(self, table: str) -> dict[int, EpochCommit]:
        """Return a mapping from each epoch of a table to its commit."""
        if table not in self._found:
            self._found[table] = epoch_commits(self._lake, table)
            self._epochs[table] = sorted(self._found[table])
        return self._found[table]

    def latest(self, table: str, epoch: int) -> EpochCommit | None:
        """Return a table's last commit with an epoch up to `epoch`, or None if the table has no such commit any
        more.
        """
        found = self.of(table)
        place = bisect_right(self._epochs[table], epoch)
        return found[self._epochs[table][place - 1]] if place else None


@dataclass(frozen=True)
class ReadLedger:
    """A ledger that this process only reads. The process has no lease on the ledger, and another process writes to
    it.
    """

    lake: Lake
    table: str

    @property
    def head(self) -> Head:
        return self.lake.head(self.table)


class LedgerReading:
    """A definition that another process folds. This process reads the definition's epochs from its ledger."""

    def __init__(self, lake: Lake, definition: Definition, engines: StreamEngines) -> None:
        self.lease, self.side = ReadLedger(lake, ledger_name(definition.name)), engines.beside(definition, ())

    def passed_on_again(self, epoch: int, there: EpochCommit | None, after: int | None = None) -> PassedEpoch:
        """Return an epoch from the ledger, for the readers of this definition (`fold.passed_again`)."""
        return passed_again(self.side, epoch, there, after)

    def close(self) -> None:
        self.side.close()


class EpochReading(ABC):
    """One epoch, with the records of each log in the form in which folds read them."""

    def __init__(self, engines: StreamEngines) -> None:
        self._engines = engines

    def of(self, log: Log) -> PassedEpoch:
        """Return the epoch of a log. If the log is a union, the epochs of its member logs are combined into one
        epoch.
        """
        if isinstance(log, Union):
            return self._engines.together(log, {member: self._part(part) for member, part in log.members.items()})
        return self._part(log)

    @abstractmethod
    def _part(self, log: Log) -> PassedEpoch:
        """Return the epoch of a log that is not a union."""


class LandingEpoch(EpochReading):
    """An epoch that is being landed; `landed` maps each log's name to the log's epoch.

    `logs` has the logs as they are landed. A definition may declare fewer columns of a log, and then reads no others.
    When a fold reads the epoch, all folds that run earlier in the epoch have already staged their output.
    """

    def __init__(
        self,
        engines: StreamEngines,
        folds: Mapping[str, LedgerFold],
        landed: Mapping[str, PassedEpoch],
        logs: Mapping[str, Log],
    ) -> None:
        super().__init__(engines)
        self._folds, self._landed, self._logs = folds, landed, logs
        self._narrow = dict[tuple[str, ...], PassedEpoch]()

    def _part(self, log: Log) -> PassedEpoch:
        if isinstance(log, Panes | Productions):
            return self._folds[log.of.name].passed_on()
        if isinstance(log, Arrivals):
            return self._engines.arrived(log, self._part(log.of))
        others = [name for name in self._logs[log.name].columns if name not in log.columns]
        passed = self._landed[log.name]
        if not others:
            return passed
        # Definitions that declare the same columns read the same bundle, so that they can share what they compute.
        width = (log.name, *sorted(others))
        if width not in self._narrow:
            self._narrow[width] = self._engines.without(passed, others)
        return self._narrow[width]


class RecordedEpoch(EpochReading):
    """An epoch that is already in the tables: records come from logs, and the output of folds comes from their ledgers.

    The object contains the records of the epochs from `after` + 1 to `epoch`. Normally `after` is the previous epoch;
    `after` is smaller if several epochs are folded as one.
    """

    def __init__(
        self,
        engines: StreamEngines,
        folds: Mapping[str, LedgerFold | LedgerReading],
        recordings: Recordings,
        epoch: int,
        after: int,
    ) -> None:
        super().__init__(engines)
        self._folds, self._recordings = folds, recordings
        self._epoch, self._after = epoch, after
        self._found = dict[tuple[str, ...], PassedEpoch]()

    def _part(self, log: Log) -> PassedEpoch:
        if isinstance(log, Arrivals):
            known, taken = self._recordings.of(log.of.name), range(self._after + 1, self._epoch + 1)
            times = {epoch: known[epoch].clock.processing_time for epoch in taken if epoch in known}
            return self._engines.arrived(log, self._part(log.of), times)
        if isinstance(log, Panes | Productions):
            return self._of_fold(self._folds[log.of.name])
        width = (log.name, *log.columns)
        if width not in self._found:
            self._found[width] = self._landed(log)
        return self._found[width]

    def _of_fold(self, fold: LedgerFold | LedgerReading) -> PassedEpoch:
        now = EpochCommit.of(fold.lease.head.properties)
        ahead = now.clock.epoch > self._epoch
        return fold.passed_on_again(
            self._epoch, self._recordings.of(fold.lease.table).get(self._epoch) if ahead else now, self._after
        )

    def _landed(self, log: Log) -> PassedEpoch:
        """Read the epoch of a log that is filled from a source.

        If the log has no commit of the epoch, the log's clock does not advance in the epoch.
        """
        bundle, there = (
            self._engines.read(log, self._after, self._epoch),
            self._recordings.latest(log.name, self._epoch),
        )
        if there is None:
            return PassedEpoch.of(bundle, Clock(self._epoch, BEGINNING, BEGINNING))
        signals = there.clock.signals if there.clock.epoch == self._epoch else ()
        return PassedEpoch.of(bundle, replace(there.clock, epoch=self._epoch, signals=signals), idle=there.idle)
