"""An epoch of a stream on its way from the sources to the ledgers; the stream's threads share this object (rule X2)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tailrace.engines.protocol import lost_state
from tailrace.fold.fold import Phases
from tailrace.fold.fold_group import FoldGroup
from tailrace.ingest.row_landing import LandedCounts
from tailrace.stream.cut import Cut, Cutter
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.failures import reads_source


class Epoch:
    """An epoch of all logs whose records have been read. One thread lands the epoch, and another thread folds it.

    The query's thread calls `land`, and at the same time the folding thread calls `fold`. Folding starts before the
    records have been landed. The results are published only after the epoch has been published in the logs.
    """

    def __init__(self, cut: Cut, cutter: Cutter, folds: FoldGroup, phases: Phases) -> None:
        self.cut, self._cutter, self._folds, self._phases = cut, cutter, folds, phases
        self._landed: Future[LandedCounts] = Future()
        self._as_cut = True

    def land(self) -> Mapping[str, LandedCounts]:
        """Write the epoch to the logs, and publish the epoch there; return the counts for each log.

        A file that turns out to be unreadable is rejected as a whole (rule X7).
        """
        landing = self.cut
        try:
            landed = None
            while landed is None:
                try:
                    landed = self._cutter.land(landing)
                except (Py4JJavaError, PySparkException) as error:
                    again = self._cutter.cut_again(landing, error)
                    if again is None:
                        raise
                    landing = again
        except BaseException as error:
            self._landed.set_exception(error)
            raise
        finally:
            self._as_cut = landing is self.cut
            if not self._as_cut:
                landing.free()
        self._phases.end("land")
        self._landed.set_result(reduce(LandedCounts.__add__, landed.values()))
        return landed

    def fold(self, since: float) -> list[EpochReport]:
        """Fold the epoch into each definition, publish the results once the logs have the epoch, and update the answers
        tables.

        `since` is the time at which the preceding epoch was finished, according to `time.perf_counter`. Usually the
        result contains a single report. If the epoch is in the logs but could not be folded from the records in memory,
        it is folded from the logs, together with earlier epochs that a ledger lacks. In this case, the result contains
        one report per folded epoch.
        """
        phases, folds = Phases(), self._folds
        reading = folds.landing(self.cut.passed)
        try:
            results = folds.stage(reading, phases)
            landed = self._landed.result()
            if not self._as_cut:
                raise _CutOtherwiseError
            phases.end("wait")
            results |= folds.publish(reading, phases)
        except Exception as error:
            if not self._may_be_folded_from_the_logs(error):
                raise
            landed = self._landed.result()
            # The logs already have the epoch, but the ledgers still have the state before the epoch. So the epoch is
            # folded in the same way as after a restart.
            folds.anew()
            reports = [EpochReport.of_missed(one, landed) for one in folds.missed_epochs(self.cut.epoch)]
            self.cut.free()
            return reports
        self.cut.free()
        phases.end("publish")
        folds.follow()
        phases.end("follow")
        folded = {fold.definition.name: results[fold.definition.name] for fold in folds}
        seconds = {**self._phases.seconds, **phases.seconds}
        took = time.perf_counter() - since
        return [EpochReport(self.cut.epoch, landed, folded, took, seconds, progress=self.cut.progress)]

    def _may_be_folded_from_the_logs(self, error: Exception) -> bool:
        """Return True if an epoch that failed with this error may be folded from the logs instead of the records in
        memory.

        This is the case if a state was lost, if a file of a source could not be read while the epoch was folded, or if
        the records in memory differ from those in the logs.
        """
        sources = self._cutter.sources.values()
        return isinstance(error, _CutOtherwiseError) or reads_source(error, sources) or lost_state(error)


class _CutOtherwiseError(Exception):
    """The error for an epoch that was landed without some of the records that were folded: unreadable files were left
    out.
    """
