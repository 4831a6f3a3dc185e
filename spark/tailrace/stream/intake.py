"""Build an epoch from a source's micro-batch: the records, the clock, and the properties of the log's commit (rule X2).

The clock belongs to the log: the watermark is computed from the partitions of the source, and all definitions that read
the log use the same watermark. The clock is recorded in the log's commit, and both a catch-up and a replay use the
recorded clock (rule T2).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.engines.choose import Engine
from tailrace.engines.duckdb.database.scans import as_declared, scan_table
from tailrace.engines.protocol import BundleRecords
from tailrace.engines.spark.bundles import FiledRecords
from tailrace.engines.spark.executions.preparation import empty_frame
from tailrace.engines.spark.rows.declared_rows import log_relation
from tailrace.fold.fold import PassedEpoch
from tailrace.fold.fold_group import FoldGroup
from tailrace.ingest.blank_lines import BlankLines
from tailrace.ingest.decoded_sizes import MessageSizes
from tailrace.ingest.duplicates import RememberedIds, RememberedRows
from tailrace.ingest.folders.unreadable_files import unreadable_files
from tailrace.ingest.landing import Landable, Landing
from tailrace.ingest.micro_batch import file_rows, message_rows
from tailrace.ingest.near_names import NearNames
from tailrace.ingest.parsing import read_files, read_messages
from tailrace.ingest.partitions import complete_partitions, latest_by_partition, partition_names
from tailrace.ingest.plain_columns import OF_READING, own_columns
from tailrace.ingest.process_landing import MEMORY_A_THREAD, LandedRecords, ProcessLanding
from tailrace.ingest.room import Room, TooLargeError
from tailrace.ingest.row_landing import LandedFiles
from tailrace.ingest.sources import (
    Files,
    FileState,
    SizeLookup,
    Source,
    bytes_to_read,
    check_folders,
    file_states,
    messages_between,
)
from tailrace.ingest.worker_landing import WorkerLanding, filed_records
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import (
    DUPLICATES,
    IDLE,
    NEAR,
    PROGRESS,
    ROUNDED,
    clock_properties,
    processing_times,
    progress_of,
)
from tailrace.lake.commit.signal_tables import Completions, Signals, names_of
from tailrace.lake.schema.filters import at_most
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.logs.log import ROUNDED as ROUNDED_VALUES
from tailrace.model.step.progress import ALL, Progress, Seen
from tailrace.sql.terms import Relation
from tailrace.stream.read_ahead import ReadAhead

if TYPE_CHECKING:
    from tailrace.ingest.framed.framed_messages import FramedMessages


@dataclass(frozen=True)
class Portion:
    """The part of a source that an epoch reads: messages of a topic, or files.

    `read` contains the position up to which the source is read, in the form of properties for the log's commit.
    """

    epoch: int
    read: Mapping[str, str]
    messages: DataFrame | None = None
    files: Sequence[str] = ()


@dataclass(frozen=True)
class Bundle:
    """The records of an epoch before they are in the log, the epoch's clock, and the properties of the log's commit.

    `records` has the records that fit the log; the definitions fold these records. `stamped` has all records that are
    written when the epoch is landed, including rejected records. `records` and `stamped` are Arrow tables if the
    records are read into this process. If Spark reads the records, `frame` is the Spark frame that is cached until the
    records have been folded. `progress` is the log's progress after the epoch. `duplicates` is the number of repeated
    records that were dropped, `rounded` is the number of decimals in `records` that were rounded, `files` is the number
    of files of the epoch, and `blank` counts the blank lines in these files.
    """

    clock: Clock
    properties: Mapping[str, str]
    records: BundleRecords
    stamped: Landable
    progress: Progress
    frame: DataFrame | None = None
    duplicates: int = 0
    rounded: int = 0
    files: int = 0
    blank: BlankLines = field(default_factory=BlankLines)

    @property
    def passed(self) -> PassedEpoch:
        """The epoch of the log, in the form in which definitions read it."""
        return PassedEpoch.of(self.records, self.clock, idle=self.progress.all_idle)

    def free(self) -> None:
        """Free the Spark frame with the records, after the records have been folded."""
        if self.frame is not None:
            self.frame.unpersist()


@dataclass(frozen=True)
class Entries:
    """New rows of the tables that control a stream: signals, and times up to which partitions are complete.

    The times are in microseconds. In `complete`, the key `None` stands for the whole log. `properties` are stored in
    the log's commit to record that these rows were used.
    """

    signals: tuple[str, ...]
    complete: Mapping[str | None, int]
    properties: Mapping[str, str]


@dataclass(frozen=True)
class News:
    """The state of a log when no records have arrived: its progress, and the users' new rows in its control tables.

    `reason` is True if there is a reason for an epoch without records: the watermark advances, a signal has arrived, or
    the log becomes idle while other logs wait for it.
    """

    progress: Progress
    entries: Entries
    reason: bool


class Intake:
    """The reader of a log's source, which also keeps the progress of the log.

    `shared` is True if the stream also lands other logs: a definition that reads several logs may then wait for this
    log. In this case, even a folder without files counts as a partition, which can become idle. `framed` is the reader
    for a topic with change records or with registered schemas; it is None for other sources.
    """

    def __init__(
        self, spark: SparkSession, lake: Lake, source: Source, landing: Landing, folds: FoldGroup, *,
        signals: bool, shared: bool = False, framed: FramedMessages | None = None,
    ) -> None:  # fmt: skip
        check_folders(landing.log_definition, source)
        self.spark, self.lake, self.source, self.landing = spark, lake, source, landing
        self.framed = framed
        self.shared, self._there = shared, (ALL,) if shared and isinstance(source, Files) else ()
        self.log = landing.log_definition
        self._signals = Signals(lake, self.log) if signals else None
        self._completions = Completions(lake, self.log)
        self._clock_view = f"tailrace_{self.log.name}_epoch"
        self.progress = progress_of(lake, self.log.name) or Progress()
        self._blank = BlankLines()
        self._sizes = MessageSizes()
        self._near = NearNames(self.log, lake.tell)
        self._remembered: RememberedIds | None = None
        self._remembered_rows: RememberedRows | None = None
        self._nothing: pa.Table | None = None
        self._folds = folds
        self._policy, self._database = folds.engines.policy, folds.engines.duck.database.cursor()
        self._workers = self._by_workers()
        self._by_threads = self._in_threads()
        self._latest, self._before = Portion(-1, {}), self.progress
        self._unreadable: dict[str, str] = {}
        self._ahead = ReadAhead.of(source, self.log, self._policy.room_ahead)

    def bundle(self, portion: Portion) -> Bundle:
        """Build an epoch from a part of the source. An unreadable file is rejected as a whole (rule X7)."""
        self._latest, self._before, self._unreadable = portion, self.progress, {}
        if isinstance(self.source, Files):
            self._near.of_files(self.source.format, portion.files)
        elif portion.messages is not None and (self.framed is None or self.framed.registry is None):
            self._near.of_messages(portion.messages)
        made = self._made()
        if self.framed is not None:
            self._near.of_records(self.framed.new_fields())
        # The files of an epoch that is landed by threads are not read ahead: its records are not kept in memory.
        if self._ahead is not None and not isinstance(made.stamped, LandedFiles):
            self._ahead.begin(portion.files)
        return made

    def close(self) -> None:
        """Stop reading ahead."""
        if self._ahead is not None:
            self._ahead.close()

    def made_again(self, error: BaseException) -> Bundle | None:
        """Build the latest epoch again without the files that caused its landing to fail.

        Returns None if no file was the cause of the failure.
        """
        return self._made() if self._finds_unreadable(error) else None

    def _made(self) -> Bundle:
        """Build the latest epoch; files that turn out to be unreadable are rejected."""
        while True:
            self.progress, self._blank = self._before, BlankLines()
            try:
                return self._bundled(self._latest)
            except (Py4JJavaError, PySparkException) as error:
                if not self._finds_unreadable(error):
                    raise

    def _finds_unreadable(self, error: BaseException) -> bool:
        """Mark the files that caused an error as unreadable; return True if files caused the error."""
        left = [file for file in self._latest.files if file not in self._unreadable]
        if not isinstance(self.source, Files) or not left:
            return False
        # If a second file fails, many files may be unreadable. Spark names only one file per error, so all files are
        # examined.
        more = bool(self._unreadable)
        found = unreadable_files(self.spark, self.source, self.log, left, error, all_of_them=more)
        self._unreadable |= found
        # The remembered ids must be read from the log again, because this attempt may already have added the ids of the
        # epoch.
        self._remembered = self._remembered_rows = None
        return bool(found)

    def _bundled(self, portion: Portion) -> Bundle:
        """Read a part of the source, and build the epoch. This process, Python on the executors, or Spark reads the
        records.
        """
        files = portion.files
        states = cache(lambda: file_states(files))
        sized = cache(lambda: [state.size for state in states()])
        to_read = partial(bytes_to_read, self.source, sized, portion.read, self.landing.log.head.properties)
        tried = self._policy.takes(to_read, ids=bool(self.log.id_columns))
        if (here := self._landed_here(portion, sized, tried)) is not None:
            return here
        if tried and (rows := self._rows(portion, states, sized)) is not None:
            return self._in_process(portion, rows)
        if isinstance(self.source, Files) and not files:
            # The log has no records in this epoch. The epoch exists because other logs have records.
            nothing = self._no_records()
            return self._of_frame(portion, nothing, self._advanced(portion, nothing))
        workers = None if self._unreadable else self._workers
        if workers is not None and (landed := workers.land(files, sized, portion.epoch, large=tried)) is not None:
            records = filed_records(self.spark, self.lake, self.log, landed.landed.files, portion.epoch)
            return self._landed(portion, landed, records)
        return self._by_spark(portion)

    def _landed_here(self, portion: Portion, sized: SizeLookup, tried: bool) -> Bundle | None:
        """Land a large epoch with threads of this process; return None if the epoch has to be read otherwise.

        Executors on other machines have more cores, so they land epochs that are too large for this process's memory.
        """
        here = self._by_threads
        if here is None or self._unreadable or not (tried or self._alone) or not self._folds.reads_files(self.log.name):
            return None
        landed = here.land(portion.files, sized, portion.epoch)
        if landed is None:
            return None
        if not self._policy.holds(rows=landed.landed.records):
            # There may be as many windows as records.
            records = filed_records(self.spark, self.lake, self.log, landed.landed.files, portion.epoch)
            return self._landed(portion, landed, records)
        return self._landed(portion, landed, here.records(landed.landed))

    def _in_threads(self) -> ProcessLanding | None:
        """Return the object that lands large epochs with threads of this process, or None if there is none."""
        little = self._policy.memory < MEMORY_A_THREAD
        if self._workers is None or self._policy.engine is Engine.SPARK or little:
            return None
        assert isinstance(self.source, Files)

        def on_spark(landed: LandedFiles) -> FiledRecords:
            return filed_records(self.spark, self.lake, self.log, landed.files, self._latest.epoch)

        return ProcessLanding(self.lake, self.source, self.log, self._policy.memory, on_spark)

    @property
    def _alone(self) -> bool:
        """True if Spark has no other machine than this one."""
        return str(self.spark.sparkContext.master).startswith("local")

    def _by_spark(self, portion: Portion) -> Bundle:
        frame = self._frame(portion)
        if self.log.id_columns and self._remembered is None:
            self._remembered, self._remembered_rows = self._restored(self.lake), None
        records = frame.persist()
        try:
            entries = self._advanced(portion, records)
        except BaseException:
            records.unpersist()
            raise
        if self._remembered is None:
            return self._of_frame(portion, records, entries)
        unique = self._remembered.unique(records)
        self._remembered.add(unique.ids, portion.epoch, self.progress.now)
        return self._of_frame(portion, unique.frame, entries, unique.duplicates)

    def _by_workers(self) -> WorkerLanding | None:
        """Return the object that lands epochs with Python on the executors, or None if only Spark can land this log."""
        source, log = self.source, self.log
        if not isinstance(source, Files) or self.framed is not None:
            return None
        if log.signed or log.id_columns or log.strategy.learns:
            return None
        return WorkerLanding(self.spark, self.lake, source, log)

    def _landed(self, portion: Portion, landed: LandedRecords, records: BundleRecords) -> Bundle:
        """Build the epoch from records that were already written to data files."""
        self._blank.here += landed.blank
        entries = self._advanced_by(portion, landed.seen)
        return self._bundle(portion, records, landed.landed, entries, rounded=landed.rounded)

    def _frame(self, portion: Portion) -> DataFrame:
        """Read the records of an epoch with Spark."""
        if isinstance(self.source, Files):
            return read_files(self.spark, self.source, self.log, portion.files, self._blank, self._unreadable)
        assert portion.messages is not None
        if self.framed is not None:
            return self.framed.frame(self.spark, portion.messages, self._blank)
        return read_messages(self.spark, self.log, portion.messages)

    def _rows(self, portion: Portion, states: Callable[[], Sequence[FileState]], sized: SizeLookup) -> pa.Table | None:
        """Read the records of an epoch into this process; return None if the records are too large for this process."""
        files, messages = portion.files, portion.messages
        room = Room.of(self._policy.room, files, sized)
        try:
            if isinstance(self.source, Files):
                if (ahead := self._read_ahead(files, states)) is not None:
                    return ahead
                return file_rows(self.spark, self.source, self.log, files, self._blank, self._unreadable, room)
            assert messages is not None
            before = self.landing.log.head.properties.get("offset", "")
            self._sizes.check(messages, messages_between(before, portion.read["offset"]), room)
        except TooLargeError:
            return None
        if self.framed is not None:
            found = self.framed.rows(self.spark, messages, self._blank)
        else:
            found = message_rows(self.spark, self.log, messages, room)
        self._sizes.learn(found)
        return found

    def _read_ahead(self, files: Sequence[str], states: Callable[[], Sequence[FileState]]) -> pa.Table | None:
        """Return the records of an epoch's files if they were read ahead."""
        if self._ahead is None or self._unreadable:
            return None
        read = self._ahead.take(files, states)
        if read is None:
            return None
        self._blank.here += read.blank
        return read.records

    def _in_process(self, portion: Portion, table: pa.Table) -> Bundle:
        """Build the epoch from records that were read into this process."""
        entries = self._advanced(portion, table)
        if not self.log.id_columns:
            return self._of_rows(portion, table, entries)
        if self._remembered_rows is None:
            self._remembered_rows, self._remembered = self._restored_rows(), None
        unique = self._remembered_rows.unique(table, portion.epoch, self.progress.now)
        return self._of_rows(portion, unique.rows, entries, unique.duplicates)

    def _advanced(self, portion: Portion, records: BundleRecords) -> Entries:
        """Update the log's progress with the records of an epoch.

        Returns the new rows that users have added to the control tables.
        """
        needed = self.log.strategy.follows_records or self.log.arrival_time is not None
        seen = latest_by_partition(self.spark, self.source, self.log, records, self._database) if needed else {}
        return self._advanced_by(portion, seen)

    def _advanced_by(self, portion: Portion, seen: Mapping[str, Seen]) -> Entries:
        """Update the log's progress with a summary of each partition.

        Returns the new rows that users have added to the control tables.
        """
        follows, known, now = self.log.strategy.follows_records, self.log.arrival_time is not None, _wall_clock()
        if known:
            now = max((one.arrived for one in seen.values() if one.arrived is not None), default=BEGINNING)
        if not follows:
            seen = {}
        entries = self._entries()
        there = (*self._there, *partition_names(portion.read["offset"]))
        self.progress = self._after({**seen, **complete_partitions(self.log, portion.files)}, now, entries, there)
        return entries

    def _restored_rows(self) -> RememberedRows:
        """Use DuckDB to read the ids of the log's records, up to the log's last epoch."""
        epoch, times = self.landing.epoch, processing_times(self.lake, self.log.name)
        with scan_table(self._database, self.lake, self.log.name, at_most("_epoch", epoch)) as rows:
            declared = as_declared(self.lake, self.log, Relation(f"{rows} WHERE _epoch <= {epoch}"))
            return RememberedRows(self._database, self.log, times, Relation(f"({declared})"))

    def _of_rows(self, portion: Portion, table: pa.Table, entries: Entries, duplicates: int = 0) -> Bundle:
        stamped = table.append_column("_epoch", pa.repeat(pa.scalar(portion.epoch, pa.int64()), table.num_rows))
        errors = stamped["_error"]
        good = stamped if errors.null_count == len(errors) else stamped.filter(pc.is_null(errors))
        rounded = (pc.sum(good[ROUNDED_VALUES]).as_py() or 0) if self.log.rounds else 0
        return self._bundle(portion, own_columns(good), stamped, entries, duplicates, rounded)

    def _restored(self, lake: Lake) -> RememberedIds:
        """Use Spark to read the ids of the log's records, up to the log's last epoch."""
        ids = self.spark.sql(f"SELECT * FROM {log_relation(lake, self.log)} WHERE _epoch <= {self.landing.epoch}L")
        return RememberedIds(self.spark, self.log, processing_times(lake, self.log.name), ids)

    def news(self) -> News:
        """Find out whether there is a reason for an epoch without records.

        New rows that users added to the control tables are read, but they do not count as used yet.
        """
        entries = self._entries()
        # If the log has a column with arrival times, processing time follows the arrival times, and does not advance
        # without records.
        now = self.progress.now if self.log.arrival_time is not None else max(self.progress.now, _wall_clock())
        progress = self._after({}, now, entries, self._there)
        moved = progress.watermark != self.progress.watermark
        silent = self.shared and progress.all_idle != self.progress.all_idle
        return News(progress, entries, bool(entries.signals) or moved or silent)

    def without_records(self, news: News, epoch: int) -> Bundle:
        """Build an epoch without records from the result of `news`.

        The commit of the epoch repeats the position up to which the source has already been read.
        """
        self._latest, self.progress = Portion(epoch, self.landing.position), news.progress
        self._blank = BlankLines()
        if self._nothing is None:
            self._nothing = self._no_records().toArrow()
        return self._of_rows(self._latest, self._nothing, news.entries)

    def _no_records(self) -> DataFrame:
        if self.framed is not None:
            return self.framed.nothing(self.spark)
        return read_messages(self.spark, self.log, empty_frame(self.spark, _MESSAGES))

    def _entries(self) -> Entries:
        """Read the rows that users have added to the control tables since the last epoch."""
        head = self.landing.log.head.properties
        complete, seen = self._completions.new_times(head)
        properties = {} if self._signals is None else self._signals.new_properties(head)
        return Entries(names_of(properties), complete, {**seen, **properties})

    def _after(self, seen: Mapping[str, Seen], now: int, entries: Entries, there: Iterable[str]) -> Progress:
        both = dict(seen)
        for name, until in ((name, until) for name, until in entries.complete.items() if name is not None):
            partition = both.get(name, Seen())
            both[name] = replace(partition, complete=max(until, partition.complete or until))
        complete = entries.complete.get(None, BEGINNING)
        return self.progress.after(self.log.strategy, both, now, there=there, complete=complete)

    def _of_frame(self, portion: Portion, records: DataFrame, entries: Entries, duplicates: int = 0) -> Bundle:
        epoch = portion.epoch
        self.spark.sql(f"SELECT * FROM VALUES ({epoch}L) AS c(epoch)").createOrReplaceTempView(self._clock_view)
        stamped = self.landing.with_epoch(records, self._clock_view)
        # The fold's query gets the epoch's number as a literal, because the fold needs `_epoch` only for late records.
        # The query for the log's rows reads the number from a view: with a literal, Spark would have to compile the
        # query again in each epoch.
        there, rounded = records.where("_error IS NULL"), 0
        if self.log.rounds:
            # The count goes into the commit with the records. The frame is cached, so it is not read again.
            (found,) = there.agg(F.sum(ROUNDED_VALUES).alias("rounded")).collect()
            rounded = found["rounded"] or 0
        good = there.drop(*OF_READING).withColumn("_epoch", F.lit(epoch).cast("bigint"))
        return replace(self._bundle(portion, good, stamped, entries, duplicates, rounded), frame=records)

    def _bundle(
        self,
        portion: Portion,
        records: BundleRecords,
        stamped: Landable,
        entries: Entries,
        duplicates: int = 0,
        rounded: int = 0,
    ) -> Bundle:
        """Build an epoch from its records, with the clock and the properties for the log's commit."""
        clock = Clock(portion.epoch, self.progress.watermark, self.progress.now, entries.signals)
        properties = {**clock_properties(clock), **portion.read, **entries.properties, PROGRESS: self.progress.text()}
        if self._near.found:
            properties[NEAR] = json.dumps(self._near.found)
        if self.progress.all_idle:
            properties[IDLE] = "true"
        if self.log.id_columns:
            properties[DUPLICATES] = str(self.landing.log.head.number(DUPLICATES, 0) + duplicates)
        before = self.landing.log.head.number(ROUNDED, 0)
        if self.log.rounds or before:
            properties[ROUNDED] = str(before + rounded)
        return Bundle(
            clock, properties, records, stamped, self.progress, duplicates=duplicates, rounded=rounded,
            files=len(portion.files), blank=self._blank,
        )  # fmt: skip


_MESSAGES = "value binary, _source string, _offset bigint, _arrival timestamp"


def _wall_clock() -> int:
    """Return the current time in microseconds.

    The stream reads the clock of the machine only here, and records every value that it uses (rule T2).
    """
    return time.time_ns() // 1000
