"""One computation's fold in a stream: an epoch is one commit of state, timers and productions (MillWheel, 6.1, 6.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.errors import PythonException
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from tailrace.lake.catalog import Lake
from tailrace.lake.commits import CLOCK, ONWARD, recorded
from tailrace.lake.contracts import CLAIMED, LATE, PRODUCTION, REJECTED, computation_contract
from tailrace.lake.drift import check_definition
from tailrace.lake.lease import Lease
from tailrace.lake.signals import NAMES, names_of
from tailrace.model.clock import Clock
from tailrace.model.computation import Computation, ComputationError
from tailrace.model.time import BEGINNING
from tailrace.spark.claiming import Claiming
from tailrace.spark.computing import Computed, Computing, Keys, given
from tailrace.spark.folding import Folded, Phases
from tailrace.spark.logged import logged
from tailrace.spark.side import Bundled, as_frame
from tailrace.spark.staging import Folding, Passed
from tailrace.spark.worker import Worker
from tailrace.spark.writing import append, as_of_snapshot
from tailrace.sql.changes import productions


@dataclass
class _Staged:
    """An epoch that is written to the ledger's branch but not published."""

    computed: Computed
    said: dict[str, str]
    clock: Clock


class ComputationFold:
    """The running fold of one computation: its lease on the ledger, and what its keys have.

    `after` is the fold of the definition that it reads, None where it reads a source's log.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        computation: Computation,
        *,
        after: Folding | None,
        feeds: bool = False,
        landing: Lease | None = None,
    ) -> None:
        self.spark, self.lake, self.computation, self.after, self.feeds = spark, lake, computation, after, feeds
        self.execution = Computing(spark, computation)
        contract = computation_contract(computation)
        check_definition(lake, computation)
        lake.ensure(contract, {"epoch": "-1", "generation": "1", "fingerprint": computation.fingerprint})
        self.lease = Lease.take(lake, contract.table, landing)
        self.claiming = None if computation.once is None else Claiming(spark, lake, computation, self.lease)
        self.state = self._held()
        self._staged: _Staged | None = None
        self._due: tuple[Keys, int | None] | None = None

    @property
    def definition(self) -> Computation:
        return self.computation

    @property
    def epoch(self) -> int:
        return self.lease.head.number("epoch")

    def stage(self, bundle: Bundled, clock: Clock, phases: Phases) -> Folded:
        computed = self.execution.step(self.state, as_frame(self.spark, bundle), clock)
        said = {
            "epoch": str(clock.epoch),
            "watermark": str(clock.watermark),
            "processing_time": str(clock.processing_time),
            "generation": "1",
            "fingerprint": self.computation.fingerprint,
            **self.lease.says,
        }
        if clock.signals:
            said[NAMES] = ",".join(clock.signals)
        try:
            said[ONWARD] = str(self.execution.onward(computed.keys))
        except PythonException as error:
            # It comes with the traces of Python and of the JVM.
            found = re.search(r"ComputationError: (.*)", str(error))
            if found is None:
                raise
            raise ComputationError(found[1]) from error
        if self.claiming is not None:
            computed = self.claiming.settled(computed, clock.epoch)
        folded = self._write(computed, said, clock)
        self._staged = _Staged(computed, said, clock)
        phases.end("step")
        return folded

    def stage_after(self, earlier: Folding, phases: Phases) -> Folded:
        return self._stage_on(earlier.passed_on(), phases)

    def stage_again(self, epoch: int, earlier: Folding, said: Mapping[str, str], phases: Phases) -> Folded:
        return self._stage_on(earlier.passed_on_again(epoch, said), phases)

    def _stage_on(self, passed: Passed, phases: Phases) -> Folded:
        return self.stage(passed.bundle, passed.clock_after(self.state.clock), phases)

    def passed_on(self) -> Passed:
        staged = self._staged
        assert staged is not None
        return Passed(given(self.spark, self.computation, staged.computed.rows), staged.clock, staged.said)

    def passed_on_again(self, epoch: int, said: Mapping[str, str]) -> Passed:
        """What was produced in an epoch: strong productions as they are kept, weak ones computed again."""
        if self.computation.productions == "weak":
            return self._computed_again(epoch, said)
        rows = f"(SELECT * FROM {self.lake.spark_name(self.lease.table)} WHERE epoch = {epoch}L)"
        clock = Clock(epoch, BEGINNING, int(said.get("processing_time", 0)), names_of(said))
        return Passed(self.spark.sql(productions(self.computation, rows)), clock, said)

    def publish(self) -> bool:
        """Make the staged epoch visible; where maintenance moved the ledger, write it on top (X1)."""
        staged = self._staged
        if staged is None:
            return True
        if not self.lease.commit(staged.said, partial(self._write, staged.computed, staged.said, staged.clock)):
            raise AssertionError("nobody borrows the lease of a computation")
        self.state.forget()
        self.state, self._staged = staged.computed.keys, None
        return True

    def anew(self) -> None:
        """Go on from what the ledger has; what was staged is not published."""
        self.lease.head = self.lease.branch.start(self.lease.check())
        self.state.forget()
        self.state, self._staged = self._held(), None

    def due(self) -> int | None:
        if self._due is None or self._due[0] is not self.state:
            self._due = (self.state, self.state.due())
        return self._due[1]

    @property
    def in_flight(self) -> int:
        return self.state.in_flight.count

    def follow(self, beside: Worker) -> None:
        """Nothing follows the ledger of a computation: its productions are read there."""

    def close(self) -> None:
        if self.claiming is not None:
            self.claiming.close()
        self.lease.give_back()

    def leave(self) -> None:
        self.lease.give_back()

    def _held(self) -> Keys:
        """What the keys have by the ledger."""
        return self.execution.nothing() if self.epoch < 0 else self._restored(_clock(self.epoch, self.lease.head.said))

    def _restored(self, clock: Clock) -> Keys:
        ledger = as_of_snapshot(self.spark, self.lake, self.lease.table, self.lease.head.snapshot)
        return self.execution.restore(ledger, clock)

    def _write(self, computed: Computed, said: dict[str, str], clock: Clock) -> Folded:
        seen, kind = Observation(), F.col("kind")
        counted = {"productions": PRODUCTION, "claimed": CLAIMED, "late": LATE, "rejected": REJECTED}
        rows = computed.rows.observe(seen, *(F.count_if(kind == one).alias(name) for name, one in counted.items()))
        if self.computation.productions == "weak":
            rows = rows.where(kind != PRODUCTION)
        append(rows, self.lease.branch, said)
        return Folded(clock, panes=0, retractions=0, fed_back=computed.keys.in_flight.count, **seen.get)

    def _computed_again(self, epoch: int, said: Mapping[str, str]) -> Passed:
        """An epoch that was folded before, from the state before it and by the clocks that the ledger recorded."""
        own, name = recorded(self.lake, self.lease.table), self.computation.name
        clocks = {one: _clock(one, said_) for one, said_ in own.items()}
        if epoch not in clocks or (epoch > 0 and epoch - 1 not in clocks):
            raise ComputationError(
                f"{name}: its weak productions of epoch {epoch} are wanted again, and the snapshot of "
                f"{self.lease.table} that says its clock is gone: let those who read it start anew under another "
                'name, or leave productions="weak" out, under another name'
            )
        keys = self._restored(clocks[epoch - 1]) if epoch > 0 else self.execution.nothing()
        if self.after is None:
            rows = f"SELECT * FROM {logged(self.lake, self.computation.log)} WHERE _epoch = {epoch}L"
            bundle: Bundled = self.spark.sql(rows)
        else:
            earlier = recorded(self.lake, self.after.lease.table).get(epoch, {})
            bundle = self.after.passed_on_again(epoch, earlier).bundle
        computed = self.execution.step(keys, as_frame(self.spark, bundle), clocks[epoch])
        return Passed(given(self.spark, self.computation, computed.rows), clocks[epoch], said)


def _clock(epoch: int, said: Mapping[str, str]) -> Clock:
    watermark, now = (int(said[name]) for name in CLOCK)
    return Clock(epoch, watermark, now, names_of(said))
