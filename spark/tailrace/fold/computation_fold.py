"""Fold a computation in a stream: an epoch is one commit of state, timers and output (MillWheel, 6.1 and 6.2)."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from tailrace.engines.claims import Claiming, KeySide
from tailrace.engines.protocol import EpochCounts
from tailrace.fold.fold import EpochResult, PassedEpoch
from tailrace.fold.ledger_fold import FoldSetup, LedgerFold
from tailrace.lake.commit.epoch_properties import EpochCommit, epoch_commits
from tailrace.lake.read.set_aside import with_set_aside
from tailrace.lake.schema.computation_tables import computation_contract
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.computation import Computation, ComputationError


class ComputationFold(LedgerFold):
    """The running fold of one computation.

    Each commit records the upper limit of the readers' watermark. This limit is recorded even if the computation has no
    readers, because users also look at the limit.
    """

    side: KeySide[Any, Any, Any, Any]

    def __init__(self, computation: Computation, setup: FoldSetup) -> None:
        self.computation, self._read_again = computation, setup.read_again
        super().__init__(computation, setup)
        self.feeds = True
        self.claiming = None if computation.once is None else Claiming(self.lake, computation, self.lease)

    def passed_on_again(self, epoch: int, there: EpochCommit | None, after: int | None = None) -> PassedEpoch:
        """Return the output rows (productions) of an epoch for the computation's readers.

        If the computation declares `productions="strong"`, the productions are read from the ledger. If it declares
        `productions="weak"`, the ledger does not store them, and they are computed again.
        """
        if self.computation.productions == "weak":
            return self._computed_again(epoch, there)
        return super().passed_on_again(epoch, there, after)

    def due(self) -> int | None:
        if self._due is None or self._due[0] is not self.state:
            self._due = self.state, self.side.due(self.state, (), ())
        return self._due[1]

    @property
    def in_flight(self) -> int:
        return int(self.state.in_flight)

    def close(self) -> None:
        if self.claiming is not None:
            self.claiming.close()
        super().close()

    def _ensure(self) -> None:
        first = {"epoch": "-1", "generation": "1", "fingerprint": self.computation.fingerprint}
        self.lake.ensure(computation_contract(self.computation), first)

    def _settled(self, stepped: Any, clock: Clock) -> Any:
        if self.claiming is None or self._trying:
            return stepped
        return self.side.settled(stepped, self.claiming, clock.epoch)

    def _result(self, counts: EpochCounts, clock: Clock) -> EpochResult:
        # Leave out the generation: a computation has no generations, because no backfill recomputes a computation's
        # output.
        return replace(super()._result(counts, clock), generation=None, token=None)

    def _computed_again(self, epoch: int, there: EpochCommit | None) -> PassedEpoch:
        """Compute an epoch again, from the state before the epoch and the clocks in the ledger."""
        name = self.computation.name
        clocks = {epoch: one.clock for epoch, one in epoch_commits(self.lake, self.lease.table).items()}
        begin = min(clocks, default=0)
        if epoch not in clocks or (epoch > begin and epoch - 1 not in clocks):
            raise ComputationError(
                f"{name}: its weak productions of epoch {epoch} are wanted again, and the snapshot of "
                f"{self.lease.table} that says its clock is gone: let those who read it start anew under another "
                'name, or leave productions="weak" out, under another name'
            )
        assert self._read_again is not None, "weak productions are computed from what was read"
        bundle = self._read_again(self.computation, epoch).bundle
        # Use an additional `Side` to compute the epoch, so that the fold's own state does not change.
        with closing(self.engines.beside(with_set_aside(self.lake, self.computation), [bundle])) as side:
            snapshot = self.lease.head.snapshot
            keys = side.restored(snapshot, clocks[epoch - 1], 1) if epoch > begin else side.nothing(1)
            stepped = side.step(keys, side.consume(bundle, keys), clocks[epoch])
            onward = BEGINNING if there is None or there.onward is None else there.onward
            return PassedEpoch(side.passed(stepped), clocks[epoch], onward)
