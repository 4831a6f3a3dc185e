"""A stream that reads logs: it folds epochs that another process lands, and uses the clocks that the logs record.

The stream takes the leases of its definitions' ledgers, but not the leases of the logs. So definitions can be added and
removed while another stream lands the logs, without a restart of that stream (MillWheel, 4.1). The epochs are folded in
the same way as in the landing stream, but this stream builds no epochs itself: every epoch comes from the logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tailrace.engines.spark.session import Starting
from tailrace.fold.fold_group import FoldGroup
from tailrace.fold.streamed_definitions import StreamError, landed_logs, records_by_epoch
from tailrace.ingest.row_landing import LandedCounts
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import last_epoch
from tailrace.lake.schema.lake_errors import FencedError
from tailrace.model.definition.definition import Definition
from tailrace.stream.epoch_report import EpochReport, Watch

_POLL = 0.2
"""The number of seconds between two checks whether the logs have a new epoch."""


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

    def run(self, *, once: bool = False, stop: Callable[[], object] = lambda: False) -> None:
        """Fold all present and future epochs of the logs until `stop` returns true.

        If `once` is True, this method returns after it has folded the present epochs. `stop` is called between two
        epochs. Raises `FencedError` if other processes have taken over all of the definitions.
        """
        while not stop():
            last = last_epoch(self.lake, self.logs)
            behind = any(fold.epoch < last for fold in self.folds)
            if behind:
                self._catch_up(last, stop)
            else:
                # Check the leases, because another process may have taken over a fold while no epoch arrived.
                self.folds.look()
                self.folds.follow_idly()
            if not self.folds:
                names = ", ".join(log.name for log in self.logs)
                raise FencedError(f"other processes fold what this one folded of log {names}: it ends")
            if once and not behind:
                return
            if not behind:
                time.sleep(_POLL)

    def _catch_up(self, last: int, stop: Callable[[], object]) -> None:
        counts = records_by_epoch(self.lake, self.logs)
        for one in self.folds.missed_epochs(last):
            if self.watch is not None:
                self.watch(EpochReport.of_missed(one, LandedCounts(counts.get(one.epoch, 0), 0), recovered=False))
            if stop():
                return

    def close(self) -> None:
        """Update the answers tables to the state of the ledgers, and close the folds."""
        self.folds.close()
