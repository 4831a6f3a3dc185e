"""Run all folds of a process on each epoch of the logs; each fold runs after the folds whose output it reads.

If another process takes the lease of one ledger, the stream drops this ledger's fold and the folds that read it, and
continues with the other folds. So definitions can be added, changed and removed while a stream runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tailrace.engines.protocol import BundleRecords
from tailrace.fold.answer_updates import AnswerUpdates
from tailrace.fold.epoch_reading import EpochReading, LandingEpoch, LedgerReading, RecordedEpoch, Recordings
from tailrace.fold.fold import EpochResult, PassedEpoch, Phases
from tailrace.fold.fold_engines import StreamEngines
from tailrace.fold.fold_kinds import fold_of
from tailrace.fold.follower_pace import Pace
from tailrace.fold.ledger_fold import FoldSetup, LedgerFold
from tailrace.fold.side_by_side import SideBySide, in_waves
from tailrace.fold.streamed_definitions import landed_logs, reads_log, stages_of
from tailrace.lake.catalog.events import DefinitionDropped
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.lease import LANDING, Lease
from tailrace.lake.commit.trimming import ledger_trimming
from tailrace.lake.schema.lake_errors import FencedError, LakeError, LentError
from tailrace.lake.upkeep.compaction import Compaction
from tailrace.model.definition.chain import chain, keeping_answers
from tailrace.model.definition.definition import Definition

if TYPE_CHECKING:
    from tailrace.engines.spark.session import Starting


Result = TypeVar("Result")


@dataclass(frozen=True)
class MissedEpoch:
    """An epoch that some definitions did not fold when the epoch was landed, and that they folded later from the log.

    The object has the number of the epoch, the results by definition, and the duration of the fold in seconds, in total
    and by phase.
    """

    epoch: int
    folded: dict[str, EpochResult]
    seconds: float
    phases: dict[str, float]


class FoldGroup(Sequence[LedgerFold]):
    """The running folds of several definitions, in the order in which they process an epoch.

    `logs` are the logs that the definitions read from sources; an epoch covers all of these logs. `landing` is the
    lease of the first log, if the stream lands the logs. If `alone` is True, this process folds only the given
    definitions. Other processes fold the earlier definitions, and this process reads their output from their ledgers.
    `answered` are the names of the pipelines that get a table of answers, by default the last stages.
    If a process that does not land the logs takes the lease of a fold, the fold is dropped. If another stream that
    lands the same logs takes the lease of a fold, the whole process is fenced off: it can no longer commit.
    """

    def __init__(
        self,
        spark: Starting,
        lake: Lake,
        definitions: Sequence[Definition],
        *,
        follow_every: int | None = None,
        landing: Lease | None = None,
        alone: bool = False,
        answered: Collection[str] | None = None,
    ) -> None:
        self.engines = StreamEngines(spark, lake)
        self.lake, self.landing_lease = lake, landing
        self.logs = landed_logs(definitions)
        stages = list(definitions) if alone else stages_of(definitions)
        self._others = {
            earlier.name: LedgerReading(lake, earlier, self.engines)
            for earlier in (one for stage in stages for one in stage.before)
            if alone and earlier.name not in {stage.name for stage in stages}
        }
        self._side_by_side = SideBySide(lake.settings.threads)
        pace = Pace.of(follow_every, lake.settings.freshness)
        # The updates leave half of the threads to the folds, so that an epoch does not wait for all updates.
        self._updates = AnswerUpdates(pace, self._side_by_side.threads // 2)
        self._compacting = Compaction(lake)
        self._trimming = {stage.name: ledger_trimming(lake, stage) for stage in stages}
        self._by_name: dict[str, LedgerFold] = {}
        setup = FoldSetup(
            lake,
            self.engines,
            pace,
            landing,
            answered=keeping_answers(definitions) if answered is None else answered,
            fed={earlier.name for stage in stages for earlier in stage.before},
            read_again=self._read_again,
        )
        for stage in stages:
            self._by_name[stage.name] = fold_of(stage, setup)

    def __getitem__(self, place: int) -> LedgerFold:  # type: ignore[override]
        return list(self._by_name.values())[place]

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[LedgerFold]:
        # A copy of the list of folds is iterated, because folds may be dropped during the iteration.
        return iter(list(self._by_name.values()))

    def _standing(self) -> Iterator[LedgerFold]:
        """Iterate over the folds. A fold that is dropped during the iteration is skipped."""
        return (fold for fold in self if self._by_name.get(fold.definition.name) is fold)

    def landing(self, landed: Mapping[str, PassedEpoch]) -> LandingEpoch:
        """Return the epoch that is being landed, in the form in which folds read it.

        `landed` maps each log's name to the log's epoch.
        """
        return LandingEpoch(self.engines, self._by_name, landed, {log.name: log for log in self.logs})

    def _recorded(self, epoch: int, recordings: Recordings, after: int | None = None) -> RecordedEpoch:
        after = epoch - 1 if after is None else after
        return RecordedEpoch(self.engines, {**self._others, **self._by_name}, recordings, epoch, after)

    def _read_again(self, stage: Definition, epoch: int) -> PassedEpoch:
        """Return an epoch that a definition has already read, by reading it again from the tables."""
        return self._recorded(epoch, Recordings(self.lake)).of(stage.log)

    @contextmanager
    def _dropping(self, fold: LedgerFold) -> Iterator[None]:
        """Drop the fold, without raising the error, if the `with` block fails because the fold's lease is lost.

        Raises `FencedError` if the whole process is fenced off. Any other error of the block is raised again.
        """
        try:
            yield
        except Exception as error:
            lost = _lost(fold, error)
            if lost is None:
                raise
            if self.landing_lease is not None:
                self.landing_lease.check()
                if LANDING in self.lake.head(fold.lease.table).properties:
                    # Another landing stream took the fold's lease before it was itself fenced off from the log. Raise
                    # the error instead of dropping only this fold.
                    raise lost from error
            self._drop(fold, lost)

    def _divide_threads(self, folds: int, bundles: Sequence[BundleRecords]) -> None:
        """Let each query use one thread if many folds compute side by side, and their bundles are small.

        Each thread then has a fold of its own. Several threads for one small query mostly wait for each other.
        """
        threads = self.lake.settings.threads
        rows = max((one.num_rows for one in bundles if isinstance(one, pa.Table)), default=0)
        alone = folds >= 2 * threads and rows <= _SMALL
        self.engines.duck.compute_on(1 if alone else threads)

    def stage(self, epoch: EpochReading, phases: Phases) -> dict[str, EpochResult]:
        """Stage an epoch in each fold: compute the fold's output without publishing it.

        A fold runs after the folds whose output it reads. Returns the results by definition. Dropped folds have no
        result.
        """
        found = dict[str, EpochResult]()
        for wave in self._waves():
            with self._read(wave, epoch) as passed:

                def stage(fold: LedgerFold, own: Phases, passed: Mapping[str, PassedEpoch] = passed) -> EpochResult:
                    return fold.stage(passed[fold.definition.name], own)

                for fold, result in self._each(self._among(passed), stage, phases, passed):
                    found[fold.definition.name] = result
        return found

    def _waves(self) -> Iterator[list[LedgerFold]]:
        """Iterate over the folds in waves (`in_waves`). Folds that are dropped during the iteration are skipped."""
        for wave in in_waves(self):
            if standing := [fold for fold in wave if self._stands(fold)]:
                yield standing

    def _stands(self, fold: LedgerFold) -> bool:
        return self._by_name.get(fold.definition.name) is fold

    def _among(self, names: Collection[str]) -> list[LedgerFold]:
        return [fold for fold in self if fold.definition.name in names]

    @contextmanager
    def _read(self, wave: Iterable[LedgerFold], epoch: EpochReading) -> Iterator[Mapping[str, PassedEpoch]]:
        """Read an epoch for the folds of a wave, by the names of their definitions; dropped folds have no epoch.

        As long as the block runs, the folds share what they compute of the same bundle.
        """
        passed = dict[str, PassedEpoch]()
        for fold in wave:
            with self._dropping(fold):
                passed[fold.definition.name] = epoch.of(fold.definition.log)
        with self.engines.duck.shared.of([one.bundle for one in passed.values()]):
            yield passed

    def _each(
        self,
        folds: Sequence[LedgerFold],
        work: Callable[[LedgerFold, Phases], Result],
        phases: Phases,
        passed: Mapping[str, PassedEpoch] | None = None,
    ) -> Iterator[tuple[LedgerFold, Result]]:
        """Do work for each fold, side by side if the folds are in this process; yield the results in the folds' order.

        `passed` are the epochs to stage, if the work stages one. Dropped folds have no result. Raises the error of the
        first fold whose work failed.
        """

        def beside(fold: LedgerFold) -> bool:
            return fold.side.direct if passed is None else fold.stays(passed[fold.definition.name].bundle)

        if passed is not None:
            self._divide_threads(sum(map(beside, folds)), [one.bundle for one in passed.values()])
        for fold, outcome in self._side_by_side.each(folds, work, beside, phases):
            if self._stands(fold):
                with self._dropping(fold):
                    result = outcome.result()
                if self._stands(fold):
                    yield fold, result

    def publish(self, epoch: EpochReading, phases: Phases) -> dict[str, EpochResult]:
        """Publish the staged epoch of each fold.

        Returns the results of the folds that had to stage the epoch again because a backfill had corrected their state
        (X4). The readers of such a fold stage the epoch again, too, because they have read its old output.
        """
        again = dict[str, EpochResult]()
        for wave in self._waves():
            for fold in wave:
                if any(earlier.name in again for earlier in fold.definition.before):
                    with self._dropping(fold):
                        fold.anew()
                        again[fold.definition.name] = fold.stage(epoch.of(fold.definition.log), phases)
            standing = [fold for fold in wave if self._stands(fold)]
            for fold, published in self._each(standing, lambda fold, _: self._publishes(fold), phases):
                if not published:
                    with self._dropping(fold):
                        again[fold.definition.name] = self._corrected(fold, epoch, phases)
        return again

    def _publishes(self, fold: LedgerFold) -> bool:
        """Publish a fold's staged epoch. Returns False if a backfill has corrected the fold's state meanwhile."""
        if not fold.publish():
            return False
        self._trimming[fold.definition.name].after_commit()
        self._compacting.after_commit(fold.lease)
        return True

    def _corrected(self, fold: LedgerFold, epoch: EpochReading, phases: Phases) -> EpochResult:
        """Stage and publish the epoch of a fold whose state a backfill has corrected, until it is published (X4).

        Returns the result of the last staging.
        """
        while True:
            result = fold.stage(epoch.of(fold.definition.log), phases)
            if self._publishes(fold):
                return result

    def reads_files(self, log: str) -> bool:
        """Return True if all folds that read a landed log can read its records from data files."""
        return all(fold.side.reads_files for fold in self if reads_log(fold.definition.log, log))

    def due(self) -> int | None:
        """Return the next processing time, in microseconds, at which any fold may have output without a record.

        Returns None if there is no such time.
        """
        found = list[int | None]()
        for fold in self._standing():
            with self._dropping(fold):
                found.append(fold.due())
        return min((at for at in found if at is not None), default=None)

    @property
    def in_flight(self) -> int:
        """The number of records in flight in all folds: they have been fed back, but not yet processed."""
        return sum(fold.in_flight for fold in self)

    def look(self) -> None:
        """Check the lease of each fold, and drop the folds whose leases other processes have taken."""
        for fold in self._standing():
            with suppress(LentError), self._dropping(fold):
                fold.lease.check()

    def follow(self) -> None:
        """Start updating the tables that are computed from the ledgers, such as tables of answers."""
        self._updates.start(list(self))

    def follow_idly(self) -> None:
        """Start the updates that are overdue, at a time when no epoch arrives; never wait for an update."""
        if self._updates.idle:
            self.follow()

    def settle(self) -> None:
        """Wait until the tables that are computed from the ledgers are up to date.

        Raises the error of an update that failed.
        """
        self._updates.settle()

    def close(self) -> None:
        """Update the answers from the ledgers, and close the folds and the DuckDB database."""
        with closing(self.engines):
            self._updates.close()
            self._compacting.close()
            for _ in self._each(list(self), lambda fold, _: fold.close(), Phases()):
                pass
            self._side_by_side.close()
            for one in self._others.values():
                one.close()

    def leap(self, last: int) -> None:
        """For each ledger, fold the missing epochs as a single epoch, with the number and the clock of the epoch
        `last`.

        Epochs after `last` are not folded. The division of records into epochs does not change the answers (rule L1),
        but it changes the panes. Use this method only for ledgers that are being built and that nobody reads yet.
        """
        recordings = Recordings(self.lake)
        for fold in self:
            if fold.epoch < last:
                read = self._recorded(last, recordings, after=fold.epoch)
                fold.stage(read.of(fold.definition.log), Phases())
                fold.publish()

    def anew(self) -> None:
        """Restore the state of each fold from its ledger."""
        for fold in self._standing():
            with self._dropping(fold):
                fold.anew()

    def missed_epochs(self, last: int) -> Iterator[MissedEpoch]:
        """Fold the epochs up to `last` that any ledger lacks, with the clocks that the logs record; yield each folded
        epoch.

        Each epoch is folded only when the caller asks for it.
        """
        behind = [fold for fold in self if fold.epoch < last]
        if not behind:
            return
        recordings = Recordings(self.lake)
        begins = {
            fold.definition.name: min(min(recordings.of(log.name), default=0) for log in fold.definition.sources)
            for fold in behind
        }
        for epoch in range(min(fold.epoch for fold in behind) + 1, last + 1):
            phases, started, results = Phases(), time.perf_counter(), dict[str, EpochResult]()
            read = self._recorded(epoch, recordings)
            for wave in self._waves():
                lacking = [fold for fold in wave if _lacks(fold, epoch, begins)]
                results |= self._folded(lacking, read, phases)
            if not self:
                return
            self.follow()
            if results:
                yield MissedEpoch(epoch, results, time.perf_counter() - started, phases.seconds)

    def _folded(self, wave: Sequence[LedgerFold], epoch: EpochReading, phases: Phases) -> dict[str, EpochResult]:
        """Stage and publish an epoch in each fold of a wave. Returns the results by definition."""
        found = dict[str, EpochResult]()
        with self._read(wave, epoch) as passed:

            def fold_one(fold: LedgerFold, own: Phases) -> tuple[EpochResult, bool]:
                result = fold.stage(passed[fold.definition.name], own)
                return result, self._publishes(fold)

            done = list(self._each(self._among(passed), fold_one, phases, passed))
        for fold, (result, published) in done:
            with self._dropping(fold):
                found[fold.definition.name] = result if published else self._corrected(fold, epoch, phases)
        return found

    def _drop(self, fold: LedgerFold, lost: FencedError) -> None:
        """Drop a fold and the folds that read its output. The staged epochs of the dropped folds are not published."""
        name = fold.definition.name
        dropped = [one for one in self if any(stage.name == name for stage in chain(one.definition))]
        for one in dropped:
            del self._by_name[one.definition.name]
        self._updates.settle()
        for one in dropped:
            one.leave()
            reason = self._reason(fold) if one is fold else f"it reads {name}, which this stream folds no more"
            self.lake.tell(DefinitionDropped(one.definition.name, reason, len(self)))

    def _reason(self, fold: LedgerFold) -> str:
        head = self.lake.head(fold.lease.table)
        if head.properties.get("fingerprint") in fold.definition.fingerprints:
            return f"another process has taken the lease of {fold.lease.table}"
        number = head.number("generation")
        return f"generation {number} with another meaning took over: restart this stream with the changed definition"


_SMALL = 200_000
"""The maximum number of records of a small bundle."""


def _lacks(fold: LedgerFold, epoch: int, begins: Mapping[str, int]) -> bool:
    """Return True if a fold lacks an epoch; `begins` has the first epoch of each definition's logs."""
    if fold.epoch >= epoch or (fold.state.clock is not None and fold.state.clock.epoch >= epoch):
        return False
    return fold.epoch >= 0 or epoch >= begins[fold.definition.name]


def _lost(fold: LedgerFold, error: Exception) -> FencedError | None:
    """Return a `FencedError` if an error was raised because a fold no longer has the lease on its ledger.

    Returns None if the error has another cause.
    """
    if isinstance(error, FencedError):
        return error
    try:
        fold.lease.check()
    except FencedError as lost:
        return lost
    except LakeError:
        # The lease is lent to a backfill, or the ledger cannot be read. The error that was raised describes the cause
        # better than an error about the lease.
        return None
    return None
