"""`tailrace stream`: land a source in the log and fold it into the pipelines, epoch by epoch."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tailrace.cli.backlog import FolderBacklog, TopicBacklog
from tailrace.cli.console import Output
from tailrace.cli.definitions import load_all
from tailrace.cli.errors import Status, UsageError
from tailrace.cli.observing import Observing, observing, output_for
from tailrace.cli.options import Definitions
from tailrace.cli.progress import Progress, Tally
from tailrace.cli.sessions import session
from tailrace.cli.texts import counted, rate, shown, span
from tailrace.model.chains import Definition, chain
from tailrace.model.time import text
from tailrace.observe.happenings import Mended, Subject
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.spark.sources import Source
    from tailrace.spark.stream import EpochReport, Stream

_POLL = 0.2
"""How often to look whether the stream ended or was told to stop, in seconds."""


def stream(
    definitions: Definitions,
    folder: Annotated[
        str | None, typer.Option("--from", metavar="DIR", help="Read the files that land in this folder.")
    ] = None,
    format: Annotated[Literal["json", "csv", "parquet"], typer.Option("--format", help="What the files are.")] = "json",
    topic: Annotated[str | None, typer.Option("--kafka", metavar="TOPIC", help="Read this Kafka topic.")] = None,
    bootstrap: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The Kafka brokers. [default: TAILRACE_KAFKA_BOOTSTRAP]")
    ] = None,
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
            min=1, metavar="N", help="Bring the answers up with the ledger every N epochs.", show_default="10"
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
    json: Annotated[bool, typer.Option("--json", help="Report as JSON, one line an epoch.")] = False,
) -> None:
    """Run definitions as a stream: land a source in their log, and fold it epoch by epoch.

    Several definitions that read one log run in one stream. Ctrl-C and SIGTERM stop at an epoch boundary (exit status
    130), a second one at once; either way the next start goes on where this one was.
    """
    pipelines = load_all(definitions)
    settings = Settings()
    output = output_for(settings, json=json)
    where = _where(folder, topic, bootstrap or settings.kafka_bootstrap, every, once=once)
    with _Stop() as stop:
        run = _Run(output, pipelines, settings, stop)
        status = run.run(
            *where, format=format, per_epoch=per_epoch, once=once, every=every, follow_every=follow_every,
            metrics_port=settings.metrics_port if metrics_port is None else metrics_port,
        )  # fmt: skip
    if status:
        raise typer.Exit(status)


def _where(
    folder: str | None, topic: str | None, bootstrap: str | None, every: float, *, once: bool
) -> tuple[str | None, str | None, str]:
    """The folder or the topic with its brokers. Raises `UsageError` for neither or both."""
    if (folder is None) == (topic is None):
        found = "neither" if folder is None else "both"
        raise UsageError(f"expected one of --from DIR and --kafka TOPIC, found {found}")
    if folder is not None and "://" not in folder and not Path(folder).is_dir():
        # Spark would say so too, but only once it has started.
        raise UsageError(f"the folder {folder} is not there: make it, or pass another with --from")
    if topic is not None and not bootstrap:
        raise UsageError("--kafka needs the brokers: pass --bootstrap HOST:PORT, or set TAILRACE_KAFKA_BOOTSTRAP")
    if once and every:
        raise UsageError("--every has no meaning with --once, which takes epoch after epoch: leave one of them out")
    return folder, topic, bootstrap or ""


class _StoppedError(Exception):
    """Told to stop while epochs are taken again from the log; raised between two of them."""


class _Stop:
    """Remembers that the process was told to stop; the second signal ends it at once."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Stop:
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals. To be called again once Spark has started, which takes them for itself."""
        for number in (signal.SIGINT, signal.SIGTERM):
            handler = signal.signal(number, self._told)
            self._before.setdefault(number, handler)

    def _told(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = signal.Signals(number)
            return
        # Nothing is tidied up, which could take as long again: what the next start finds is whole (rule X2), and the
        # JVM ends with its standard input.
        shown = "\x1b[?25h\n" if sys.stderr.isatty() else ""
        os.write(2, f"{shown}stopped at once; the next start goes on after the last whole epoch\n".encode())
        os._exit(Status.INTERRUPTED)

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def name(self) -> str:
        """What told it, as people say it."""
        return "Ctrl-C" if self.signal is signal.SIGINT else "SIGTERM"


class _Run:
    """One run of the command."""

    def __init__(self, output: Output, pipelines: Sequence[Definition], settings: Settings, stop: _Stop) -> None:
        self.output, self.pipelines, self.settings, self.stop = output, pipelines, settings, stop
        self.log = pipelines[0].source.name
        self._stages = tuple({stage.name: stage for one in pipelines for stage in chain(one)}.values())

    def run(
        self, folder: str | None, topic: str | None, bootstrap: str, *, format: Literal["json", "csv", "parquet"],
        per_epoch: int | None, once: bool, every: float, follow_every: int | None, metrics_port: int | None,
    ) -> Status:  # fmt: skip
        """Run until the source has ended, a signal comes or an error; gives the exit status."""
        progress = Progress(self.output, unit="file" if folder else "record")
        progress.doing("starting Spark")
        try:
            from tailrace.lake.catalog import Lake
            from tailrace.spark.sources import Files, Kafka
            from tailrace.spark.stream import FOLLOW_EVERY, Stream

            source: Source = Files(folder, format, per_epoch) if folder else Kafka(str(topic), bootstrap, per_epoch)
            subject = Subject("stream", self.settings, self._stages, source)
            groups = ("lake", "kafka") if topic else ("lake",)
            with (
                observing(self.output, subject, metrics_port) as observed,
                # Spark takes the signals for itself as it starts.
                session(self.settings, f"tailrace stream {self.log}", groups, self.stop.listen) as spark,
            ):
                if not self.stop:
                    running = Stream(
                        spark,
                        Lake(self.settings, observed.tell),
                        self.pipelines,
                        source,
                        follow_every=follow_every or FOLLOW_EVERY,
                        watch=lambda report: self._watched(progress, observed, report),
                    )
                    self._drive(running, progress, observed, folder, once=once, every=every)
                observed.stopped = bool(self.stop)
        finally:
            progress.close()
        return self._summed(progress)

    def _drive(
        self, running: Stream, progress: Progress, observed: Observing, folder: str | None, *, once: bool, every: float
    ) -> None:
        topic = TopicBacklog()
        progress.backlog = FolderBacklog(folder, Path(running.checkpoint.folder)) if folder else topic
        if running.mended is not None:
            observed.tell(Mended(running.mended))
            self.output.say(f"the checkpoint {running.mended}: it was written anew as log {self.log} has it")
        progress.begun()
        try:
            if not self.stop:
                running.start(once=once, every=every)
                topic.query = running.query
                while not running.wait(_POLL) and not self.stop:
                    pass
        except _StoppedError:
            pass
        if self.stop:
            progress.doing(f"{self.stop.name}: stopping at the next epoch boundary (again to stop at once)")
            running.stop()
        progress.doing("bringing the answers up with the ledger")
        running.close()

    def _watched(self, progress: Progress, observed: Observing, report: EpochReport) -> None:
        progress.epoch(report)
        observed.tell(report)
        if self.stop and report.recovered:
            raise _StoppedError

    def _summed(self, progress: Progress) -> Status:
        status = Status.INTERRUPTED if self.stop else Status.OK
        tally, seconds = progress.tally, progress.seconds
        if self.output.json:
            self.output.data(_summary(tally, seconds, stopped=bool(self.stop)), line=True)
            return status
        if self.stop:
            at = "before the first epoch" if tally.last is None else f"at the boundary after epoch {tally.last}"
            self.output.say(f"{self.stop.name}: stopped {at}; the next start goes on from there")
        self.output.text(_summary_text(tally, seconds))
        return status


def _summary_text(tally: Tally, seconds: float) -> str:
    if not tally.epochs:
        return "nothing new: no epoch was needed"
    said = [f"{counted(tally.epochs, 'epoch')}, {counted(tally.records, 'record')} in {span(seconds)}"]
    said[0] += f" ({rate(tally.records, seconds)} records/s)"
    if tally.recovered:
        said.append(f"{counted(tally.recovered, 'epoch')} again from the log")
    panes = counted(tally.panes, "pane")
    said += [counted(tally.productions, "production")] if tally.productions else []
    said.append(panes + (f" and {counted(tally.retractions, 'retraction')}" if tally.retractions else ""))
    said += [f"{tally.late:,} late"] if tally.late else []
    said += [f"{tally.rejected:,} rejected"] if tally.rejected else []
    said += [counted(tally.duplicates, "duplicate")] if tally.duplicates else []
    said.append(f"watermark {shown(tally.watermark)}")
    return "; ".join(said)


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
        "panes": tally.panes,
        "retractions": tally.retractions,
        "late": tally.late,
        "productions": tally.productions,
        "seconds": round(seconds, 3),
        "watermarks": {name: text(micros) for name, micros in tally.watermarks.items()},
    }
