"""Print the demo's story: numbered steps, short paragraphs, and a stream's progress."""

from __future__ import annotations

import logging
import os
import signal
import textwrap
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.syntax import Syntax
from rich.text import Text

from tailrace.cli.terminal.console import WIDTH, Output
from tailrace.cli.terminal.formats import rate, span

INDENT = "     "

QUIET = 10.0
"""The minimum time between lines of progress without a terminal, in seconds."""

RECENT = 10
"""The number of last epochs that estimate the remaining time, because the first ones, in a cold Spark, are slower."""


@dataclass
class Story:
    """The demo's voice. It remembers how long each step took."""

    steps: int
    output: Output = field(default_factory=Output)
    seconds: dict[str, float] = field(default_factory=dict)
    interrupted: bool = False
    _last: str = ""

    @property
    def console(self) -> Console:
        return self.output.out

    @contextmanager
    def step(self, name: str, title: str) -> Iterator[None]:
        """Print a step's heading, and note its time at the end. Raises `KeyboardInterrupt` if told to stop."""
        self.check()
        number, started = len(self.seconds) + 1, time.perf_counter()
        self.console.print()
        self.console.print(Text.assemble((f"{number}/{self.steps}  ", "dim"), (title, "bold")))
        self._last = ""
        yield
        self.seconds[name] = round(time.perf_counter() - started, 1)

    def take_interrupts(self) -> None:
        """Make Ctrl-C end the demo after the running part, because Spark would take the signal over and fail."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._interrupt)

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was pressed."""
        if self.interrupted:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            # The query that is cut off would log a trace.
            logging.disable()
            raise KeyboardInterrupt
        self.interrupted = True
        os.write(2, f"\n{INDENT}Ctrl-C: the demo ends when what is running is done; again to end it at once\n".encode())

    def say(self, text: str, style: str = "") -> None:
        """Print a paragraph."""
        self._apart("say")
        width = min(self.console.width, WIDTH) - len(INDENT)
        for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
            self.console.print(Text(INDENT + line, style=style), soft_wrap=True)

    def show(self, thing: RenderableType) -> None:
        """Print a table, or anything else that is not a sentence."""
        self._apart("show")
        self.console.print(Padding(thing, (0, 0, 0, len(INDENT)), expand=False), width=min(self.console.width, WIDTH))

    def code(self, text: str, language: str) -> None:
        """Print code unchanged."""
        self._apart("code")
        for line in Syntax("", language, theme="ansi_light").highlight(text).split():
            self.console.print(Text(INDENT).append_text(line), soft_wrap=True)

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print one line unchanged, such as a row of a growing table."""
        self._apart("line")
        self.console.print(Text.assemble(INDENT, *parts), soft_wrap=True)

    def _apart(self, kind: str) -> None:
        """Print an empty line between blocks."""
        if self._last and (kind, self._last) != ("line", "line"):
            self.console.print()
        self._last = kind

    @contextmanager
    def progress(self, total: int) -> Iterator[DemoPace]:
        """Show how far a stream of `total` files has come."""
        pace = DemoPace(self, total)
        if not self.console.is_terminal:
            yield pace
            return
        columns = (TextColumn("    "), SpinnerColumn(), BarColumn(20), _PaceColumn(pace))
        with Progress(*columns, console=self.console, transient=True) as live:
            pace.live = (live, live.add_task("", total=total))
            yield pace


@dataclass
class DemoPace:
    """The pace of a stream: its position, its rate, and the remaining time."""

    story: Story
    total: int
    place: str = ""
    epochs: int = 0
    records: int = 0
    live: tuple[Progress, TaskID] | None = None
    since: float = 0.0
    reported: float = 0.0
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT + 1))

    def begin(self) -> None:
        """Note that the stream begins; rates and the remaining time count from now."""
        self.since = self.reported = time.perf_counter()

    def epoch(self, records: int, place: str) -> None:
        """Count a completed epoch; `place` is the known time that its records have reached."""
        self.epochs, self.records, self.place = self.epochs + 1, self.records + records, place
        self.ends.append(time.perf_counter())
        if self.live is not None:
            progress, task = self.live
            progress.update(task, completed=self.epochs)
        elif time.perf_counter() - self.reported >= QUIET:
            self.reported = time.perf_counter()
            self.story.line((f"… known up to {self}", "dim"))

    @property
    def seconds(self) -> float:
        """The seconds since the stream began."""
        return time.perf_counter() - self.since

    def __str__(self) -> str:
        if not self.epochs or self.epochs == self.total:
            return self.place
        line = f"{self.place}  epoch {self.epochs:,} of {self.total:,}  {rate(self.records, self.seconds)} records/s"
        if len(self.ends) <= RECENT / 2:
            return line
        each = (self.ends[-1] - self.ends[0]) / (len(self.ends) - 1)
        return f"{line}  {span(max(1, round(each * (self.total - self.epochs))))} left"


class _PaceColumn(ProgressColumn):
    def __init__(self, pace: DemoPace) -> None:
        super().__init__()
        self.pace = pace

    def render(self, task: Task) -> Text:
        return Text(str(self.pace), style="dim")
