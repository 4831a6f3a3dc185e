"""Cut epochs over all logs of a stream: each log's part is landed in its own table, under one number (rules X2, T3).

One Structured Streaming query reads the sources of all logs, so a micro-batch is a cut over them; its rows say which
log they are of. An epoch is in every log before it is in any ledger. Where a stream died between the commits of two
logs, the next one gives the logs behind an epoch without records, and reads on from what each log says was read.
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
    """An epoch of all logs before it is in them: the bundle of each, by the log's name.

    `links` counts the files of each that were passed over, as symbolic links lead to them.
    """

    epoch: int
    bundles: Mapping[str, Bundle]
    links: Mapping[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> dict[str, PassedEpoch]:
        """The epoch of each log as the log's readers take it."""
        return {name: bundle.passed for name, bundle in self.bundles.items()}

    @property
    def clock(self) -> Clock:
        """The clock of a reader of all logs, as far as this epoch alone says it."""
        clocks = [bundle.clock for bundle in self.bundles.values()]
        reached = least((one.clock.watermark, one.progress.all_idle) for one in self.bundles.values())
        return replace(clocks[0], watermark=reached, processing_time=max(one.processing_time for one in clocks))

    @property
    def progress(self) -> Progress:
        """The progress of all logs together; a log whose source has no partitions is one itself."""
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
        """Free what holds the records, once they are folded."""
        for bundle in self.bundles.values():
            bundle.free()


class Cutter:
    """The reader and writer of all logs of a stream, with their `sources` by the logs' names.

    Leases are taken in the order of the names. The owner of the first one owns the others, too (rule X1).
    """

    def __init__(self, spark: SparkSession, lake: Lake, logs: Mapping[str, Log], sources: Mapping[str, Source]) -> None:
        self.spark, self.lake, self.sources = spark, lake, sources
        # Before any lease is taken: a stream that cannot read its source must not stop a running one.
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
        """Open the readers of the sources, once the leases are taken; opened again, they go on where the logs end."""
        shared = len(self.landings) > 1
        self.intakes = {
            name: Intake(
                self.spark, self.lake, self.sources[name], landing, engines, signals=signals, shared=shared,
                framed=self._framed[name],
            )
            for name, landing in self.landings.items()
        }  # fmt: skip

    def unreachable(self, log: str) -> str | None:
        """Say why the source of a log, or the registry of its schemas, cannot be reached now; None where they can."""
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
        """The landing of the first log, whose lease decides who has the stream."""
        return next(iter(self.landings.values()))

    @property
    def epoch(self) -> int:
        """The last epoch in any log; all of them have it once `align` has been called."""
        return max(landing.epoch for landing in self.landings.values())

    @property
    def batch(self) -> int:
        """The last micro-batch that a log has."""
        return max(landing.batch for landing in self.landings.values())

    @property
    def stream(self) -> DataFrame:
        """The streaming frame of the active sources; with several logs, column `_log` says which a row is for.

        `active` names the logs whose sources are read; the others get their epochs without records.
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
        """Make the epoch of a micro-batch.

        `offsets` has the position up to which each log's source was read, `files` the files of each source of files.
        Files to which symbolic links lead are passed over.
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
        """Make a cut whose landing failed again, without the files that cannot be read (X7); None where none are."""
        made = {name: self.intakes[name].made_again(error) for name in self.active}
        again = {name: bundle for name, bundle in made.items() if bundle is not None}
        return replace(cut, bundles={**cut.bundles, **again}) if again else None

    def without_records(self, due: Callable[[], int | None], *, in_flight: bool) -> Cut | None:
        """Make an epoch without records, where the control tables or time give a reason; None where they give none.

        `due` returns the processing time at which a fold may have something next, in microseconds. Records `in_flight`
        on a loop are always a reason.
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
        """Give the logs that are behind the others an epoch without records: from then on all have the last one."""
        epoch = self.epoch
        for intake in self.intakes.values():
            if intake.landing.epoch < epoch:
                bundle = intake.without_records(intake.news(), epoch, self._read(intake.landing))
                intake.landing.take_back_rejected()
                intake.landing.write(bundle.stamped, bundle.properties)
                intake.landing.publish()

    def _read(self, landing: Landing) -> dict[str, str]:
        """Return the properties of a log's last commit that say how far its source was read."""
        properties = landing.log.head.properties
        read = {name: properties.get(name, nothing) for name, nothing in zip(READ, ("", "-1", NOT_READ), strict=True)}
        return read | {name: properties[name] for name in (TOPIC, FOLDER) if name in properties}

    def read_up_to(self, log: str) -> str:
        """Return the offset up to which a log's source was read, as the log's last commit says."""
        return self._read(self.landings[log])[OFFSET]

    def land(self, cut: Cut) -> dict[str, LandedCounts]:
        """Write an epoch to all logs, and publish it log by log. Raises `FencedError` where a lease is lost."""
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
        """Tell whether a source may have more already than an epoch took of it."""
        return any(self.sources[name].full(cut.bundles[name].files, one.total) for name, one in landed.items())

    def close(self) -> None:
        """Remove the branches."""
        self.looks.close()
        for landing in self.landings.values():
            landing.close()


_UNREADABLE = (SourceError, PySparkException, Py4JJavaError, pa.ArrowException, OSError)
"""The errors with which the records of a source cannot be read."""

_TYPES = {"path": "string", "value": "binary", "_source": "string", "_offset": "bigint", "_arrival": "timestamp"}
"""The columns of the sources' rows: `path` is of a source of files, the others are of a topic."""
