"""Print reports to standard output, as text or JSON; print messages and errors to standard error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from tailrace.cli.terminal.formats import strict_json

if TYPE_CHECKING:
    from tailrace.settings import Settings

WIDTH = 100
"""The width, in characters, of text output that does not go to a terminal."""


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = WIDTH
    return console


@dataclass(frozen=True)
class Output:
    """The output of a command. If `json` is true, reports are printed as JSON."""

    json: bool = False
    out: Console = field(default_factory=lambda: _console(stderr=False))
    news: Console = field(default_factory=lambda: _console(stderr=True))

    @property
    def live(self) -> bool:
        """Whether progress can be redrawn in place: standard error is a terminal, and reports are printed as text."""
        return self.news.is_terminal and not self.json

    @property
    def without_news(self) -> Output:
        """An output that shows no messages, for a command that writes other lines to standard error."""
        return replace(self, news=Console(stderr=True, quiet=True))

    def report(self, data: Mapping[str, Any], lines: Iterable[RenderableType]) -> None:
        """Print a report: `data` if the output is JSON, otherwise `lines`."""
        if self.json:
            self.data(data)
        else:
            self.text(*lines)

    def data(self, value: Mapping[str, Any], *, line: bool = False) -> None:
        """Print an object as JSON.

        If `line` is true, the JSON is on a single line; commands that print many objects use this form. If `line` is
        false, the JSON is indented.
        """
        text = strict_json(value, default=_plain, indent=None if line else 2)
        # The JSON is not printed with the console, because the console would wrap the text.
        print(text, file=self.out.file, flush=True)

    def text(self, *parts: RenderableType) -> None:
        """Print parts of a text report."""
        for part in parts:
            if isinstance(part, Table) and any(column.no_wrap for column in part.columns):
                _numbers_whole(part, self.out.width)
            self.out.print(part)

    def blocks(self, blocks: Iterable[Iterable[RenderableType]]) -> None:
        """Print blocks of a text report, with an empty line between blocks."""
        for place, block in enumerate(blocks):
            self.text(*([""] if place else []), *block)

    def verbatim(self, *parts: RenderableType) -> None:
        """Print text without wrapping it, so that it can be copied."""
        for part in parts:
            self.out.print(part, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a message on one line: the text is not wrapped, and markup in the text is not interpreted."""
        self.news.print(Text(text), soft_wrap=True)

    def error(self, text: str) -> None:
        """Print an error message."""
        self.news.print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)


def output_for(settings: Settings, *, json: bool) -> Output:
    """Create the output of a run. The output prints no messages if structured logs are written to standard error."""
    output = Output(json)
    return output.without_news if settings.log_format is not None and settings.log_file is None else output


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        # A decimal is written as text, because most programs read a JSON number as a double, which is not exact.
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def table(
    *headings: str,
    rows: Iterable[Sequence[RenderableType]] = (),
    right: Iterable[str] = (),
    whole: Iterable[str] = (),
    title: str | None = None,
    caption: str | None = None,
) -> Table:
    """Create a table. `right` names the columns of numbers, and `whole` names the columns whose text is not wrapped."""
    made = Table(
        box=None, header_style="dim", pad_edge=False, padding=(0, _BETWEEN, 0, 0), title=title, title_justify="left",
        title_style="bold", caption=caption, caption_justify="left",
    )  # fmt: skip
    numbers, lines = set(right), set(whole)
    for heading in headings:
        side: JustifyMethod = "right" if heading in numbers else "left"
        made.add_column(heading, justify=side, overflow="fold", no_wrap=heading in lines)
    for row in rows:
        made.add_row(*row)
    return made


def _numbers_whole(made: Table, width: int) -> None:
    """Reduce the width of a table that is wider than `width`.

    The headings of number columns and the text of word columns are wrapped. A number is never wrapped.
    """
    longest = [max((cell_len(str(cell)) for cell in column.cells), default=0) for column in made.columns]
    natural = [max(size, cell_len(str(one.header))) for one, size in zip(made.columns, longest, strict=True)]
    numbers = [place for place, column in enumerate(made.columns) if column.justify == "right"]
    words = [place for place, column in enumerate(made.columns) if not column.no_wrap and place not in numbers]
    widths = dict(enumerate(natural))
    widths |= {place: max(longest[place], min(natural[place], _SHORT)) for place in numbers} | {
        place: min(natural[place], _LEAST) for place in words
    }
    spare = width - _BETWEEN * (len(natural) - 1) - sum(widths.values())
    if spare < 0 or sum(natural) + _BETWEEN * (len(natural) - 1) <= width:
        return
    for places in (numbers, words):
        for _ in range(spare):
            short = max(places, key=lambda place: natural[place] - widths[place], default=None)
            if short is None or natural[short] == widths[short]:
                break
            widths[short], spare = widths[short] + 1, spare - 1
    for place in numbers + words:
        made.columns[place].width = widths[place]


_SHORT = 5
"""The minimum width, in characters, of a number column whose heading is wrapped."""

_LEAST = 10
"""The minimum width, in characters, of a word column whose text is wrapped."""

_BETWEEN = 2
"""The space between columns, in characters."""


def facts(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Create a table with two columns: a name and its value."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, _BETWEEN, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, value)
    return made


def sign(*, minus: bool) -> Text:
    """Return the sign of a row: a minus sign for a retraction, otherwise a plus sign."""
    return Text("−", style="red") if minus else Text("+", style="green")


def mark(*, ok: bool) -> Text:
    """Return the mark of a check: a tick if the check passed, otherwise a cross."""
    return Text("✓", style="green") if ok else Text("✗", style="bold red")
