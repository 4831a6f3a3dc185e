"""Cut epochs over all logs of a stream: each log's part goes to the log's own table, under the same number (X2, T3).

A single Structured Streaming query reads the sources of all logs, so a micro-batch is a cut over all of them; each of
its rows states its log. An epoch is in every log before it is in any ledger. If a stream died between the commits of
two logs, the next stream adds an epoch without records to the logs that are behind. The next stream then continues from
the position that each log records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.fold.fold import PassedEpoch
from tailrace.fold.fold_engines import StreamEngines
from tailrace.ingest.checkpoint import NOT_READ
from tailrace.ingest.folders.folder_changes import without_links
from tailrace.ingest.framed.topic_reader import framed_reader
from tailrace.ingest.landing import LandedCounts, Landing
from tailrace.ingest.sources import Files, Source, SourceError
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import FOLDER, OFFSET, READ, TOPIC
from tailrace.model.base.clock import Clock
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import ALL, Progress, least
from tailrace.stream.folder_looks import FolderLooks
from tailrace.stream.intake import Bundle, Intake, Portion
from tailrace.stream.log_sources import LogSourceError, SourceIdentities, unreachable


@dataclass(frozen=True)
class Cut:
    """An epoch of all logs before it is landed: the bundle of each log, by the name of the log.

    `links` has, for each log, the number of files that were skipped because they were reached through symbolic links.
    """

    epoch: int
    bundles: Mapping[str, Bundle]
    links: Mapping[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> dict[str, PassedEpoch]:
        """The epoch of each log in the form that the log's readers take."""
        return {name: bundle.passed for name, bundle in self.bundles.items()}

    @property
    def clock(self) -> Clock:
        """The clock for a reader of all logs, as far as it follows from this epoch alone."""
        clocks = [bundle.clock for bundle in self.bundles.values()]
        reached = least((one.clock.watermark, one.progress.all_idle) for one in self.bundles.values())
        return replace(clocks[0], watermark=reached, processing_time=max(one.processing_time for one in clocks))

    @property
    def progress(self) -> Progress:
        """The progress of all logs together. A log whose source has no partitions counts as a partition itself."""
        each = {name: bundle.progress for name, bundle in self.bundles.items()}
        if len(each) == 1:
            return next(iter(each.values()))
        partitions = {
            log if name == ALL else name: one
            for log, progress in each.items()
            for name, one in progress.partitions.items()
        }
        idle = [one.idle for one in each.values()]
        return Progress(
            self.clock.watermark, partitions, now=self.clock.processing_time,
            idle=None if None in idle else max(one for one in idle if one is not None),
        )  # fmt: skip

    def free(self) -> None:
        """Free the memory that holds the records, once the records have been folded."""
        for bundle in self.bundles.values():
            bundle.free()


class Cutter:
    """The reader and writer of all logs of a stream; `sources` has the source of each log, by the name of the log.

    Leases are taken in the order of the names of the logs. The owner of the first lease also owns the other leases
    (rule X1).
    """

    def __init__(self, spark: SparkSession, lake: Lake, logs: Mapping[str, Log], sources: Mapping[str, Source]) -> None:
        self.spark, self.lake, self.sources = spark, lake, sources
        # The sources are checked before any lease is taken: a stream that cannot read its source must not stop a
        # running stream.
        self._framed = {name: framed_reader(log, sources[name], lake.settings) for name, log in logs.items()}
        self.identities = SourceIdentities(spark, lake, sources)
        self.looks = FolderLooks(logs, sources, lake.tell)
        self.landings = dict[str, Landing]()
        for name in sorted(logs):
            first = next(iter(self.landings.values()), None)
            self.landings[name] = Landing(spark, lake, logs[name], None if first is None else first.log)
        self.intakes = dict[str, Intake]()
        self.active = tuple(self.landings)

    def open(self, engines: StreamEngines, *, signals: bool) -> None:
        """Open the readers of the sources, after the leases are taken.

        If the readers are opened again, they continue where the logs end.
        """
        shared = len(self.landings) > 1
        self.intakes = {
            name: Intake(
                self.spark, self.lake, self.sources[name], landing, engines, signals=signals, shared=shared,
                framed=self._framed[name],
            )
            for name, landing in self.landings.items()
        }  # fmt: skip

    def unreachable(self, log: str) -> str | None:
        """Return why a log's source or schema registry cannot be reached at present, or None if both can be reached."""
        if (why := unreachable(self.spark, self.sources[log])) is not None:
            return why
        framed = self._framed[log]
        try:
            if framed is not None and framed.registry is not None:
                framed.registry.subjects()
        except SourceError as error:
            return str(error)
        return None

    @property
    def first(self) -> Landing:
        """The landing of the first log, whose lease decides which process owns the stream."""
        return next(iter(self.landings.values()))

    @property
    def epoch(self) -> int:
        """The last epoch in any log. After a call of `align`, all logs have this epoch."""
        return max(landing.epoch for landing in self.landings.values())

    @property
    def batch(self) -> int:
        """The last micro-batch that is in any log."""
        return max(landing.batch for landing in self.landings.values())

    @property
    def stream(self) -> DataFrame:
        """The streaming frame of the active sources. With several logs, column `_log` has the name of each row's log.

        `active` names the logs whose sources are read; the other logs get epochs without records.
        """
        if len(self.sources) == 1:
            return self.sources[self.first.log.table].stream(self.spark)
        return reduce(DataFrame.union, (self._tagged(name) for name in self.active))

    def _tagged(self, name: str) -> DataFrame:
        source = self.sources[name]
        own = {"path"} if isinstance(source, Files) else _TYPES.keys() - {"path"}
        items = (
            f"CAST({column if column in own else 'NULL'} AS {type}) AS {column}" for column, type in _TYPES.items()
        )
        return source.stream(self.spark).selectExpr(f"'{name}' AS _log", *items)

    def cut(
        self, batch: DataFrame, query: str, number: int, offsets: Mapping[str, str], files: Mapping[str, Sequence[str]]
    ) -> Cut:
        """Build the epoch of a micro-batch.

        `offsets` has the offset up to which each log's source was read, and `files` has the files of each source that
        is a folder. Files that are reached through symbolic links are skipped.
        """
        folders = {name: source.folder for name, source in self.sources.items() if isinstance(source, Files)}
        own = {name: without_links(folders[name], found) for name, found in files.items()}
        links = {name: len(found) - len(own[name]) for name, found in files.items()}
        several = len(self.landings) > 1
        messages = several and any(not isinstance(self.sources[name], Files) for name in self.active)
        rows = batch.persist() if messages else batch
        try:
            bundles = {}
            for name, intake in self.intakes.items():
                if name not in self.active:
                    read = self._read(intake.landing)
                    bundles[name] = intake.without_records(intake.news(), self.epoch + 1, read)
                    continue
                rows_of = rows.where(f"_log = '{name}'").drop("_log", "path") if several else rows
                read = dict(zip(READ, (query, str(number), offsets[name]), strict=True))
                read |= self.identities.properties(name) | self.looks.properties(name)
                try:
                    bundles[name] = intake.bundle(Portion(self.epoch + 1, read, rows_of, own.get(name, ())))
                    self.identities.check(name)
                except _UNREADABLE as error:
                    if not several:
                        raise
                    raise LogSourceError(name, self.sources[name], error) from error
            return Cut(self.epoch + 1, bundles, links)
        finally:
            if messages:
                rows.unpersist()

    def cut_again(self, cut: Cut, error: BaseException) -> Cut | None:
        """Build a cut again without the unreadable files that made its landing fail (X7).

        Return None if no unreadable file was found.
        """
        made = {name: self.intakes[name].made_again(error) for name in self.active}
        again = {name: bundle for name, bundle in made.items() if bundle is not None}
        return replace(cut, bundles={**cut.bundles, **again}) if again else None

    def without_records(self, due: Callable[[], int | None], *, in_flight: bool) -> Cut | None:
        """Build an epoch without records if the control tables or the passing of time require it; otherwise None.

        `due` returns the processing time, in microseconds, at which a fold may next have something to do. If there are
        records `in_flight` on a loop, an epoch is always built.
        """
        if self.epoch < 0:
            return None
        news = {name: intake.news() for name, intake in self.intakes.items()}
        if not in_flight and not any(one.reason for one in news.values()):
            now = max(one.progress.now for one in news.values())
            at = due() if now > max(intake.progress.now for intake in self.intakes.values()) else None
            if at is None or at > now:
                return None
        return Cut(
            self.epoch + 1,
            {
                name: intake.without_records(news[name], self.epoch + 1, self._read(intake.landing))
                for name, intake in self.intakes.items()
            },
        )

    def align(self) -> None:
        """Add an epoch without records to each log that is behind, so that all logs have the last epoch."""
        epoch = self.epoch
        for intake in self.intakes.values():
            if intake.landing.epoch < epoch:
                bundle = intake.without_records(intake.news(), epoch, self._read(intake.landing))
                intake.landing.take_back_rejected()
                intake.landing.write(bundle.stamped, bundle.properties)
                intake.landing.publish()

    def _read(self, landing: Landing) -> dict[str, str]:
        """Return the properties of a log's last commit that record how far the log's source was read."""
        properties = landing.log.head.properties
        read = {name: properties.get(name, nothing) for name, nothing in zip(READ, ("", "-1", NOT_READ), strict=True)}
        return read | {name: properties[name] for name in (TOPIC, FOLDER) if name in properties}

    def read_up_to(self, log: str) -> str:
        """Return the offset up to which a log's source was read, according to the log's last commit."""
        return self._read(self.landings[log])[OFFSET]

    def land(self, cut: Cut) -> dict[str, LandedCounts]:
        """Write an epoch to all logs, then publish it log by log. Raises `FencedError` if a lease is lost."""
        found = {}
        for name, landing in self.landings.items():
            bundle = cut.bundles[name]
            landed = landing.write(bundle.stamped, bundle.properties)
            found[name] = replace(
                landed, duplicates=bundle.duplicates, blank=bundle.blank.total, links=cut.links.get(name, 0)
            )
        for landing in self.landings.values():
            landing.publish()
        return found

    def full(self, cut: Cut, landed: Mapping[str, LandedCounts]) -> bool:
        """Return True if a source may already have more records than the epoch took."""
        return any(self.sources[name].full(cut.bundles[name].files, one.total) for name, one in landed.items())

    def close(self) -> None:
        """Stop looking at the folders, and remove the branches of all logs."""
        self.looks.close()
        for landing in self.landings.values():
            landing.close()


_UNREADABLE = (SourceError, PySparkException, Py4JJavaError, pa.ArrowException, OSError)
"""The errors that may be raised when the records of a source cannot be read."""

_TYPES = {"path": "string", "value": "binary", "_source": "string", "_offset": "bigint", "_arrival": "timestamp"}
"""The columns of the rows of all sources: `path` is for files, and the other columns are for topics."""
