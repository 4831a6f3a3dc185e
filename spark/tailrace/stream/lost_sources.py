"""Lost sources: a stream of several logs can continue without a source for some time (`Settings.source_failure`).

Until the lost source can be read again, its log gets epochs without records. The watermark of the log's readers does
not advance until the log counts as idle. The log's commits record up to which position the source was read. When the
source can be reached again, reading continues from this position, and no record is lost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from tailrace.ingest.sources import Source
from tailrace.lake.catalog.events import SourceBack, SourceLost
from tailrace.stream.cut import Cutter
from tailrace.stream.log_sources import LogSourceError, unreachable


class LostSources:
    """The lost sources of a stream; `reasons` maps the name of a log to the reason why its source was lost.

    `Lake.tell` is called for each source that is lost or can be read again. Every `RETRY` seconds, the stream tests
    whether the lost sources can be reached.
    """

    def __init__(self, cutter: Cutter) -> None:
        self.reasons = dict[str, str]()
        self._cutter, self._lake, self._tried = cutter, cutter.lake, 0.0

    def lose(self, failure: BaseException) -> bool:
        """If the settings allow it, mark the sources that caused the failure of a query as lost.

        Returns True if the stream can continue with the other sources.
        """
        active = {name: self._cutter.sources[name] for name in self._cutter.active}
        if self._lake.settings.source_failure != "go_on" or len(active) < 2:
            return False
        lost = _failed(self._cutter.spark, active, failure)
        if not lost or len(lost) == len(active):
            return False
        self.reasons |= lost
        self._read_others()
        for log, why in lost.items():
            self._lake.tell(SourceLost(log, why))
        return True

    def returned(self) -> list[str]:
        """Return the names of the logs whose lost sources can be reached again; the list is empty until the next test
        is due.
        """
        if not self.reasons or time.perf_counter() - self._tried < RETRY:
            return []
        self._tried = time.perf_counter()
        return [log for log in self.reasons if self._cutter.unreachable(log) is None]

    def take_back(self, logs: Sequence[str]) -> None:
        """Mark the sources of these logs as no longer lost, so that they are read again."""
        for log in logs:
            del self.reasons[log]
        self._read_others()
        for log in logs:
            self._lake.tell(SourceBack(log))

    def _read_others(self) -> None:
        self._cutter.active = tuple(name for name in self._cutter.landings if name not in self.reasons)
        self._tried = time.perf_counter()


RETRY = 30.0
"""The number of seconds between two tests whether a lost source can be reached."""


def _failed(spark: SparkSession, sources: Mapping[str, Source], error: BaseException) -> dict[str, str]:
    """Find the logs whose sources made a stream fail. Returns a dict from log to reason.

    The dict is empty if no source made the stream fail.
    """
    if isinstance(error, LogSourceError):
        return {error.log: str(error)}
    found = {log: unreachable(spark, source) for log, source in sources.items()}
    return {log: reason for log, reason in found.items() if reason is not None}
