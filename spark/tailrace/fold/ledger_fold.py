"""Fold a definition of any kind in a stream: each epoch is one step of the definition and one commit (rules X1, X2)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from tailrace.engines.protocol import AnySide, BundleRecords, EpochCounts, lost_state
from tailrace.fold.fold import EpochResult, PassedEpoch, Phases, passed_again
from tailrace.fold.fold_engines import StreamEngines
from tailrace.fold.follower_pace import Pace
from tailrace.fold.poison import LARGEST, find_poison, identity_columns, may_be_of_records, unfoldable_error
from tailrace.lake.catalog.drift import check_meaning
from tailrace.lake.catalog.events import EngineSwitched, RecordsSetAside
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.stored_meaning import meaning_properties, renew_meaning
from tailrace.lake.change.generations import GENERATION
from tailrace.lake.change.migration import widen
from tailrace.lake.commit.epoch_properties import EpochCommit
from tailrace.lake.commit.lease import Lease
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.read.set_aside import WHY, can_set_aside, set_aside, with_set_aside
from tailrace.lake.schema.lake_errors import LentError
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.clock import Clock
from tailrace.model.base.errors import line_of
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.definition import Definition, Ranged
from tailrace.model.definition.record_steps import Place

_LONGEST = 500
"""The maximum length, in characters, of the recorded reason why a record was set aside."""


@dataclass(frozen=True)
class _WrittenEpoch:
    """What is left of an epoch's result after its rows were written: the state."""

    state: Any


@dataclass
class _Staged:
    """An epoch that has been written to the ledger's branch, but has not been published yet."""

    stepped: Any
    properties: dict[str, str]
    folded: EpochResult
    onward: int | None


@dataclass(frozen=True)
class FoldSetup:
    """The settings that all folds of a process share: the lake, the engines, and facts about the other definitions.

    `landing` is the lease of the log, if the stream also lands the log. `answered` are the names of the pipelines with
    a table of answers. `fed` are the names of the definitions whose output a later stage reads. `read_again` returns an
    epoch that a definition has already read.
    """

    lake: Lake
    engines: StreamEngines
    pace: Pace
    landing: Lease | None = None
    answered: Collection[str] = ()
    fed: Collection[str] = ()
    read_again: Callable[[Definition, int], PassedEpoch] | None = None


class LedgerFold:
    """The running fold of one definition: its lease on the ledger, and its state between two epochs.

    A fold begins on the engine that the policy chooses. The fold moves to Spark for good if a bundle is on Spark, or if
    the fold's state becomes too large for this process. If `feeds` is True, each commit records the upper limit of the
    readers' watermark.
    """

    side: AnySide

    def __init__(self, definition: Definition, setup: FoldSetup) -> None:
        self.lake, self.engines, self.definition = setup.lake, setup.engines, definition
        self.feeds = definition.name in setup.fed
        self._trying = False
        widen(self.lake, definition)
        self._ensure()
        self.lease = Lease.take(self.lake, ledger_name(definition.name), setup.landing)
        # Another stream may have folded more records, until this one took its lease.
        check_meaning(self.lake, definition)
        renew_meaning(self.lake, definition)
        # The list of records to set aside is read after the lease is taken: until then, another stream might still
        # extend the list.
        self.definition = with_set_aside(self.lake, definition)
        self._set_aside_so_far = EpochCommit.of(self.lease.head.properties).set_aside
        self.side = self.engines.first(self.definition)
        self.generation = self.lease.head.number("generation", 1)
        self.state = self._restored()
        self._staged: _Staged | None = None
        self._due: tuple[Any, int | None] | None = None

    @property
    def epoch(self) -> int:
        """The last epoch that is published in the ledger."""
        return self.lease.head.number("epoch")

    def stage(self, passed: PassedEpoch, phases: Phases) -> EpochResult:
        """Compute the output of an epoch, and write the output to the ledger's branch. The clock never goes back (T3).

        If the epoch fails twice because of certain records, and the settings allow it, these records are set aside, and
        the fold continues without them (X7).
        """
        try:
            return self._stepped(passed, phases)
        except Exception as error:
            if not self._may_set_aside(error):
                raise
            self._begin_again()
            return self._without_poison(passed, phases)

    def _stepped(self, passed: PassedEpoch, phases: Phases) -> EpochResult:
        self._taken_over(passed.bundle)
        consumed = self.side.consume(passed.bundle, self.state)
        phases.end("consume")
        clock = passed.clock_after(self.state.clock)
        stepped = self.side.step(self.state, consumed, clock)
        onward = self.side.onward(stepped.state) if self.feeds else None
        own = EpochCommit(
            clock, self.generation, self.definition.fingerprint, str(self.side.choice), onward,
            set_aside=self._set_aside_so_far,
        )  # fmt: skip
        properties = {**own.properties, **self.lease.properties}
        stepped = self._settled(stepped, clock)
        folded = self._write(stepped, properties, clock)
        if not self.feeds and self.lease.branch.holds:
            # Nobody needs the rows any more: they are in files, and no other definition reads them.
            stepped = _WrittenEpoch(stepped.state)
        self._staged = _Staged(stepped, properties, folded, onward)
        phases.end("step")
        return folded

    def stays(self, bundle: BundleRecords) -> bool:
        """Return True if native code of this process folds a bundle, so that other folds can compute meanwhile."""
        return self.engines.compute_here(self.side, self.definition, bundle, self.state)

    def _may_set_aside(self, error: Exception) -> bool:
        if self.lake.settings.poison == "stop":
            return False
        return not lost_state(error) and may_be_of_records(error)

    def _begin_again(self) -> None:
        """Restore the state as it was after the last published epoch, and discard all later states."""
        self.state.forget()
        self.state, self._staged = self._restored(), None

    def _without_poison(self, passed: PassedEpoch, phases: Phases) -> EpochResult:
        """Repeat the computation of an epoch that has failed once.

        If the epoch fails again, set aside the records that make it fail. Raises `UnfoldableError` if these records are
        rows of another definition, which may retract them later.
        """
        try:
            return self._stepped(passed, phases)
        except Exception as error:
            if not self._may_set_aside(error):
                raise
            rows = self.engines.having([passed.bundle]).held(passed.bundle, LARGEST)
            if rows is None:
                raise

            def failed(some: pa.Table) -> Exception | None:
                try:
                    self._stepped(replace(passed, bundle=some), phases)
                except Exception as caught:
                    return caught
                finally:
                    self._begin_again()
                return None

            self._begin_again()
            self._trying = True
            try:
                errors = find_poison(rows, failed, identity_columns(self.definition))
            finally:
                self._trying = False
            if not errors:
                raise
            epoch = passed.clock.epoch
            if not can_set_aside(self.definition):
                raise unfoldable_error(self.definition, epoch, errors) from error
        why = {Place(*row): f"{WHY}{line_of(error)}"[:_LONGEST] for row, error in errors.items()}
        self._set_aside(why)
        self.lake.tell(
            RecordsSetAside(self.definition.name, epoch, len(why), next(iter(why.values())).removeprefix(WHY))
        )
        return self._stepped(passed, phases)

    def _set_aside(self, reasons: dict[Place, str]) -> None:
        """Reject these records from now on: reopen the fold's `Side` with a definition that rejects the records."""
        all_ = set_aside(self.lake, self.definition) | reasons
        self.definition, self._set_aside_so_far = self.definition.with_set_aside(all_), len(all_)
        self.side.close()
        self.side = self.engines.first(self.definition)
        self.state = self._restored()

    def passed_on(self) -> PassedEpoch:
        """Return the staged epoch for this fold's readers, or the last published epoch if no epoch is staged."""
        staged = self._staged
        if staged is None:
            return self.passed_on_again(self.epoch, EpochCommit.of(self.lease.head.properties))
        onward = BEGINNING if staged.onward is None else staged.onward
        return PassedEpoch(self.side.passed(staged.stepped), staged.folded.clock, onward)

    def passed_on_again(self, epoch: int, there: EpochCommit | None, after: int | None = None) -> PassedEpoch:
        """Return an epoch from the ledger for this fold's readers.

        `there` is the epoch's commit, or None if the commit is gone (`fold.passed_again`).
        """
        return passed_again(self.side, epoch, there, after)

    def publish(self) -> bool:
        """Publish the staged epoch. If another writer has committed to the ledger, first write the epoch again (X1).

        Returns False if a backfill borrowed the lease in the meantime, because the backfill may have corrected open
        windows. The epoch then has to be staged again (X4).
        """
        staged = self._staged
        if staged is None:
            return True
        if not self.lease.commit(
            staged.properties, partial(self._write, staged.stepped, staged.properties, staged.folded.clock)
        ):
            staged.stepped.state.forget()
            self.anew()
            return False
        self.state.forget()
        self.state, self._staged = staged.stepped.state, None
        return True

    def anew(self) -> None:
        """Drop the staged epoch, and restore the state from the ledger.

        If the lease is lent to another process, this method first waits until that process returns the lease.
        """
        try:
            self.lease.head = self.lease.branch.start(self.lease.check())
        except LentError:
            self.lease.regain()
        self.generation = self.lease.head.number("generation", 1)
        self._begin_again()

    def due(self) -> int | None:
        """Return None: processing time alone never makes this fold produce output."""
        return None

    @property
    def in_flight(self) -> int:
        """The number of records that the definition has fed back to itself.

        It is zero, because there is no feedback loop.
        """
        return 0

    def update(self) -> Callable[[], None] | None:
        """Return None: there is no table (such as a table of answers) that must be updated from this ledger."""
        return None

    @property
    def waits(self) -> bool:
        """Whether the stream has to wait for an update of the tables that are computed from this ledger."""
        return False

    def follow_now(self) -> None:
        """Do nothing, because there is no table that must be updated from this ledger."""

    def close(self) -> None:
        """Release the lease and free the state."""
        self.lease.close()
        self.side.close()

    def leave(self) -> None:
        """Close the fold without any further update, because another process has taken over its ledger."""
        self._staged = None
        self.lease.close()
        self.side.close()

    def _ensure(self) -> None:
        """Create the tables that do not exist yet."""
        raise NotImplementedError

    def _begun(self, definition: Ranged) -> None:
        """Create the ledger if it does not exist, and record its first generation in the table of runs."""
        ledger = tables_of(definition).ledger
        if not self.lake.has(ledger.table):
            run = Runs(self.lake, definition).start("stream", BEGINNING, END_OF_TIME, log_epoch=None)
            first = {"epoch": "-1", "generation": str(run.generation), "fingerprint": definition.fingerprint}
            properties = meaning_properties(definition) | {GENERATION: str(run.generation)}
            self.lake.ensure(replace(ledger, properties={**ledger.properties, **properties}), first)

    def _result(self, counts: EpochCounts, clock: Clock) -> EpochResult:
        """Return an epoch's result, from the counts of the rows that were written."""
        engine = self.side.choice.engine.value
        return EpochResult(
            **vars(counts), clock=clock, generation=self.generation, token=self.lease.token, engine=engine
        )

    def _settled(self, stepped: Any, clock: Clock) -> Any:
        """Claim the ids of an epoch's output rows, if the definition claims ids; return the result to write.

        While the fold tries out parts of an epoch to find faulty records, no id is claimed.
        """
        return stepped

    def _taken_over(self, bundle: BundleRecords) -> None:
        """Move to Spark if the bundle is on Spark, or if the state is too large for this process."""
        side = self.engines.next(self.side, self.definition, bundle, self.state)
        if side is self.side:
            return
        self.side.close()
        self.side = side
        self.state.forget()
        self.state = self._restored()
        self.lake.tell(EngineSwitched(self.definition.name, side.choice.engine.value, side.choice.why))

    def _write(self, stepped: Any, properties: dict[str, str], clock: Clock) -> EpochResult:
        return self._result(self.side.write(stepped, self.lease.branch, properties), clock)

    def _restored(self) -> Any:
        head = self.lease.head
        if head.number("epoch") < 0:
            return self.side.nothing(self.generation)
        return self.side.restored(head.snapshot, EpochCommit.of(head.properties).clock, self.generation)
