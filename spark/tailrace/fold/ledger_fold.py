"""The running fold of a definition, whatever its kind: each epoch is stepped and is one commit (rules X1, X2)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from tailrace.engines.protocol import AnySide, EpochCounts
from tailrace.engines.spark.bundles import Bundled
from tailrace.engines.spark.executions.open_windows import lost_state
from tailrace.fold.fold import EpochResult, PassedEpoch, Phases, passed_again
from tailrace.fold.fold_engines import StreamEngines
from tailrace.fold.follower_pace import Pace
from tailrace.fold.poison import LARGEST, found, identity_columns, may_be_of_records, unfoldable
from tailrace.fold.task_thread import TaskThread
from tailrace.lake.catalog.events import EngineSwitched, RecordsSetAside
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.change.generations import GENERATION, MEANING
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
from tailrace.model.definition.fingerprint import encode_meaning
from tailrace.model.definition.record_steps import Place

_LONGEST = 500
"""The length to which the reason for setting a record aside is cut, in characters."""


@dataclass
class _Staged:
    """An epoch that is written to the ledger's branch but not published."""

    stepped: Any
    properties: dict[str, str]
    folded: EpochResult
    onward: int | None


@dataclass(frozen=True)
class FoldSetup:
    """The setting of the folds of one process: their lake, their engines, and the definitions that others read.

    `landing` is the lease of the log, where the stream lands it, too. `answered` names the pipelines whose answers are
    kept, `fed` the definitions that a later stage reads. `read_again` returns an epoch that a definition has read.
    """

    lake: Lake
    engines: StreamEngines
    pace: Pace
    landing: Lease | None = None
    answered: Collection[str] = ()
    fed: Collection[str] = ()
    read_again: Callable[[Definition, int], PassedEpoch] | None = None


class LedgerFold:
    """The running fold of one definition: its lease on the ledger, and what it keeps between two epochs.

    It begins on the engine that the policy chooses, and goes over to Spark for good where a bundle comes as Spark's, or
    its state outgrows the process. `feeds` says that its commits bound the watermark of its readers.
    """

    side: AnySide

    def __init__(self, definition: Definition, setup: FoldSetup) -> None:
        self.lake, self.engines, self.definition = setup.lake, setup.engines, definition
        self.feeds = definition.name in setup.fed
        self._trying = False
        widen(self.lake, definition)
        self._ensure()
        self.lease = Lease.take(self.lake, ledger_name(definition.name), setup.landing)
        # What was set aside is known once no other stream writes to the ledger.
        self.definition = with_set_aside(self.lake, definition)
        self._set_aside_so_far = EpochCommit.of(self.lease.head.properties).set_aside
        self.side = self.engines.first(self.definition)
        self.generation = self.lease.head.number("generation", 1)
        self.state = self._restored()
        self._staged: _Staged | None = None
        self._due: tuple[Any, int | None] | None = None

    @property
    def epoch(self) -> int:
        """The last epoch in the ledger."""
        return self.lease.head.number("epoch")

    def stage(self, passed: PassedEpoch, phases: Phases) -> EpochResult:
        """Step an epoch that was passed on, and write it to the ledger's branch; the clock never goes back (T3).

        Where it fails twice for records of it, and the settings say so, these are set aside, and it goes on (X7).
        """
        try:
            return self._stepped(passed, phases)
        except Exception as error:
            if not self._may_set_aside(error):
                raise
            self._begin_again()
            return self._without_poison(passed, phases)

    def _stepped(self, passed: PassedEpoch, phases: Phases) -> EpochResult:
        consumed = self._consumed(passed.bundle, phases)
        return self._step(consumed, passed.clock_after(self.state.clock), phases)

    def _may_set_aside(self, error: Exception) -> bool:
        if self.lake.settings.poison == "stop":
            return False
        return not lost_state(error) and may_be_of_records(error)

    def _begin_again(self) -> None:
        """Restore the state after the last published epoch; what was stepped since is forgotten."""
        self.state.forget()
        self.state, self._staged = self._restored(), None

    def _without_poison(self, passed: PassedEpoch, phases: Phases) -> EpochResult:
        """Step an epoch that failed once more; where it fails again, set the records aside that make it fail.

        Raises `UnfoldableError` where they are of another definition that may take them back.
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
                errors = found(rows, failed, identity_columns(self.definition))
            finally:
                self._trying = False
            if not errors:
                raise
            epoch = passed.clock.epoch
            if not can_set_aside(self.definition):
                raise unfoldable(self.definition, epoch, errors) from error
        why = {Place(*row): f"{WHY}{line_of(error)}"[:_LONGEST] for row, error in errors.items()}
        self._set_aside(why)
        self.lake.tell(
            RecordsSetAside(self.definition.name, epoch, len(why), next(iter(why.values())).removeprefix(WHY))
        )
        return self._stepped(passed, phases)

    def _set_aside(self, reasons: dict[Place, str]) -> None:
        """Have records rejected from here on: the side is opened anew on a definition that does so."""
        all_ = set_aside(self.lake, self.definition) | reasons
        self.definition, self._set_aside_so_far = self.definition.with_set_aside(all_), len(all_)
        self.side.close()
        self.side = self.engines.first(self.definition)
        self.state = self._restored()

    def passed_on(self) -> PassedEpoch:
        """Return the staged epoch, as records of a later stage, or the last one where that is published already."""
        staged = self._staged
        if staged is None:
            return self.passed_on_again(self.epoch, EpochCommit.of(self.lease.head.properties))
        onward = BEGINNING if staged.onward is None else staged.onward
        return PassedEpoch(self.side.passed(staged.stepped), staged.folded.clock, onward)

    def passed_on_again(self, epoch: int, there: EpochCommit | None, after: int | None = None) -> PassedEpoch:
        """Return an epoch of the ledger as its readers take it (`fold.Recorded`)."""
        return passed_again(self.side, epoch, there, after)

    def publish(self) -> bool:
        """Make the staged epoch visible; where a backfill or maintenance moved the ledger, write it on top (X1).

        Returns False where a backfill borrowed the lease meanwhile: the open windows are then those that the backfill
        left, and the epoch is to be staged again (X4).
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
        """Restore the state from the ledger, once a borrower of the lease gives it back; drop the staged epoch."""
        try:
            self.lease.head = self.lease.branch.start(self.lease.check())
        except LentError:
            self.lease.regain()
        self.generation = self.lease.head.number("generation", 1)
        self.state.forget()
        self.state, self._staged = self._restored(), None

    def due(self) -> int | None:
        """Return None: the fold waits for nothing but records and the watermark."""
        return None

    @property
    def in_flight(self) -> int:
        """Zero: the definition has no loop."""
        return 0

    def follow(self, beside: TaskThread) -> None:
        """Do nothing: readers find what the definition gives in its ledger, and nothing follows that."""

    def close(self) -> None:
        """Give the lease back, and free the state."""
        self.lease.close()
        self.side.close()

    def leave(self) -> None:
        """Let go of the fold as it is: another process has it, and brings the answers up."""
        self._staged = None
        self.lease.close()
        self.side.close()

    def _ensure(self) -> None:
        """Make the tables that do not exist yet."""
        raise NotImplementedError

    def _begun(self, definition: Ranged) -> None:
        """Make the ledger where there is none, and enter its generation among the runs."""
        ledger = tables_of(definition).ledger
        if not self.lake.has(ledger.table):
            run = Runs(self.lake, definition).start("stream", BEGINNING, END_OF_TIME, log_epoch=None)
            first = {"epoch": "-1", "generation": str(run.generation), "fingerprint": definition.fingerprint}
            properties = {MEANING: encode_meaning(definition.meaning), GENERATION: str(run.generation)}
            self.lake.ensure(replace(ledger, properties={**ledger.properties, **properties}), first)

    def _result(self, folded: EpochCounts, clock: Clock) -> EpochResult:
        """Make an epoch's result from the counts of what was written."""
        return EpochResult(
            clock, sum(folded.timings.values()), folded.retractions, folded.late + sum(folded.reasons.values()),
            folded.rejected, folded.timings, folded.reasons, folded.open, self.generation, self.lease.token,
            folded.productions, folded.claimed, folded.fed_back, self.side.choice.engine.value, folded.unanswered,
        )  # fmt: skip

    def _settled(self, stepped: Any, clock: Clock) -> Any:
        """Settle what has to be settled before an epoch's result is written; return that result.

        Nothing is settled while parts of an epoch are tried.
        """
        return stepped

    def _consumed(self, bundle: Bundled, phases: Phases) -> Any:
        self._taken_over(bundle)
        consumed = self.side.consume(bundle, self.state)
        phases.end("consume")
        return consumed

    def _taken_over(self, bundle: Bundled) -> None:
        """Go over to Spark where the bundle is Spark's, or the state has too much for this process."""
        side = self.engines.next(self.side, self.definition, bundle, self.state)
        if side is self.side:
            return
        self.side.close()
        self.side = side
        self.state.forget()
        self.state = self._restored()
        self.lake.tell(EngineSwitched(self.definition.name, side.choice.engine.value, side.choice.why))

    def _step(self, consumed: Any, clock: Clock, phases: Phases) -> EpochResult:
        stepped = self.side.step(self.state, consumed, clock)
        onward = self.side.onward(stepped.state) if self.feeds else None
        own = EpochCommit(
            clock, self.generation, self.definition.fingerprint, str(self.side.choice), onward,
            set_aside=self._set_aside_so_far,
        )  # fmt: skip
        properties = {**own.properties, **self.lease.properties}
        stepped = self._settled(stepped, clock)
        folded = self._write(stepped, properties, clock)
        self._staged = _Staged(stepped, properties, folded, onward)
        phases.end("step")
        return folded

    def _write(self, stepped: Any, properties: dict[str, str], clock: Clock) -> EpochResult:
        return self._result(self.side.write(stepped, self.lease.branch, properties), clock)

    def _restored(self) -> Any:
        head = self.lease.head
        if head.number("epoch") < 0:
            return self.side.nothing(self.generation)
        return self.side.restored(head.snapshot, EpochCommit.of(head.properties).clock, self.generation)
