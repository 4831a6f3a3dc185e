"""`tailrace stream`: write a source's records to the log, and run definitions on the log, epoch by epoch."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tailrace.cli.runtime.interruption import Stop
from tailrace.cli.runtime.options import EngineName, settings_on
from tailrace.cli.runtime.spark_session import ending_spark, session
from tailrace.cli.terminal.backlog import FolderBacklog, TopicBacklog
from tailrace.cli.terminal.console import Output, output_for
from tailrace.cli.terminal.formats import quantity
from tailrace.cli.terminal.stream_progress import StreamProgress
from tailrace.cli.terminal.usage import ExitStatus, UsageError
from tailrace.lake.catalog.events import (
    DefinitionDropped,
    EngineSwitched,
    FolderChecked,
    NearName,
    Notice,
    RecordsSetAside,
    SourceBack,
    SourceLost,
)
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.given_sources import readers_of, source_faults, unnamed_source
from tailrace.plan.loader import load_all
from tailrace.settings import Settings
from tailrace.telemetry.observation import Observation, observe_run
from tailrace.telemetry.run_events import CheckpointRepair, Subject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.ingest.sources import Files, Format, Kafka, Start
    from tailrace.lake.catalog.lake import Lake
    from tailrace.stream.epoch_report import EpochReport
    from tailrace.stream.landing_stream import Stream

_POLL = 0.2
"""The interval, in seconds, at which the command checks whether the stream has ended or a signal has arrived."""

_NAMED = 10
"""The maximum number of changed files, and of moved files, that the report on one landing folder names."""


def stream(
    definitions: list[str],
    folders: list[str] | None = None,
    format: list[str] | None = None,
    topics: list[str] | None = None,
    bootstrap: str | None = None,
    patterns: list[str] | None = None,
    start: list[str] | None = None,
    new_topic: list[str] | None = None,
    gone_topic: list[str] | None = None,
    from_log: bool = False,
    once: bool = False,
    every: float = 0.0,
    per_epoch: int | None = None,
    follow_every: int | None = None,
    metrics_port: int | None = None,
    engine: EngineName = None,
    json: bool = False,
) -> None:
    """Run definitions as a stream: land a source in their log, and fold the log epoch by epoch.

    One stream can run several definitions. If the definitions read several logs, name a source for each log, as LOG=DIR
    or LOG=TOPIC, and a format or a start of one log in the same way; each epoch is then one consistent cut over all
    logs. A stream with --from-log has no source: it folds
    its definitions from a log that another stream lands. If the other stream already folds one of the same definitions,
    the other stream stops folding that definition, but keeps running. Ctrl-C or SIGTERM stops a stream at the next
    epoch boundary (exit status 130); a second signal stops the stream at once. After a stop, the next start continues
    after the last complete epoch.
    """
    pipelines, settings = load_all(definitions), settings_on(engine)
    output = output_for(settings, json=json)
    if from_log and (per_epoch is not None or every):
        raise UsageError("--per-epoch and --every cut a source into epochs, which the log has already: leave them out")
    if once and every:
        raise UsageError("--every has no meaning with --once, which takes epoch after epoch: leave one of them out")
    brokers = bootstrap or settings.kafka_bootstrap or ""
    given = _Given(pipelines, folders or [], topics or [], patterns or [], brokers, from_log=from_log)
    logs = {log.name: log for one in pipelines for log in one.sources}
    places = given.by_log()
    if folders_of_changes := [name for name, (option, _) in places.items() if option == "--from" and logs[name].signed]:
        raise UsageError(f"the changes of {', '.join(folders_of_changes)} come of a topic: pass it with --kafka")
    framed = [name for name, (option, _) in places.items() if option != "--from" and logs[name].messages != "json"]
    if framed and settings.schema_registry_uri is None:
        raise UsageError(
            f"the messages of {', '.join(framed)} name schemas in a registry: set TAILRACE_SCHEMA_REGISTRY_URI"
        )
    starts, formats = given.starts(places, start or []), given.formats(places, format or [])
    port = settings.metrics_port if metrics_port is None else metrics_port
    with Stop() as stop:
        from tailrace.ingest.kafka_access import PLAINTEXT, KafkaAccess
        from tailrace.ingest.sources import Files, Kafka

        topics_read = any(option != "--from" for option, _ in places.values())
        access = KafkaAccess.of(settings) if topics_read else PLAINTEXT
        topics_of = partial(
            Kafka, access=access, new_topics=tuple(new_topic or ()), gone_topics=tuple(gone_topic or ())
        )
        sources: dict[str, Files | Kafka] = {
            log: Files(place, formats[log], per_epoch)
            if option == "--from"
            else topics_of(place, brokers, per_epoch, pattern=option == "--kafka-pattern", start=starts.get(log))
            for log, (option, place) in places.items()
        }
        run = _Run(pipelines, sources, settings, output, stop, once=once, every=every, follow_every=follow_every)
        status = run.run(port)
    if status:
        raise typer.Exit(status)


@dataclass(frozen=True)
class _Given:
    """The sources that the command's arguments name for definitions: folders, topics and patterns of topics.

    Each argument may start with the name of the log to which the source belongs (`LOG=`).
    """

    definitions: Sequence[Definition]
    folders: Sequence[str]
    topics: Sequence[str]
    patterns: Sequence[str]
    bootstrap: str
    from_log: bool

    def by_log(self) -> dict[str, tuple[str, str]]:
        """Map each log to its source: `("--from", folder)`, `("--kafka", topic)` or `("--kafka-pattern", pattern)`.

        With `--from-log`, the mapping is empty. Raises `UsageError` if a log has no source or several sources, or if no
        definition reads a log that has a source.
        """
        given = [("--from", one) for one in self.folders] + [("--kafka", one) for one in self.topics]
        given += [("--kafka-pattern", one) for one in self.patterns]
        if self.from_log or not given:
            kinds = {option for option, _ in given} | ({"--from-log"} if self.from_log else set())
            if kinds != {"--from-log"}:
                there = " and ".join(sorted(kinds)) or "none"
                raise UsageError(f"expected one of --from DIR, --kafka TOPIC and --from-log, found {there}")
            return {}
        found: dict[str, tuple[str, str]] = {}
        for option, text_ in given:
            log, place = self._named(option, text_)
            if log in found:
                raise UsageError(
                    f"log {log} has two sources, {' '.join(found[log])} and {option} {place}: leave one out"
                )
            found[log] = option, place
        faults = source_faults(
            self.definitions,
            {log: " ".join(source) for log, source in found.items()},
            lambda log: f"pass --from {log}=DIR or --kafka {log}=TOPIC",
        )
        if faults:
            raise UsageError("; ".join(faults))
        for option, place in found.values():
            self._check(option, place)
        return found

    def starts(self, places: Mapping[str, tuple[str, str]], given: Sequence[str]) -> dict[str, Start | None]:
        """Map each log to the position at which it begins.

        Raises `UsageError` if a log has several positions, or if its source is not a topic.
        """
        from tailrace.ingest.sources import SourceError, Start

        found: dict[str, Start | None] = {}
        for text in given:
            log, where = self._named("--start", text) if places else ("", text)
            if places.get(log, ("",))[0] not in ("--kafka", "--kafka-pattern"):
                raise UsageError(f"--start {text}: a start is a position in a topic: pass one with --kafka")
            if log in found:
                raise UsageError(f"log {log} has two starts, {found[log] or 'earliest'} and {where}: leave one out")
            try:
                found[log] = Start.of(where)
            except SourceError as error:
                raise UsageError(str(error)) from None
        return found

    def formats(self, places: Mapping[str, tuple[str, str]], given: Sequence[str]) -> dict[str, Format]:
        """Map each log whose source is a folder to the format of the folder's files.

        A format without the name of a log is the format of all folders that have no other. Raises `UsageError` if a
        format is unknown, or if it is for a log that has no folder.
        """
        from tailrace.ingest.sources import FORMATS

        folders = [log for log, (option, _) in places.items() if option == "--from"]
        usual: Format = "json"
        found: dict[str, Format] = {}
        for text in given:
            log, _, name = text.rpartition("=")
            known = next((one for one in FORMATS if one == name), None)
            if known is None:
                raise UsageError(f"--format {text}: expected one of {', '.join(FORMATS)}, found {name!r}")
            if log and log not in folders:
                raise UsageError(
                    f"--format {text}: a format is of the files in a folder, which log {log} has not: expected a log "
                    f"with --from, found {', '.join(folders) or 'none'}"
                )
            if log:
                found[log] = known
            else:
                usual = known
        return dict.fromkeys(folders, usual) | found

    def _named(self, option: str, given: str) -> tuple[str, str]:
        """Divide an argument into the name of a log and the rest; a single log need not be named."""
        log, named, rest = given.partition("=")
        logs = [*readers_of(self.definitions)]
        # The name of a folder may have an equals sign; the names of topics cannot.
        is_folder = option == "--from" and ("/" in log or Path(given).exists())
        if named and (log in logs or (log.isidentifier() and not (is_folder and len(logs) == 1))):
            return log, rest
        if (fault := unnamed_source(self.definitions)) is not None:
            raise UsageError(f"{fault}: say which, as {option} {logs[0]}={given}")
        return logs[0], given

    def _check(self, option: str, place: str) -> None:
        if option == "--from" and "://" not in place and not Path(place).is_dir():
            # Spark would also report the missing folder, but only after Spark has started.
            raise UsageError(f"the folder {place} is not there: make it, or pass another with --from")
        if option == "--kafka-pattern":
            try:
                re.compile(place)
            except re.error as error:
                raise UsageError(f"--kafka-pattern {place}: it is no regular expression: {error}") from None
        if option != "--from" and not self.bootstrap:
            raise UsageError(f"{option} needs the brokers: pass --bootstrap HOST:PORT, or set TAILRACE_KAFKA_BOOTSTRAP")


class _Run:
    """One run of the command `tailrace stream`."""

    def __init__(
        self, pipelines: Sequence[Definition], sources: Mapping[str, Files | Kafka], settings: Settings, output: Output,
        stop: Stop, *, once: bool, every: float, follow_every: int | None,
    ) -> None:  # fmt: skip
        self.pipelines, self.sources, self.settings, self.output, self.stop = pipelines, sources, settings, output, stop
        self.once, self.every, self.follow_every = once, every, follow_every
        self.log = "+".join(sorted({log.name for one in pipelines for log in one.sources}))
        stages = {stage.name: stage for one in pipelines for stage in chain(one)}
        self._subject = Subject("stream", settings, tuple(stages.values()), sources)
        from tailrace.ingest.sources import Files

        self._folders = [one.folder for one in sources.values() if isinstance(one, Files)]
        unit = "file" if sources and len(self._folders) == len(sources) else "record"
        self.progress = StreamProgress(output, unit=unit)

    def run(self, metrics_port: int | None) -> ExitStatus:
        """Run until the source ends, a signal arrives or an error is raised. Returns the exit status."""
        from tailrace.lake.catalog.lake import Lake

        try:
            with observe_run(self._subject, self.output.say, metrics_port) as observed:
                lake = Lake(self.settings, partial(self._tell_notice, observed))
                run = self._stream if self.sources else self._tail
                run(lake, observed)
                observed.stopped = bool(self.stop)
        finally:
            self.progress.close()
        return self._summarize()

    def _tail(self, lake: Lake, observed: Observation) -> None:
        """Fold epochs from the log. Spark is started before the first epoch that needs Spark."""
        from tailrace.engines.spark.session import open_session
        from tailrace.stream.log_stream import Tailing

        def started() -> SparkSession:
            spark = open_session(self.settings, app=f"tailrace stream {self.log}")
            if threading.current_thread() is threading.main_thread():
                # Install the signal handlers again, because Spark replaces the signal handlers of this process when it
                # starts.
                self.stop.listen()
            return spark

        with ending_spark():
            watch = partial(self._show_epoch, observed)
            tailing = Tailing(started, lake, self.pipelines, follow_every=self.follow_every, watch=watch)
            self.progress.begin()
            tailing.run(once=self.once, stop=lambda: bool(self.stop))
            self.progress.show_activity("bringing the answers up with the ledger")
            tailing.close()

    def _stream(self, lake: Lake, observed: Observation) -> None:
        """Write the records of the sources to the logs, and fold these records."""
        from tailrace.stream.landing_stream import Stream

        self.progress.show_activity("starting Spark")
        groups = ("lake",) if len(self._folders) == len(self.sources) else ("lake", "kafka")
        # `self.stop.listen` installs the signal handlers again, because Spark replaces them when it starts.
        with session(self.settings, f"tailrace stream {self.log}", groups, self.stop.listen) as spark:
            if not self.stop:
                watch = partial(self._show_epoch, observed)
                running = Stream(spark, lake, self.pipelines, self.sources, follow_every=self.follow_every, watch=watch)
                self._drive(running, observed)

    def _drive(self, running: Stream, observed: Observation) -> None:
        topic = TopicBacklog()
        if not self._folders:
            self.progress.backlog = topic
        elif len(self._folders) == len(self.sources):
            self.progress.backlog = FolderBacklog(self._folders, running.checkpoint.folder)
        if running.mended is not None:
            observed.tell(CheckpointRepair(running.mended))
            self.output.say(f"the checkpoint {running.mended}: it was written anew as log {self.log} has it")
        self.progress.begin()
        if not self.stop:
            running.start(once=self.once, every=self.every, stop=lambda: bool(self.stop))
            topic.query = running.query
            while not (self.stop or running.wait(_POLL)):
                pass
        if self.stop:
            self.progress.show_activity(
                f"{self.stop.name}: stopping at the next epoch boundary (again to stop at once)"
            )
            running.stop()
        self.progress.show_activity("bringing the answers up with the ledger")
        running.close()

    def _tell_notice(self, observed: Observation, notice: Notice) -> None:
        observed.tell(notice)
        if isinstance(notice, FolderChecked):
            self.progress.tally.folders[notice.log] = notice.counts
        for line in _news(notice):
            self.output.say(line)

    def _show_epoch(self, observed: Observation, report: EpochReport) -> None:
        self.progress.show_epoch(report)
        observed.tell(report)

    def _summarize(self) -> ExitStatus:
        tally, seconds = self.progress.tally, self.progress.seconds
        if self.output.json:
            self.output.data(tally.data(seconds, stopped=bool(self.stop)), line=True)
        else:
            if self.stop:
                at = "before the first epoch" if tally.last is None else f"at the boundary after epoch {tally.last}"
                self.output.say(f"{self.stop.name}: stopped {at}; the next start goes on from there")
            self.output.text(tally.summary(seconds))
        return ExitStatus.INTERRUPTED if self.stop else ExitStatus.OK


def _news(notice: Notice) -> Iterator[str]:
    """Yield the messages that tell the user about a notice from the stream.

    Yields no messages if the notice is only for programs.
    """
    match notice:
        case DefinitionDropped(definition, reason, left):
            goes_on = "it goes on with the others" if left else "it goes on landing the log"
            yield f"this stream folds {definition} no more: {reason}; {goes_on}"
        case SourceLost(log, why):
            yield f"{why}: this stream goes on without the source of log {log} until it is back"
        case SourceBack(log):
            yield f"the source of log {log} is back, and read on from where the log says"
        case RecordsSetAside(definition, epoch, records, why):
            yield (
                f"epoch {epoch} of {definition} could not be folded ({why}): {quantity(records, 'record')} of it are "
                f"set aside in {definition}__ledger, kind 'rejected', and counted nowhere else; with "
                "TAILRACE_POISON=stop a stream stops instead"
            )
        case FolderChecked():
            yield from _unread(notice)
        case NearName(log, field, column):
            yield (
                f'log {log} drops the field {field!r} of its records (unknown="ignore"), which lack the column '
                f"{column!r}: name them alike, in the log or at the source"
            )
        case EngineSwitched(definition, engine, why):
            yield f"{definition} is folded by {engine} from here on: {why}; a restart begins in the process again"


def _unread(looked: FolderChecked) -> Iterator[str]:
    """Yield messages on the files of a landing folder that were changed or moved after the stream had read them."""
    for file in looked.changed[:_NAMED]:
        yield (
            f"{file} was changed after it was read for log {looked.log}: a file is read once, so what is new in it is "
            "not read; land that as a file of its own"
        )
    for before, now in looked.moved[:_NAMED]:
        yield (
            f"{now} is {before} under another name, which was read for log {looked.log}: its records count twice; "
            "leave files where they are, or give the log a record_id"
        )
    more = max(0, len(looked.changed) - _NAMED) + max(0, len(looked.moved) - _NAMED)
    if more:
        yield f"the same holds for {quantity(more, 'more file')} of log {looked.log}"
