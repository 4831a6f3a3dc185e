"""Show the progress of a stream: a live display on a terminal, plain lines elsewhere, or a line of JSON per epoch."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.formats import quantity, rate, span, time_text
from tailrace.lake.catalog.events import unread_files
from tailrace.model.base.time import text
from tailrace.telemetry.json_fields import fields
from tailrace.telemetry.run_events import HELD_BACK, epoch_data

if TYPE_CHECKING:
    from tailrace.stream.epoch_report import EpochReport

QUIET = 2.0
"""The minimum time between two plain lines of progress, in seconds. The pause keeps the lines from filling a log
file.
"""

RECENT = 8
"""The number of recent epochs from which the remaining time is estimated. Older epochs are ignored, because the first
epochs of a session are far slower.
"""

Backlog = Callable[[], "tuple[int, int] | None"]
"""A function that returns the amount of input already read and the total amount, both in the unit that
`StreamProgress.unit` names.

The function returns None if these amounts are unknown.
"""

_LANDED = ("records", "rejected", "duplicates", "rounded", "blank", "links")
_FOLDED = ("panes", "retractions", "late", "productions", "claimed", "unanswered")
"""The names of the counts of an epoch: `_LANDED` counts the landed records, and `_FOLDED` counts the results of each
definition.
"""

_TEXTS: Mapping[str, Callable[[int], str]] = {
    "recovered": lambda count: f"{quantity(count, 'epoch')} again from the log",
    "productions": partial(quantity, one="production"),
    "claimed": "{:,} of another's".format,
    "unanswered": "{:,} unanswered".format,
    "late": "{:,} late".format,
    "rejected": "{:,} rejected".format,
    "duplicates": partial(quantity, one="duplicate"),
    "rounded": partial(quantity, one="rounded value"),
    "blank": partial(quantity, one="blank line"),
    "links": lambda count: f"{quantity(count, 'linked file')} passed over",
}


@dataclass
class Tally:
    """The total counts over all epochs of one run of a stream."""

    epochs: int = 0
    recovered: int = 0
    records: int = 0
    rejected: int = 0
    duplicates: int = 0
    rounded: int = 0
    blank: int = 0
    links: int = 0
    folders: dict[str, Mapping[str, int]] = field(default_factory=dict)
    panes: int = 0
    retractions: int = 0
    late: int = 0
    productions: int = 0
    claimed: int = 0
    unanswered: int = 0
    last: int | None = None
    watermarks: dict[str, int] = field(default_factory=dict)

    def add(self, report: EpochReport) -> None:
        """Add the counts of an epoch to the totals."""
        self.epochs += 1
        self.recovered += report.recovered
        self.last = report.epoch
        self.watermarks |= {name: folded.clock.watermark for name, folded in report.folded.items()}
        counts = [(_LANDED, report.landed), *((_FOLDED, folded) for folded in report.folded.values())]
        for names, counted in counts:
            for name in names:
                setattr(self, name, getattr(self, name) + getattr(counted, name))

    @property
    def unread(self) -> dict[str, int]:
        """The numbers of `changed`, `moved` and `hidden` files, each summed over all landing folders."""
        kinds = {kind for counts in self.folders.values() for kind in counts}
        return {kind: sum(counts.get(kind, 0) for counts in self.folders.values()) for kind in sorted(kinds)}

    @property
    def watermark(self) -> int | None:
        """The minimum of the definitions' watermarks, in microseconds, or None before the first epoch."""
        return min(self.watermarks.values(), default=None)

    def texts(self, *names: str) -> list[str]:
        """Return a text for each of the named counts that is not zero."""
        return [_TEXTS[name](count) for name in names if (count := getattr(self, name))]

    def summary(self, seconds: float) -> str:
        """Return the totals of a run as a line of text. `seconds` is the duration of the run."""
        if not self.epochs:
            return f"nothing new: no epoch was needed{unread_files(self.unread, '; ')}"
        retractions = f" and {quantity(self.retractions, 'retraction')}" if self.retractions else ""
        parts = [
            f"{quantity(self.epochs, 'epoch')}, {quantity(self.records, 'record')} in {span(seconds)} "
            f"({rate(self.records, seconds)} records/s)",
            *self.texts("recovered", "productions", "claimed"),
            f"{quantity(self.panes, 'pane')}{retractions}",
            *self.texts("unanswered", "late", "rejected", "duplicates", "rounded", "blank", "links"),
            f"watermark {time_text(self.watermark)}",
        ]
        return "; ".join(parts) + unread_files(self.unread, "; ")

    def data(self, seconds: float, *, stopped: bool) -> dict[str, Any]:
        """Return the totals of a run as JSON data.

        `seconds` is the duration of the run; `stopped` is true if a signal ended the run.
        """
        counts = fields(
            self, "epochs", "recovered", "last_epoch=last", "records", "rejected", "duplicates", "rounded",
            "blank_lines=blank", "linked_files=links", "unread_files=unread", "panes",
            "retractions", "unanswered", "late", "productions",
            "claimed",
        )  # fmt: skip
        watermarks = {name: text(micros) for name, micros in self.watermarks.items()}
        times = {"seconds": round(seconds, 3), "watermarks": watermarks}
        return {"event": "summary", "stopped": stopped, **counts, **times}


class StreamProgress:
    """Shows the progress of a stream's epochs on `output`."""

    def __init__(self, output: Output, backlog: Backlog = lambda: None, unit: str = "file") -> None:
        self.output, self.backlog, self.unit = output, backlog, unit
        self.tally = Tally()
        self._activity = ""
        self._report: EpochReport | None = None
        self._share: tuple[int, int] | None = None
        self._marks: deque[tuple[float, int]] = deque(maxlen=RECENT + 1)
        self._since = self._reported = time.monotonic()
        self._spinner = Spinner("dots")
        self._live = Live(get_renderable=self._rendered, console=output.news, refresh_per_second=8, transient=True)
        self._lock = threading.Lock()
        if output.live:
            self._live.start()

    def show_activity(self, text: str) -> None:
        """Show what the stream is doing, such as starting or stopping."""
        self._activity = text
        if not self.output.live:
            self.output.say(text)

    def begin(self) -> None:
        """Record the time at which the stream begins to read.

        Rates and the remaining time are computed from this time.
        """
        self._activity = ""
        self._since = time.monotonic()
        share = self.backlog()
        if share is not None:
            self._marks.append((self._since, share[0]))

    def show_epoch(self, report: EpochReport) -> None:
        """Show the report of an epoch that has ended. The stream calls this method from another thread."""
        share = self.backlog()
        with self._lock:
            self.tally.add(report)
            self._report, self._share = report, share
            if share is not None:
                self._marks.append((time.monotonic(), share[0]))
        if self.output.json:
            taken = {} if share is None else {f"{self.unit}s_taken": share[0], f"{self.unit}s": share[1]}
            self.output.data(epoch_data(report) | taken, line=True)
        elif not self.output.live and (self.tally.epochs == 1 or time.monotonic() - self._reported >= QUIET):
            self._reported = time.monotonic()
            self.output.say("  ".join(self._line(report) + self._pace()))

    def close(self) -> None:
        """Remove the live display from the terminal."""
        if self._live.is_started:
            self._live.stop()

    @property
    def seconds(self) -> float:
        """The number of seconds since `begin` was called."""
        return time.monotonic() - self._since

    def seconds_left(self) -> float | None:
        """Estimate the time for the remaining input, in seconds, from the rate of the recent epochs.

        Returns None if the time cannot be estimated.
        """
        if self._share is None or len(self._marks) < 2:
            return None
        (begun, had), (now, has) = self._marks[0], self._marks[-1]
        return (now - begun) / (has - had) * (self._share[1] - has) if has > had else None

    def _line(self, report: EpochReport) -> list[str]:
        """Return the results of an epoch as a list of texts that together form one line."""
        own = Tally()
        own.add(report)
        return [
            f"epoch {report.epoch}" + (" (again, from the log)" if report.recovered else ""),
            *([] if report.recovered else [quantity(own.records, "record")]),
            *own.texts("rejected", "duplicates", "rounded", "blank", "links"),
            quantity(own.panes, "pane"),
            *own.texts("unanswered", "late"),
            f"watermark {time_text(self.tally.watermark)}" + _held_back(report),
            span(report.seconds),
        ]

    def _pace(self) -> list[str]:
        """Return two parts of a line of text: the rate over the whole run, and the remaining input if it is known."""
        return [f"{rate(self.tally.records, self.seconds)} records/s", *self._remaining()]

    def _remaining(self) -> list[str]:
        if self._share is None:
            return []
        taken, all_ = self._share
        left = self.seconds_left()
        share = f"{taken:,} of {quantity(all_, self.unit)}"
        return [share if left is None or taken >= all_ else f"{share}, {span(max(1, round(left)))} left"]

    def _rendered(self) -> Table:
        """Create the live display.

        The display shows the current activity and its duration. If there is no activity, the display shows the rate and
        the last epoch.
        """
        made = Table.grid(padding=(0, 1, 0, 0))
        report, activity = self._report, self._activity
        if report is None or activity:
            waited = span(int(time.monotonic() - self._since))
            made.add_row(self._spinner, Text.assemble(activity or "waiting for input", (f"  {waited}", "dim")))
            return made
        with self._lock:
            pace, line, share = "  ".join(self._pace()), "  ".join(self._line(report)), self._share
        top = Table.grid(padding=(0, 1, 0, 0))
        bar = [ProgressBar(total=share[1], completed=share[0], width=20)] if share is not None and share[1] else []
        top.add_row(*bar, Text(pace))
        made.add_row(self._spinner, top)
        made.add_row("", Text(line, style="dim"))
        return made


def _held_back(report: EpochReport) -> str:
    """Return a text on the partitions that have held back the watermark for a long time.

    The text names the partition that has had no new records for the longest time. The text is empty if there is no such
    partition.
    """
    stalled = report.progress.stalled(HELD_BACK) if report.progress is not None else {}
    if not stalled:
        return ""
    name, length = max(stalled.items(), key=lambda one: one[1])
    more = f" and {len(stalled) - 1} more" if len(stalled) > 1 else ""
    return f", held back by {name}{more} with nothing new for {span(length / 1e6)}"
