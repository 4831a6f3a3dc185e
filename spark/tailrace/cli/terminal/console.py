"""Print reports to standard output, as text or JSON, and news and errors to standard error."""

from __future__ import annotations

import json
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

if TYPE_CHECKING:
    from tailrace.settings import Settings

WIDTH = 100
"""The width of text output without a terminal, in characters."""


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = WIDTH
    return console


@dataclass(frozen=True)
class Output:
    """The output of a command. `json` selects JSON for reports."""

    json: bool = False
    out: Console = field(default_factory=lambda: _console(stderr=False))
    news: Console = field(default_factory=lambda: _console(stderr=True))

    @property
    def live(self) -> bool:
        """Whether news can be redrawn in place: standard error is a terminal, and the report is text."""
        return self.news.is_terminal and not self.json

    @property
    def without_news(self) -> Output:
        """The same output without news, for a command whose standard error holds other lines."""
        return replace(self, news=Console(stderr=True, quiet=True))

    def report(self, data: Mapping[str, Any], lines: Iterable[RenderableType]) -> None:
        """Print a report: `data` as JSON, or `lines` for people."""
        if self.json:
            self.data(data)
        else:
            self.text(*lines)

    def data(self, value: Mapping[str, Any], *, line: bool = False) -> None:
        """Print JSON: indented, or on a single line for a stream of objects."""
        text = json.dumps(value, default=_plain, ensure_ascii=False, indent=None if line else 2)
        # Print without the console, which would wrap the text.
        print(text, file=self.out.file, flush=True)

    def text(self, *parts: RenderableType) -> None:
        """Print the parts of a report for people."""
        for part in parts:
            if isinstance(part, Table) and any(column.no_wrap for column in part.columns):
                _numbers_whole(part, self.out.width)
            self.out.print(part)

    def blocks(self, blocks: Iterable[Iterable[RenderableType]]) -> None:
        """Print blocks of a report for people, with an empty line between two."""
        for place, block in enumerate(blocks):
            self.text(*([""] if place else []), *block)

    def verbatim(self, *parts: RenderableType) -> None:
        """Print text without wrapping it, so that it can be copied."""
        for part in parts:
            self.out.print(part, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line of news as it is: not wrapped, and not parsed as markup."""
        self.news.print(Text(text), soft_wrap=True)

    def error(self, text: str) -> None:
        """Print an error message."""
        self.news.print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)


def output_for(settings: Settings, *, json: bool) -> Output:
    """Make the output of a run; without news if structured logs go to standard error."""
    output = Output(json)
    return output.without_news if settings.log_format is not None and settings.log_file is None else output


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        # As text, because programs read a JSON number as a double, which is not exact.
        return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def table(
    *headings: str,
    rows: Iterable[Sequence[RenderableType]] = (),
    right: Iterable[str] = (),
    whole: Iterable[str] = (),
    title: str | None = None,
    caption: str | None = None,
) -> Table:
    """Make a table. `right` names the columns of numbers, and `whole` the columns that are not wrapped."""
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
    """Narrow a table that is too wide: fold headings over numbers, and columns of words, but no number."""
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
"""The minimum width of a number column whose heading is folded, in characters."""

_LEAST = 10
"""The minimum width of a column of words that is folded, in characters."""

_BETWEEN = 2
"""The space between columns, in characters."""


def facts(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Make a table with a name and a value in each row."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, _BETWEEN, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, value)
    return made


def sign(*, minus: bool) -> Text:
    """Write the sign of a row: a minus for a retraction, else a plus."""
    return Text("−", style="red") if minus else Text("+", style="green")


def mark(*, ok: bool) -> Text:
    """Write the mark of a check: a tick if the check holds, else a cross."""
    return Text("✓", style="green") if ok else Text("✗", style="bold red")
