"""`tailrace stream`: land a source in the log and fold it into the pipelines, epoch by epoch."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tailrace.cli.runtime.definitions import load_all
from tailrace.cli.runtime.interruption import Stop
from tailrace.cli.runtime.options import Definitions, EngineName, on_engine
from tailrace.cli.runtime.spark_session import ending_spark, session
from tailrace.cli.terminal.backlog import FolderBacklog, TopicBacklog
from tailrace.cli.terminal.console import Output, output_for
from tailrace.cli.terminal.formats import counted, rate, span, time_text
from tailrace.cli.terminal.stream_progress import StreamProgress, Tally
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
    unread_files,
)
from tailrace.model.base.time import text
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.settings import Settings
from tailrace.telemetry.observation import Observation, observe_run
from tailrace.telemetry.run_events import CheckpointRepair, Subject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.ingest.sources import Source
    from tailrace.lake.catalog.lake import Lake
    from tailrace.stream.epoch_report import EpochReport, Watch
    from tailrace.stream.landing_stream import Stream

_POLL = 0.2
"""The time between two looks at whether the stream ended or was told to stop, in seconds."""

_NAMED = 10
"""The number of files that a look at a landing folder names at once, of each kind."""


def stream(
    definitions: Definitions,
    folders: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="[LOG=]DIR", help="Read the files that land in this folder, for this log."),
    ] = None,
    format: Annotated[Literal["json", "csv", "parquet"], typer.Option("--format", help="What the files are.")] = "json",
    topics: Annotated[
        list[str] | None, typer.Option("--kafka", metavar="[LOG=]TOPIC", help="Read this Kafka topic, for this log.")
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The Kafka brokers. [default: TAILRACE_KAFKA_BOOTSTRAP]")
    ] = None,
    new_topic: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Read a topic that was made again, and has this id, from its beginning."),
    ] = None,
    from_log: Annotated[
        bool, typer.Option("--from-log", help="Read the log that another stream lands, and take no part of it over.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Take what the source has now, and end.")] = False,
    every: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Start an epoch at most this often.", show_default="at once")
    ] = 0.0,
    per_epoch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many files, or Kafka records, an epoch.")
    ] = None,
    follow_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Bring the answers up with the ledger every N epochs, whatever it costs.",
            show_default="10, within TAILRACE_FRESHNESS",
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="N",
            help="Serve metrics for Prometheus; 0 is any free port. [default: TAILRACE_METRICS_PORT]",
        ),
    ] = None,
    engine: EngineName = None,
    json: Annotated[bool, typer.Option("--json", help="Report as JSON, one line an epoch.")] = False,
) -> None:
    """Run definitions as a stream: land a source in their log, and fold it epoch by epoch.

    Several definitions run in one stream. Where they read several logs, each log has a source of its own, written
    LOG=DIR or LOG=TOPIC, and an epoch is one cut over all of them. One from the log lands nothing: it folds definitions
    beside the stream that lands their log, which drops them where it folded them itself; nothing is restarted. Ctrl-C
    and SIGTERM stop at an epoch boundary (exit status 130), a second one at once; either way the next start goes on
    where this one was.
    """
    pipelines = load_all(definitions)
    settings = on_engine(Settings(), engine)
    output = output_for(settings, json=json)
    if from_log and (per_epoch is not None or every):
        raise UsageError("--per-epoch and --every cut a source into epochs, which the log has already: leave them out")
    if once and every:
        raise UsageError("--every has no meaning with --once, which takes epoch after epoch: leave one of them out")
    given = _Given(folders or [], topics or [], bootstrap or settings.kafka_bootstrap or "", from_log=from_log)
    logs = {log.name: log for one in pipelines for log in one.sources}
    places = given.by_log(sorted(logs))
    if folders_of_changes := [name for name, (option, _) in places.items() if option == "--from" and logs[name].signed]:
        raise UsageError(f"the changes of {', '.join(folders_of_changes)} come of a topic: pass it with --kafka")
    framed = [name for name, (option, _) in places.items() if option == "--kafka" and logs[name].messages != "json"]
    if framed and settings.schema_registry_uri is None:
        raise UsageError(
            f"the messages of {', '.join(framed)} name schemas in a registry: set TAILRACE_SCHEMA_REGISTRY_URI"
        )
    with Stop() as stop:
        run = _Run(output, pipelines, settings, stop)
        status = run.run(
            places, given.bootstrap, format=format, per_epoch=per_epoch, once=once, every=every,
            follow_every=follow_every,
            metrics_port=settings.metrics_port if metrics_port is None else metrics_port, new_topic=new_topic,
        )  # fmt: skip
    if status:
        raise typer.Exit(status)


@dataclass(frozen=True)
class _Given:
    """The sources as they were given: folders and topics, each with a log's name before it or without."""

    folders: Sequence[str]
    topics: Sequence[str]
    bootstrap: str
    from_log: bool

    def by_log(self, logs: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Assign `("--from", folder)` or `("--kafka", topic)` to each log; none where the logs are read themselves.

        Raises `UsageError` unless each log has exactly one source.
        """
        given = [("--from", one) for one in self.folders] + [("--kafka", one) for one in self.topics]
        if self.from_log or not given:
            kinds = {option for option, _ in given} | ({"--from-log"} if self.from_log else set())
            if kinds != {"--from-log"}:
                there = " and ".join(sorted(kinds)) or "none"
                raise UsageError(f"expected one of --from DIR, --kafka TOPIC and --from-log, found {there}")
            return {}
        found: dict[str, tuple[str, str]] = {}
        for option, text_ in given:
            log, place = self._named(logs, option, text_)
            if log in found:
                raise UsageError(
                    f"log {log} has two sources, {' '.join(found[log])} and {option} {place}: leave one out"
                )
            found[log] = option, place
        if missing := [log for log in logs if log not in found]:
            example = f"--from {missing[0]}=DIR or --kafka {missing[0]}=TOPIC"
            raise UsageError(f"the definitions read log {', '.join(missing)}, which has no source: pass {example}")
        places = list(found.values())
        if twice := sorted({place for one in places if places.count(one) > 1 for place in one[1:]}):
            raise UsageError(f"{', '.join(twice)} is given for two logs: a record is of one")
        for option, place in places:
            self._check(option, place)
        return found

    def _named(self, logs: Sequence[str], option: str, given: str) -> tuple[str, str]:
        log, named, place = given.partition("=")
        if named and log in logs:
            return log, place
        if len(logs) == 1 and (not named or "/" in log or log not in logs):
            return logs[0], given
        if not named:
            names = ", ".join(logs)
            raise UsageError(
                f"the definitions read {len(logs)} logs, {names}: say which, as {option} {logs[0]}={given}"
            )
        raise UsageError(f"{option} {given}: no definition reads a log {log}: expected one of {', '.join(logs)}")

    def _check(self, option: str, place: str) -> None:
        if option == "--from" and "://" not in place and not Path(place).is_dir():
            # Spark would say so too, but only once it has started.
            raise UsageError(f"the folder {place} is not there: make it, or pass another with --from")
        if option == "--kafka" and not self.bootstrap:
            raise UsageError("--kafka needs the brokers: pass --bootstrap HOST:PORT, or set TAILRACE_KAFKA_BOOTSTRAP")


class _Run:
    """A run of the command."""

    def __init__(self, output: Output, pipelines: Sequence[Definition], settings: Settings, stop: Stop) -> None:
        self.output, self.pipelines, self.settings, self.stop = output, pipelines, settings, stop
        self.log = "+".join(sorted({log.name for one in pipelines for log in one.sources}))
        self._stages = tuple({stage.name: stage for one in pipelines for stage in chain(one)}.values())

    def run(
        self, places: Mapping[str, tuple[str, str]], bootstrap: str, *, format: Literal["json", "csv", "parquet"],
        per_epoch: int | None, once: bool, every: float, follow_every: int | None, metrics_port: int | None,
        new_topic: str | None,
    ) -> ExitStatus:  # fmt: skip
        """Run until the source ends, a signal comes or an error is raised; return the exit status."""
        folders = {option for option, _ in places.values()} == {"--from"}
        progress = StreamProgress(self.output, unit="file" if folders else "record")
        try:
            from tailrace.ingest.sources import Files, Kafka
            from tailrace.lake.catalog.lake import Lake

            security = self.settings.kafka_security
            sources: dict[str, Source] = {
                log: Files(place, format, per_epoch)
                if option == "--from"
                else Kafka(place, bootstrap, per_epoch, security, new_topic)
                for log, (option, place) in places.items()
            }
            subject = Subject("stream", self.settings, self._stages, sources)
            with observe_run(subject, self.output.say, metrics_port) as observed:
                lake = Lake(self.settings, partial(self._noticed, progress, observed))
                watch = partial(self._watched, progress, observed)
                if not sources:
                    self._tail(lake, progress, watch, once=once, follow_every=follow_every)
                else:
                    self._stream(lake, sources, progress, observed, watch, once=once, every=every, follow=follow_every)
                observed.stopped = bool(self.stop)
        finally:
            progress.close()
        return self._summed(progress)

    def _tail(
        self, lake: Lake, progress: StreamProgress, watch: Watch, *, once: bool, follow_every: int | None
    ) -> None:
        """Fold from the log; Spark starts only once an epoch is for Spark."""
        from tailrace.engines.spark.session import open_session
        from tailrace.stream.log_stream import Tailing

        def started() -> SparkSession:
            spark = open_session(self.settings, app=f"tailrace stream {self.log}")
            if threading.current_thread() is threading.main_thread():
                # Spark takes the signals for itself as it starts.
                self.stop.listen()
            return spark

        with ending_spark():
            tailing = Tailing(started, lake, self.pipelines, follow_every=follow_every, watch=watch)
            progress.begun()
            tailing.run(once=once, stop=lambda: bool(self.stop))
            progress.doing("bringing the answers up with the ledger")
            tailing.close()

    def _stream(
        self, lake: Lake, sources: Mapping[str, Source], progress: StreamProgress, observed: Observation,
        watch: Watch, *, once: bool, every: float, follow: int | None,
    ) -> None:  # fmt: skip
        """Land the sources, and fold their records."""
        from tailrace.ingest.sources import Files, Kafka
        from tailrace.stream.landing_stream import Stream

        progress.doing("starting Spark")
        groups = ("lake", "kafka") if any(isinstance(one, Kafka) for one in sources.values()) else ("lake",)
        # Spark takes the signals for itself as it starts.
        with session(self.settings, f"tailrace stream {self.log}", groups, self.stop.listen) as spark:
            if not self.stop:
                running = Stream(spark, lake, self.pipelines, sources, follow_every=follow, watch=watch)
                folders = [one.folder for one in sources.values() if isinstance(one, Files)]
                topic = TopicBacklog()
                if not folders:
                    progress.backlog = topic
                elif len(folders) == len(sources):
                    progress.backlog = FolderBacklog(folders, running.checkpoint.folder)
                self._drive(running, progress, observed, topic, once=once, every=every)

    def _drive(
        self,
        running: Stream,
        progress: StreamProgress,
        observed: Observation,
        topic: TopicBacklog,
        *,
        once: bool,
        every: float,
    ) -> None:
        if running.mended is not None:
            observed.tell(CheckpointRepair(running.mended))
            self.output.say(f"the checkpoint {running.mended}: it was written anew as log {self.log} has it")
        progress.begun()
        if not self.stop:
            running.start(once=once, every=every, stop=lambda: bool(self.stop))
            topic.query = running.query
            while not (self.stop or running.wait(_POLL)):
                pass
        if self.stop:
            progress.doing(f"{self.stop.name}: stopping at the next epoch boundary (again to stop at once)")
            running.stop()
        progress.doing("bringing the answers up with the ledger")
        running.close()

    def _noticed(self, progress: StreamProgress, observed: Observation, notice: Notice) -> None:
        observed.tell(notice)
        if isinstance(notice, DefinitionDropped):
            goes_on = "it goes on with the others" if notice.left else "it goes on landing the log"
            self.output.say(f"this stream folds {notice.definition} no more: {notice.reason}; {goes_on}")
        elif isinstance(notice, SourceLost):
            self.output.say(
                f"{notice.why}: this stream goes on without the source of log {notice.log} until it is back"
            )
        elif isinstance(notice, SourceBack):
            self.output.say(f"the source of log {notice.log} is back, and read on from where the log says")
        elif isinstance(notice, RecordsSetAside):
            self.output.say(
                f"epoch {notice.epoch} of {notice.definition} could not be folded ({notice.why}): "
                f"{counted(notice.records, 'record')} of it are set aside in {notice.definition}__ledger, kind "
                "'rejected', and counted nowhere else; with TAILRACE_POISON=stop a stream stops instead"
            )
        elif isinstance(notice, FolderChecked):
            progress.tally.folders[notice.log] = notice.counts
            for line in _unread(notice):
                self.output.say(line)
        elif isinstance(notice, NearName):
            self.output.say(
                f'log {notice.log} drops the field {notice.field!r} of its records (unknown="ignore"), which lack the '
                f"column {notice.column!r}: name them alike, in the log or at the source"
            )
        elif isinstance(notice, EngineSwitched):
            self.output.say(
                f"{notice.definition} is folded by {notice.engine} from here on: {notice.why}; a restart begins in the "
                "process again"
            )

    def _watched(self, progress: StreamProgress, observed: Observation, report: EpochReport) -> None:
        progress.epoch(report)
        observed.tell(report)

    def _summed(self, progress: StreamProgress) -> ExitStatus:
        status = ExitStatus.INTERRUPTED if self.stop else ExitStatus.OK
        tally, seconds = progress.tally, progress.seconds
        if self.output.json:
            self.output.data(_summary(tally, seconds, stopped=bool(self.stop)), line=True)
            return status
        if self.stop:
            at = "before the first epoch" if tally.last is None else f"at the boundary after epoch {tally.last}"
            self.output.say(f"{self.stop.name}: stopped {at}; the next start goes on from there")
        self.output.text(_summary_text(tally, seconds))
        return status


def _unread(looked: FolderChecked) -> Iterator[str]:
    """Say which files of a landing folder were changed or moved since they were read, and what to do."""
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
        yield f"the same holds for {counted(more, 'more file')} of log {looked.log}"


def _summary_text(tally: Tally, seconds: float) -> str:
    if not tally.epochs:
        return f"nothing new: no epoch was needed{unread_files(tally.unread, '; ')}"
    parts = [f"{counted(tally.epochs, 'epoch')}, {counted(tally.records, 'record')} in {span(seconds)}"]
    parts[0] += f" ({rate(tally.records, seconds)} records/s)"
    if tally.recovered:
        parts.append(f"{counted(tally.recovered, 'epoch')} again from the log")
    panes = counted(tally.panes, "pane")
    parts += [counted(tally.productions, "production")] if tally.productions else []
    parts += [f"{tally.claimed:,} of another's"] if tally.claimed else []
    parts.append(panes + (f" and {counted(tally.retractions, 'retraction')}" if tally.retractions else ""))
    parts += [f"{tally.unanswered:,} unanswered"] if tally.unanswered else []
    parts += [f"{tally.late:,} late"] if tally.late else []
    parts += [f"{tally.rejected:,} rejected"] if tally.rejected else []
    parts += [counted(tally.duplicates, "duplicate")] if tally.duplicates else []
    parts += [counted(tally.blank, "blank line")] if tally.blank else []
    parts += [counted(tally.links, "linked file") + " passed over"] if tally.links else []
    parts.append(f"watermark {time_text(tally.watermark)}")
    return "; ".join(parts) + unread_files(tally.unread, "; ")


def _summary(tally: Tally, seconds: float, *, stopped: bool) -> dict[str, Any]:
    return {
        "event": "summary",
        "stopped": stopped,
        "epochs": tally.epochs,
        "recovered": tally.recovered,
        "last_epoch": tally.last,
        "records": tally.records,
        "rejected": tally.rejected,
        "duplicates": tally.duplicates,
        "blank_lines": tally.blank,
        "linked_files": tally.links,
        "unread_files": tally.unread,
        "panes": tally.panes,
        "retractions": tally.retractions,
        "unanswered": tally.unanswered,
        "late": tally.late,
        "productions": tally.productions,
        "claimed": tally.claimed,
        "seconds": round(seconds, 3),
        "watermarks": {name: text(micros) for name, micros in tally.watermarks.items()},
    }
