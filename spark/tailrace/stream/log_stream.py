"""A stream from the log: it folds the epochs that another process lands, with the recorded clocks.

It takes the leases of its definitions' ledgers alone, and not the log's: so definitions are added beside a stream that
runs, and taken away again, without a restart (MillWheel, 4.1). It folds what the landing stream would fold, except that
time alone makes no epoch here: each epoch is one that the log gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from tailrace.engines.spark.session import Starting
from tailrace.fold.fold import EpochResult, Phases
from tailrace.fold.fold_group import FoldGroup, StreamError, landed, landed_logs
from tailrace.ingest.landing import Landed
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import last_epoch
from tailrace.lake.schema.lake_errors import FencedError
from tailrace.model.definition.chain import Definition
from tailrace.stream.epoch_report import EpochReport, Watch

_POLL = 0.2
"""Seconds between two looks at the log for another epoch."""


class _StoppedError(Exception):
    """The stream was told to stop, between two epochs."""


class Tailing:
    """The folds of definitions whose logs another process lands."""

    def __init__(
        self,
        spark: Starting,
        lake: Lake,
        definitions: Sequence[Definition],
        *,
        follow_every: int | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.lake, self.logs, self.watch = lake, landed_logs(definitions), watch
        for log in self.logs:
            if not lake.has(log.name):
                raise StreamError(
                    f"there is no log {log.name} yet to read: start a stream that lands it, with --from or --kafka"
                )
        self.folds = FoldGroup(spark, lake, definitions, follow_every=follow_every)
        self._landed: dict[int, int] = {}
        self._stop: Callable[[], object] = lambda: False

    def run(self, *, once: bool = False, stop: Callable[[], object] = lambda: False) -> None:
        """Fold the epochs that the log has and gets, until `stop` holds; `once` ends where the log ends.

        `stop` is asked between two epochs. Raises `FencedError` once other processes fold all of the definitions.
        """
        self._stop = stop
        with suppress(_StoppedError):
            while not stop():
                last = last_epoch(self.lake, self.logs)
                behind = any(fold.epoch < last for fold in self.folds)
                if behind:
                    self._landed = landed(self.lake, self.logs)
                    self.folds.catch_up(last, self._caught_up)
                else:
                    # Another process may have taken folds over while no epoch came.
                    self.folds.look()
                if not self.folds:
                    names = ", ".join(log.name for log in self.logs)
                    raise FencedError(f"other processes fold what this one folded of log {names}: it ends")
                if once and not behind:
                    return
                if not behind:
                    time.sleep(_POLL)

    def close(self) -> None:
        """Bring the answers up with the ledgers, and close the folds."""
        self.folds.close()

    def _caught_up(self, epoch: int, folded: dict[str, EpochResult], seconds: float, phases: Phases) -> None:
        if self.watch is not None:
            brought = Landed(self._landed.get(epoch, 0), 0)
            self.watch(EpochReport(epoch, brought, folded, seconds, phases.seconds))
        if self._stop():
            raise _StoppedError
