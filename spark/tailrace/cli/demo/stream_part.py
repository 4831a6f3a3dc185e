"""Run the stream of the demo, and print the panes of one window as they fire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from queue import SimpleQueue

from pyspark.sql import SparkSession

from tailrace.cli.demo.demo_tables import DemoTables, Span
from tailrace.cli.demo.story import Story
from tailrace.cli.terminal.backlog import FolderBacklog
from tailrace.cli.terminal.formats import quantity, rate, span
from tailrace.cli.terminal.stream_progress import StreamProgress
from tailrace.engines.spark.session import open_session
from tailrace.ingest.sources import Files
from tailrace.model.base.time import moment
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.trace.key_history import LedgerPane

INKS = {"early": "cyan", "on_time": "green", "late": "yellow", "correction": "magenta"}


@dataclass
class StreamPart:
    """The stream of the demo, which reads the files of a folder, one file per epoch.

    `shown` is the window whose panes are printed. `progress` shows the epochs and counts their results. `phases` maps
    each phase of an epoch to the total duration of this phase over all epochs, in seconds.
    """

    story: Story
    settings: Settings
    tables: DemoTables
    shown: Span

    def __post_init__(self) -> None:
        output, console = self.story.output, self.story.console
        self.progress = StreamProgress(replace(output, news=console) if console.is_terminal else output)
        self.seconds = 0.0
        self.phases: Counter[str] = Counter()
        self._reports: SimpleQueue[EpochReport] = SimpleQueue()
        self._printed = 0

    def run(self, folder: str) -> SparkSession:
        """Stream the files of a folder, and return the Spark session.

        After Ctrl-C, the stream ends at the end of the current epoch.
        """
        progress = self.progress
        try:
            progress.show_activity("starting Spark")
            spark = open_session(self.settings, app="tailrace demo")
            self.story.take_interrupts()
            source = Files(folder, "json", per_epoch=1)
            stream = Stream(spark, self.tables.lake, [self.tables.pipeline], source, watch=self._watch)
            progress.backlog = FolderBacklog([folder], stream.checkpoint.folder)
            columns = f"{'fired':<8}{'watermark':<12}{'pane':<13}{'flights':>7}{'mean delay':>14}    takes back"
            self.story.line((columns, "dim"))
            progress.begin()
            stream.start(once=True)
            while not stream.wait(0.2) and not self.story.interrupted:
                self._show_new()
            stream.stop()
            self._show_new()
            self.story.check()
            progress.show_activity("bringing the answer up with the ledger")
            stream.close()
            self.seconds = progress.seconds
        finally:
            progress.close()
        tally = progress.tally
        nouns = {"epochs": "epoch", "records": "record", "panes": "pane", "retractions": "retraction", "late": "record"}
        counts = {name: quantity(getattr(tally, name), noun) for name, noun in nouns.items()}
        self.story.tell("streamed", took=span(self.seconds), rate=rate(tally.records, self.seconds), **counts)
        return spark

    def _watch(self, report: EpochReport) -> None:
        self.progress.show_epoch(report)
        self._reports.put(report)

    def _show_new(self) -> None:
        """Print the new panes of the shown window.

        The method reads the ledger only if an epoch that ended after the previous call may have fired a pane of the
        shown window.
        """
        near, hour = False, timedelta(hours=1)
        while not self._reports.empty():
            report = self._reports.get()
            self.phases.update(report.phases)
            folded = report.folded[self.tables.pipeline.name]
            known = moment(folded.clock.processing_time)
            near |= folded.panes > 0 and self.shown.first - hour <= known < self.shown.last + 6 * hour
        if near:
            panes = self.tables.panes(self.shown)
            self._show(panes[self._printed :])
            self._printed = len(panes)

    def _show(self, panes: Sequence[LedgerPane]) -> None:
        """Print one line for each pane.

        If a retraction was committed with the pane, the line also shows the retracted value.
        """
        back = {pane.version: pane for pane in panes if pane.retraction}
        for pane in (one for one in panes if not one.retraction):
            delay, taken = pane.values["mean_delay"], back.get(pane.version)
            self.story.line(
                f"{moment(pane.processing_time):%H:%M}   {moment(pane.watermark):%H:%M}       ",
                (f"{pane.timing.replace('_', ' '):<13}", INKS[pane.timing]),
                f"{pane.values['flights']:>7}{'–' if delay is None else f'{delay:.1f} min':>14}",
                (f"    − {taken.values['flights']}" if taken else "", "red"),
            )
