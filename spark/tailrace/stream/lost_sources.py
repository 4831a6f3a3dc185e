"""The sources that a stream of several logs does without until they can be read again (`Settings.source_failure`).

The log of a lost source gets epochs without records, so the watermark of its readers waits until the log counts as
idle. The log's commits record how far the source was read. Once the source can be reached again, reading continues from
there, and nothing is lost.
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
    """The lost sources of a stream, each with the reason, by the name of the log.

    `Lake.tell` is called for each source that is lost or returns. Every `RETRY` seconds, the stream tries to read the
    lost sources again.
    """

    def __init__(self, cutter: Cutter) -> None:
        self.reasons = dict[str, str]()
        self._cutter, self._lake, self._tried = cutter, cutter.lake, 0.0

    def lose(self, failure: BaseException) -> bool:
        """If the settings allow it, set aside the sources that made a query fail.

        Return True if the stream can continue with other sources.
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
        """Return the logs whose sources can be read again; the result is empty until the next attempt is due."""
        if not self.reasons or time.perf_counter() - self._tried < RETRY:
            return []
        self._tried = time.perf_counter()
        return [log for log in self.reasons if self._cutter.unreachable(log) is None]

    def take_back(self, logs: Sequence[str]) -> None:
        """Resume reading the sources of these logs."""
        for log in logs:
            del self.reasons[log]
        self._read_others()
        for log in logs:
            self._lake.tell(SourceBack(log))

    def _read_others(self) -> None:
        self._cutter.active = tuple(name for name in self._cutter.landings if name not in self.reasons)
        self._tried = time.perf_counter()


RETRY = 30.0
"""The number of seconds between two attempts to read a lost source again."""


def _failed(spark: SparkSession, sources: Mapping[str, Source], error: BaseException) -> dict[str, str]:
    """Return the logs whose sources made a stream fail, each with the reason; empty if that cannot be determined."""
    if isinstance(error, LogSourceError):
        return {error.log: str(error)}
    found = {log: unreachable(spark, source) for log, source in sources.items()}
    return {log: reason for log, reason in found.items() if reason is not None}
