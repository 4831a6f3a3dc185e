"""Run the demo's stream to the end of its files, and print the panes of one window as they fire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from queue import SimpleQueue

from pyspark.sql import SparkSession

from tailrace.cli.demo.reads import Fired, Reads, Span
from tailrace.cli.demo.story import DemoPace, Story
from tailrace.cli.terminal.formats import counted, rate, span
from tailrace.cli.terminal.stream_progress import Tally
from tailrace.engines.spark.session import open_session
from tailrace.ingest.sources import Files
from tailrace.model.base.time import moment
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream

INKS = {"early": "cyan", "on_time": "green", "late": "yellow", "correction": "magenta"}


@dataclass
class Streamed:
    """The stream of a folder, one file per epoch. `shown` is the window whose panes are printed; `tally` counts."""

    story: Story
    settings: Settings
    reads: Reads
    shown: Span

    def __post_init__(self) -> None:
        self.tally = Tally()
        self.seconds = 0.0
        self.phases: dict[str, float] = {}
        self._reports: SimpleQueue[EpochReport] = SimpleQueue()
        self._read: int | None = None

    def run(self, folder: str, files: int) -> SparkSession:
        """Stream the files and return the session. Ctrl-C ends the stream after the running epoch."""
        with self.story.progress(files) as pace:
            pace.place = "starting Spark"
            spark = open_session(self.settings, app="tailrace demo")
            self.story.take_interrupts()
            stream = Stream(
                spark,
                self.reads.lake,
                [self.reads.pipeline],
                Files(folder, "json", per_epoch=1),
                watch=self._reports.put,
            )
            self._read = self.reads.lake.head(self.reads.ledger).snapshot
            self._heading()
            pace.begin()
            stream.start(once=True)
            while not stream.wait(0.2) and not self.story.interrupted:
                self._tell(pace)
            stream.stop()
            self._tell(pace)
            self.story.check()
            pace.place = "bringing the answer up with the ledger"
            stream.close()
            self.seconds = pace.seconds
        self._summed()
        return spark

    def _tell(self, pace: DemoPace) -> None:
        """Print the epochs that ended since the last call, and the panes that they fired in the shown window."""
        near = False
        while not self._reports.empty():
            report = self._reports.get()
            self.tally.add(report)
            for phase, seconds in report.phases.items():
                self.phases[phase] = self.phases.get(phase, 0.0) + seconds
            folded = report.folded[self.reads.pipeline.name]
            known = moment(folded.clock.processing_time)
            pace.epoch(report.landed.records, f"{known:%-d %b %H:%M}")
            hour = timedelta(hours=1)
            near |= folded.panes > 0 and self.shown.first - hour <= known < self.shown.last + 6 * hour
        if near:
            panes, self._read = self.reads.panes(self.shown, self._read)
            self._fired(panes)

    def _heading(self) -> None:
        columns = f"{'fired':<8}{'watermark':<12}{'pane':<13}{'flights':>7}{'mean delay':>14}    takes back"
        self.story.line((columns, "dim"))

    def _fired(self, panes: Sequence[Fired]) -> None:
        """Print a line for each pane, with the retraction that came with it."""
        back = {pane.version: pane for pane in panes if pane.retraction}
        for pane in panes:
            if pane.retraction:
                continue
            delay = "–" if pane.mean_delay is None else f"{pane.mean_delay:.1f} min"
            taken = back.get(pane.version)
            self.story.line(
                f"{pane.at:%H:%M}   {pane.watermark:%H:%M}       ",
                (f"{pane.timing.replace('_', ' '):<13}", INKS[pane.timing]),
                f"{pane.flights:>7}{delay:>14}",
                (f"    − {taken.flights}" if taken else "", "red"),
            )

    def _summed(self) -> None:
        tally = self.tally
        self.story.say(
            f"{counted(tally.epochs, 'epoch')} in {span(self.seconds)}: {counted(tally.records, 'record')} "
            f"({rate(tally.records, self.seconds)} a second), {counted(tally.panes, 'pane')}, "
            f"{counted(tally.retractions, 'retraction')}, {counted(tally.late, 'record')} too late."
        )
