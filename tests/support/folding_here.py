"""Folds a computation in a process without Spark, epoch by epoch; run as a module, until it is killed or done."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from tailrace import Computation
from tailrace.engines.choose import Engine
from tailrace.fold.computation_fold import ComputationFold
from tailrace.fold.fold import PassedEpoch, Phases
from tailrace.fold.fold_engines import Sides
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.change.registry import Registry
from tailrace.lake.commit.epoch_properties import recorded
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant, moment
from tailrace.settings import Settings
from tailrace.verify.computation_audit import audit_computation
from tests.support.clicks import START, VISITS
from tests.support.native import arrow_bundle
from tests.support.searching import HASTY, Epochs, epochs, log

SECOND = 1_000_000


def no_spark() -> Any:
    raise AssertionError("a session of Spark was asked for")


class Folded:
    """A computation's ledger and its log, folded epoch by epoch; each fold is one as a restarted process makes it."""

    def __init__(self, settings: Settings, computation: Computation) -> None:
        self.lake, self.computation = Lake(settings), computation
        self.lake.ensure(log_contract(computation.log), {"epoch": "-1"})
        self.sides = Sides(no_spark, self.lake)
        self.fold = self.anew()

    @property
    def registry(self) -> Registry | None:
        return None if self.fold.claiming is None else self.fold.claiming.registry

    def anew(self) -> ComputationFold:
        self.fold = ComputationFold(self.lake, self.computation, self.sides, again=self._again)
        return self.fold

    def _again(self, epoch: int) -> PassedEpoch:
        bundle = self.sides.logged(self.computation.log, epoch - 1, epoch)
        return PassedEpoch.of(bundle, recorded(self.lake, self.computation.log.name)[epoch].clock)

    def epoch(self, records: Sequence[Mapping[str, Any]], clock: Clock) -> None:
        """Land an epoch that the log does not have yet, and fold it."""
        name = self.computation.log.name
        bundle = arrow_bundle(self.computation.log, records, clock.epoch)
        head = self.lake.head(name)
        if head.number("epoch") < clock.epoch:
            said = {"epoch": clock.epoch, "watermark": clock.watermark, "processing_time": clock.processing_time}
            files = FileChange(tuple(self.lake.written(name, bundle)))
            self.lake.change(name, files, {one: str(value) for one, value in said.items()}, head.snapshot)
        self.fold.stage(PassedEpoch.of(bundle, clock), Phases())
        assert self.fold.publish()

    def rows(self, kind: str) -> list[dict[str, Any]]:
        table = self.lake.table(f"{self.computation.name}__ledger")
        found: list[dict[str, Any]] = table.scan(row_filter=f"kind = '{kind}'").to_arrow().to_pylist()
        return found

    def clean(self) -> None:
        found = audit_computation(self.lake, self.computation)
        assert found.ok, [check for check in found.checks if not check.ok]
        assert found.engine is not None
        assert found.engine.engine is Engine.DUCKDB


def clicks(epoch: int) -> list[dict[str, Any]]:
    chance = Random(epoch)
    times = [instant(START) + (80 * epoch + chance.randrange(-60, 80)) * SECOND for _ in range(15)]
    return [
        {"id": 15 * epoch + place, "who": chance.choice("abcde"), "at": moment(at), "seen": moment(at)}
        for place, at in enumerate(times)
    ]


def visited(count: int) -> Epochs:
    """So many epochs of clicks, and one at the end of time."""
    made = [(clicks(epoch), Clock(epoch, instant(START) + 80 * (epoch + 1) * SECOND, epoch)) for epoch in range(count)]
    return [*made, ([], Clock(count, END_OF_TIME, count))]


def searched(count: int, region: str) -> Epochs:
    """About so many epochs of searches, as a region reads them."""
    return epochs(log(3, 10 * count * SECOND), Random(region))


def main(which: str, count: int, region: str) -> None:
    """Go on from where the ledger is, and print each epoch that is in it."""
    one = Folded(Settings(), VISITS if which == "visits" else HASTY)
    made = visited(count) if which == "visits" else searched(count, region)
    for records, clock in made:
        if clock.epoch > one.fold.epoch:
            one.epoch(records, clock)
            print(clock.epoch, flush=True)
    one.fold.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
