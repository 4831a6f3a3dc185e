"""Cut epochs that cover all logs of a stream: the records of each log go to the log's own table (X2, T3).

A single Structured Streaming query reads the sources of all logs, so a micro-batch contains rows for all logs; each row
names its log. An epoch has the same number in all logs. The epoch is published in every log before it is published in
any ledger. If a stream dies between the commits of two logs, the next stream adds an epoch without records to the logs
that are behind. The next stream then continues to read each source from the position that the source's log records.
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
from tailrace.fold.fold_group import FoldGroup
from tailrace.ingest.folders.folder_changes import without_links
from tailrace.ingest.framed.topic_reader import framed_reader
from tailrace.ingest.landing import Landing
from tailrace.ingest.row_landing import LandedCounts
from tailrace.ingest.sources import Files, Source, SourceError
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import READ
from tailrace.model.base.clock import Clock
from tailrace.model.logs.log import Log
from tailrace.model.step.progress import ALL, Progress, least
from tailrace.stream.folder_looks import FolderLooks
from tailrace.stream.intake import Bundle, Intake, Portion
from tailrace.stream.log_sources import LogSourceError, SourceIdentities, unreachable


@dataclass(frozen=True)
class Cut:
    """An epoch that has not been landed yet. The object maps the name of each log to the log's bundle.

    `links` maps the name of a log to the number of files that were skipped because they were reached through symbolic
    links.
    """

    epoch: int
    bundles: Mapping[str, Bundle]
    links: Mapping[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> dict[str, PassedEpoch]:
        """The epoch of each log, by the name of the log, in the form in which the definitions read it."""
        return {name: bundle.passed for name, bundle in self.bundles.items()}

    @property
    def clock(self) -> Clock:
        """The clock of a reader that reads all logs, computed from this epoch alone."""
        clocks = [bundle.clock for bundle in self.bundles.values()]
        reached = least((one.clock.watermark, one.progress.all_idle) for one in self.bundles.values())
        return replace(clocks[0], watermark=reached, processing_time=max(one.processing_time for one in clocks))

    @property
    def progress(self) -> Progress:
        """The combined progress of all logs. If the source of a log has no partitions, the log counts as one
        partition.
        """
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
        """Free the memory for the records, after the records have been folded."""
        for bundle in self.bundles.values():
            bundle.free()


class Cutter:
    """The reader of a stream's sources and the writer of its logs; `sources` maps the name of each log to its source.

    Leases are taken in the order of the logs' names. The process that owns the lease of the first log also owns the
    leases of the other logs (rule X1).
    """

    def __init__(self, spark: SparkSession, lake: Lake, logs: Mapping[str, Log], sources: Mapping[str, Source]) -> None:
        self.spark, self.lake, self.sources = spark, lake, sources
        # Check the sources before any lease is taken: a stream that cannot read its source must not stop another
        # running stream.
        self._framed = {name: framed_reader(log, sources[name], lake.settings) for name, log in logs.items()}
        self.identities = SourceIdentities(spark, lake, logs, sources)
        self.looks = FolderLooks(logs, sources, lake.tell)
        self.landings = dict[str, Landing]()
        for name in sorted(logs):
            first = next(iter(self.landings.values()), None)
            self.landings[name] = Landing(spark, lake, logs[name], None if first is None else first.log)
        self.intakes = dict[str, Intake]()
        self.active = tuple(self.landings)

    def open(self, folds: FoldGroup, *, signals: bool) -> None:
        """Open the readers of the sources; the leases must have been taken before.

        If the readers are opened again later, they continue at the ends of the logs.
        """
        shared = len(self.landings) > 1
        for intake in self.intakes.values():
            intake.close()
        self.intakes = {
            name: Intake(
                self.spark, self.lake, self.sources[name], landing, folds, signals=signals, shared=shared,
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
        """The landing of the first log; the lease of this log decides which process owns the stream."""
        return next(iter(self.landings.values()))

    @property
    def epoch(self) -> int:
        """The highest epoch number in any log. After a call of `align`, all logs have this epoch."""
        return max(landing.epoch for landing in self.landings.values())

    @property
    def batch(self) -> int:
        """The highest micro-batch number in any log."""
        return max(landing.batch for landing in self.landings.values())

    @property
    def stream(self) -> DataFrame:
        """The streaming frame of the active sources.

        If there are several logs, column `_log` contains the name of a row's log. `active` names the logs whose sources
        are read at present; all other logs get epochs without records.
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
        """Build the epoch for a micro-batch.

        `offsets` maps the name of a log to the offset up to which the micro-batch reads its source. `files` maps the
        name of a log whose source is a folder to the files of the micro-batch. Files that are reached through symbolic
        links are skipped.
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
                    bundles[name] = intake.without_records(intake.news(), self.epoch + 1)
                    continue
                rows_of = rows.where(f"_log = '{name}'").drop("_log", "path") if several else rows
                read = dict(zip(READ, (query, str(number), offsets[name]), strict=True))
                read |= self.identities.properties(name, offsets[name]) | self.looks.properties(name)
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
        """Build an epoch again without the unreadable files that caused its landing to fail (rule X7).

        Returns None if no unreadable file was found.
        """
        made = {name: self.intakes[name].made_again(error) for name in self.active}
        again = {name: bundle for name, bundle in made.items() if bundle is not None}
        return replace(cut, bundles={**cut.bundles, **again}) if again else None

    def without_records(self, due: Callable[[], int | None], *, in_flight: bool) -> Cut | None:
        """Build an epoch without records if new rows of the control tables or the passing of time require one.

        Otherwise, return None. Through the control tables, users send signals and declare partitions complete. `due`
        returns the next processing time, in microseconds, at which a fold may have something to do. `in_flight` is True
        if records that a computation fed back are waiting for the next epoch; an epoch is then always built.
        """
        if self.epoch < 0:
            return None
        news = {name: intake.news() for name, intake in self.intakes.items()}
        if not in_flight and not any(one.reason for one in news.values()):
            now = max(one.progress.now for one in news.values())
            at = due() if now > max(intake.progress.now for intake in self.intakes.values()) else None
            if at is None or at > now:
                return None
        epoch = self.epoch + 1
        return Cut(epoch, {name: intake.without_records(news[name], epoch) for name, intake in self.intakes.items()})

    def align(self) -> None:
        """Add an epoch without records to each log that is behind, so that all logs have the last epoch."""
        epoch = self.epoch
        for intake in self.intakes.values():
            if intake.landing.epoch < epoch:
                bundle = intake.without_records(intake.news(), epoch)
                intake.landing.take_back_rejected()
                intake.landing.write(bundle.stamped, bundle.properties)
                intake.landing.publish()

    def land(self, cut: Cut) -> dict[str, LandedCounts]:
        """Write an epoch to all logs, and then publish the epoch in one log after the other.

        Raises `FencedError` if a lease is lost.
        """
        found = {}
        for name, landing in self.landings.items():
            bundle = cut.bundles[name]
            landed = landing.write(bundle.stamped, bundle.properties)
            found[name] = replace(
                landed,
                duplicates=bundle.duplicates,
                rounded=bundle.rounded,
                blank=bundle.blank.total,
                links=cut.links.get(name, 0),
            )
        for landing in self.landings.values():
            landing.publish()
        return found

    def full(self, cut: Cut, landed: Mapping[str, LandedCounts]) -> bool:
        """Return True if a source may already have more records than this epoch contains."""
        return any(self.sources[name].full(cut.bundles[name].files, one.total) for name, one in landed.items())

    def close(self) -> None:
        """Stop the checks of the folders, and remove the branches of all logs."""
        for intake in self.intakes.values():
            intake.close()
        self.looks.close()
        for landing in self.landings.values():
            landing.close()


_UNREADABLE = (SourceError, PySparkException, Py4JJavaError, pa.ArrowException, OSError)
"""The errors that may be raised if the records of a source cannot be read."""

_TYPES = {"path": "string", "value": "binary", "_source": "string", "_offset": "bigint", "_arrival": "timestamp"}
"""The columns of a micro-batch's rows: `path` is used for files, and the other columns are used for topics."""
