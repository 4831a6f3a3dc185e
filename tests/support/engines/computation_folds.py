"""Folds a computation in a process without Spark, epoch by epoch; run as a module, until it is killed or done."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from tailrace import Computation
from tailrace.engines.choose import Engine
from tailrace.fold.computation_fold import ComputationFold
from tailrace.fold.fold import PassedEpoch, Phases
from tailrace.fold.fold_engines import StreamEngines
from tailrace.fold.follower_pace import Pace
from tailrace.fold.ledger_fold import FoldSetup
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.change.registry import Registry
from tailrace.lake.commit.epoch_properties import clock_properties, epoch_commits
from tailrace.lake.schema.contracts import log_contract
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import END_OF_TIME, instant, moment
from tailrace.model.logs.derived_logs import Union
from tailrace.settings import Settings
from tailrace.verify.audit import audit
from tests.support.cases.clicks import START, VISITS
from tests.support.cases.searches import HASTY, Epoch, Epochs, epochs, made, number_of, part
from tests.support.engines.spark_runs import arrow_bundle

SECOND = 1_000_000


def no_spark() -> Any:
    raise AssertionError("a session of Spark was asked for")


class Folded:
    """A computation's ledger and its logs, folded epoch by epoch; each fold is one as a restarted process makes it."""

    def __init__(self, settings: Settings, computation: Computation) -> None:
        self.lake, self.computation = Lake(settings), computation
        for log in computation.sources:
            self.lake.ensure(log_contract(log), {"epoch": "-1"})
        self.engines = StreamEngines(no_spark, self.lake)
        self.fold = self.anew()

    @property
    def registry(self) -> Registry | None:
        return None if self.fold.claiming is None else self.fold.claiming.registry

    def anew(self) -> ComputationFold:
        pace = Pace.of(None, self.lake.settings.freshness)
        setup = FoldSetup(self.lake, self.engines, pace, read_again=lambda _, epoch: self._again(epoch))
        self.fold = ComputationFold(self.computation, setup)
        return self.fold

    def _again(self, epoch: int) -> PassedEpoch:
        return self._read(
            {
                log.name: PassedEpoch.of(
                    self.engines.read(log, epoch - 1, epoch), epoch_commits(self.lake, log.name)[epoch].clock
                )
                for log in self.computation.sources
            }
        )

    def _read(self, landed: Mapping[str, PassedEpoch]) -> PassedEpoch:
        """The epoch as the computation reads it, of that of each log."""
        log = self.computation.log
        if isinstance(log, Union):
            return self.engines.together(log, {side: landed[one.name] for side, one in log.members.items()})
        return landed[log.name]

    def epoch(self, records: Sequence[Mapping[str, Any]], clock: Clock) -> None:
        """Land an epoch of the one log that there is, and fold it."""
        self.cut({self.computation.log.name: (records, clock)})

    def cut(self, epoch: Epoch) -> None:
        """Land what the logs do not have yet of an epoch, and fold it."""
        landed = {}
        for log in self.computation.sources:
            records, clock = epoch[log.name]
            bundle = arrow_bundle(log, records, clock.epoch)
            source = pa.array([log.name] * bundle.num_rows, pa.string())
            bundle = bundle.set_column(bundle.column_names.index("_source"), "_source", source)
            head = self.lake.head(log.name)
            if head.number("epoch") < clock.epoch:
                files = FileChange(tuple(self.lake.write_files(log.name, bundle)))
                self.lake.change(log.name, files, clock_properties(clock), head.snapshot)
            landed[log.name] = PassedEpoch.of(bundle, clock)
        self.fold.stage(self._read(landed), Phases())
        assert self.fold.publish()

    def rows(self, kind: str) -> list[dict[str, Any]]:
        table = self.lake.table(f"{self.computation.name}__ledger")
        found: list[dict[str, Any]] = table.scan(row_filter=f"kind = '{kind}'").to_arrow().to_pylist()
        return found

    def clean(self) -> None:
        found = audit(self.lake, self.computation)
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
    name = VISITS.log.name
    found: Epochs = [
        {name: part(name, clicks(epoch), Clock(epoch, instant(START) + 80 * (epoch + 1) * SECOND, epoch))}
        for epoch in range(count)
    ]
    return [*found, {name: part(name, (), Clock(count, END_OF_TIME, count))}]


def searched(count: int, region: str) -> Epochs:
    """About so many epochs of searches and clicks, as a region reads them."""
    return epochs(made(3, 10 * count * SECOND), Random(region))


def main(which: str, count: int, region: str) -> None:
    """Go on from where the ledger is, and print each epoch that is in it."""
    one = Folded(Settings(), VISITS if which == "visits" else HASTY)
    for epoch in visited(count) if which == "visits" else searched(count, region):
        if number_of(epoch) > one.fold.epoch:
            one.cut(epoch)
            print(number_of(epoch), flush=True)
    one.fold.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
