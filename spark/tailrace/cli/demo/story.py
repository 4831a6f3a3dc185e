"""Print the text of the demo: numbered steps, short paragraphs, tables and code."""

from __future__ import annotations

import logging
import os
import signal
import textwrap
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import FrameType

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from tailrace.cli.terminal.console import WIDTH, Output

INDENT = "     "


@cache
def _paragraphs() -> dict[str, str]:
    return tomllib.loads(files(__package__).joinpath("story.toml").read_text("utf-8"))


@dataclass
class Story:
    """Prints the text of the demo. `seconds` maps the name of each finished step to its duration."""

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
        """Print the heading of a step, and record the duration of the step.

        Raises `KeyboardInterrupt` if Ctrl-C was pressed before the step.
        """
        self.check()
        number, started = len(self.seconds) + 1, time.perf_counter()
        self.console.print()
        self.console.print(Text.assemble((f"{number}/{self.steps}  ", "dim"), (title, "bold")))
        self._last = ""
        yield
        self.seconds[name] = round(time.perf_counter() - started, 1)

    def take_interrupts(self) -> None:
        """Handle Ctrl-C so that the demo ends after the current operation.

        Without this handler, Spark would handle Ctrl-C and fail.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._interrupt)

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C has been pressed."""
        if self.interrupted:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            # Disable logging: otherwise, the interrupted query would log a stack trace.
            logging.disable()
            raise KeyboardInterrupt
        self.interrupted = True
        os.write(2, f"\n{INDENT}Ctrl-C: the demo ends when what is running is done; again to end it at once\n".encode())

    def tell(self, name: str, style: str = "", **values: object) -> None:
        """Print a paragraph of `story.toml`, with these values for its placeholders."""
        text = _paragraphs()[name].format(**values)
        self._apart("paragraph")
        width = min(self.console.width, WIDTH) - len(INDENT)
        for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
            self.console.print(Text(INDENT + line, style=style), soft_wrap=True)

    def show(self, thing: RenderableType) -> None:
        """Print a table or another block of output that is not a paragraph."""
        self._apart("show")
        self.console.print(Padding(thing, (0, 0, 0, len(INDENT)), expand=False), width=min(self.console.width, WIDTH))

    def code(self, text: str, language: str) -> None:
        """Print source code without wrapping its lines."""
        self._apart("code")
        for line in Syntax("", language, theme="ansi_light").highlight(text).split():
            self.console.print(Text(INDENT).append_text(line), soft_wrap=True)

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Print a line without wrapping it, such as a row of a table that is printed row by row."""
        self._apart("line")
        self.console.print(Text.assemble(INDENT, *parts), soft_wrap=True)

    def _apart(self, kind: str) -> None:
        """Print an empty line before a block of output, but not between consecutive lines that `line` prints."""
        if self._last and (kind, self._last) != ("line", "line"):
            self.console.print()
        self._last = kind
