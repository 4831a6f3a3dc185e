"""`tailrace panes`: the history of one key and window, pane by pane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tailrace.cli.runtime.definitions import load
from tailrace.cli.runtime.options import Definition, Json
from tailrace.cli.runtime.process import looking
from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.formats import bounds, counted, parsed, span, time_text, together
from tailrace.cli.terminal.usage import UsageError
from tailrace.model.base.time import instant, text
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.windows import Window
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.trace.key_history import History, LedgerPane

_STYLES = {"early": "cyan", "on_time": "green", "late": "yellow", "correction": "magenta"}


def panes(
    definition: Definition,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help="The key: a value for each key column in order, or COLUMN=VALUE."),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help="The window's start, or an instant in it; without one, all windows."),
    ] = None,
    json: Json = False,
) -> None:
    """Show every pane that one key and window gave, in version order, and what came too late for it.

    A plus says what a pane holds, a minus takes an answer back. Reads the ledger, without Spark.
    """
    output, settings = Output(json), Settings()
    pipeline = load(definition)
    texts = keyed(pipeline, key or [])
    at = parsed(window, "--window") if window is not None else None
    looking()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.trace.key_history import history, key_values

    past = history(Lake(settings), pipeline, key_values(pipeline, texts), at)
    if json:
        output.data(_data(pipeline, past))
    else:
        output.text(*_lines(pipeline, past, texts, at))


def keyed(pipeline: Pipeline, texts: Sequence[str]) -> list[str]:
    """Return the key's values in the order of its columns. Raises `UsageError` unless each column has one value."""
    named: dict[str, str] = {}
    for place, text_ in enumerate(texts):
        name, equals, value = text_.partition("=")
        if equals and name in pipeline.key:
            named[name] = value
        elif place < len(pipeline.key):
            named[pipeline.key[place]] = text_
    if len(texts) != len(pipeline.key) or set(named) != set(pipeline.key):
        wanted = " ".join(f"--key {name}=VALUE" for name in pipeline.key) or "no --key, for it has one group"
        raise UsageError(f"the key of {pipeline.name} is ({', '.join(pipeline.key)}): expected {wanted}")
    return [named[name] for name in pipeline.key]


def _lines(pipeline: Pipeline, history: History, texts: Sequence[str], at: int | None) -> Iterator[Any]:
    key = ", ".join(f"{name} {value}" for name, value in zip(pipeline.key, texts, strict=True))
    windows = history.windows
    title = Text.assemble((pipeline.name, "bold"), f"  {key}" if key else "")
    if len(windows) == 1:
        title.append(f"  {bounds(windows[0])}")
    yield title
    if not windows:
        where = f" at {time_text(at)}" if at is not None else ""
        yield (
            f"no pane yet{where}: no record of this key is in the window, or its trigger has not fired; the ledger is "
            f"at epoch {history.epoch}, its watermark at {time_text(history.watermark)}"
        )
        return
    columns = _OneWindow(history) if len(windows) == 1 else _ManyWindows(history)
    if columns.said_once:
        yield Text(", ".join(columns.said_once), style="dim")
    if history.panes:
        yield _table(pipeline, history.panes, columns)
    if history.late:
        yield ""
        yield _late(history, columns)
    if len(windows) == 1:
        yield ""
        yield facts(_state(pipeline, history, windows[0]))


def _table(pipeline: Pipeline, panes: Sequence[LedgerPane], columns: _OneWindow | _ManyWindows) -> Table:
    results = pipeline.columns_shown(pane.values for pane in panes)
    made = table(
        *columns.before, "timing", "", *results, *columns.after,
        right=(*columns.numbers, *results), whole=(*columns.before, "timing", *columns.after),
    )  # fmt: skip
    for pane in panes:
        sign = Text("−", style="red") if pane.retraction else Text("+", style="green")
        before, after = columns.of(pane)
        made.add_row(
            *before,
            Text(pane.timing.replace("_", " ") + (", last" if pane.is_last else ""), _STYLES.get(pane.timing, "")),
            sign,
            *(value_shown(pane.values.get(name)) for name in results),
            *after,
            style="dim" if pane.retraction else "",
        )
    return made


def _late(history: History, columns: _OneWindow | _ManyWindows) -> Table:
    names = columns.of_late
    made = table(*names, right=("epoch",), whole=("window", "event time"), title="too late")
    for late in history.late:
        cells = {
            "window": bounds(late.window, columns.short),
            "event time": columns.short(late.event_time),
            "epoch": str(late.epoch),
            "behind": span(late.behind / 1e6),
            "reason": late.reason,
            "in the log": f"{late.source[1].rsplit('/', 1)[-1]}, {late.source[2]}",
        }
        made.add_row(*(cells[name] for name in names))
    return made


class _OneWindow:
    """The columns of one window's history: the version by its parts, and when each pane fired.

    The day or year that all instants share is said once, above.
    """

    after = ("fired at", "watermark")
    of_late = ("event time", "epoch", "behind", "reason", "in the log")

    def __init__(self, history: History) -> None:
        panes, late = history.panes, history.late
        generations = {pane.version.generation for pane in panes}
        self.first = int(len(generations) < 2)
        self.before = self.numbers = ("gen", "epoch", "pane")[self.first :]
        fired = (at for pane in panes for at in (pane.processing_time, pane.watermark))
        shared, self.short = together([*fired, *(one.event_time for one in late)])
        self.said_once = _shared(shared) + [f"all of generation {one}" for one in generations if self.first]

    def of(self, pane: LedgerPane) -> tuple[list[str], list[str]]:
        numbers = [f"{number}" for number in pane.version[self.first :]]
        return numbers, [self.short(pane.processing_time), self.short(pane.watermark)]


class _ManyWindows:
    """The columns of several windows' history: the window, and the version in one column."""

    before, numbers, after = ("window", "version"), (), ()
    of_late = ("window", "event time", "epoch", "behind", "reason")

    def __init__(self, history: History) -> None:
        windows = [*(pane.window for pane in history.panes), *(one.window for one in history.late)]
        times = (one.event_time for one in history.late)
        shared, self.short = together([*(at for window in windows for at in window), *times])
        self.said_once = [*_shared(shared), "a version is generation.epoch.pane"]

    def of(self, pane: LedgerPane) -> tuple[list[str], list[str]]:
        return [bounds(pane.window, self.short), ".".join(map(str, pane.version))], []


def _shared(common: str) -> list[str]:
    return [f"times are of {common}, UTC"] if common else []


def _state(pipeline: Pipeline, history: History, window: Window) -> Iterator[tuple[str, str]]:
    answer = history.answer(window)
    if answer is not None:
        values = ", ".join(f"{name} {value_shown(value)}" for name, value in answer.answer.items())
        yield "answer", f"{values}  ({answer.timing.replace('_', ' ')}, written by the {answer.writer})"
    else:
        yield "answer", "none: it was taken back" if history.panes else "none yet"
    closes = pipeline.closes(window.end)
    if history.watermark >= closes:
        yield "window", f"closed: the watermark passed {time_text(closes)}"
    else:
        yield "window", f"open until the watermark passes {time_text(closes)}; it is at {time_text(history.watermark)}"
    yield "panes", f"{counted(len(history.panes), 'pane')}, {counted(len(history.late), 'late record')}"


def value_shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, datetime):
        return text(instant(value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _data(pipeline: Pipeline, history: History) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "key": dict(zip(pipeline.key, history.key, strict=True)),
        "epoch": history.epoch,
        "watermark": text(history.watermark),
        "panes": [
            {
                "window": [text(pane.window.start), text(pane.window.end)],
                "generation": pane.version.generation,
                "epoch": pane.version.epoch,
                "index": pane.version.index,
                "settled_index": pane.settled_index,
                "last": pane.is_last,
                "timing": pane.timing,
                "retraction": pane.retraction,
                "values": dict(pane.values),
                "answer": dict(pane.answer),
                "processing_time": text(pane.processing_time),
                "watermark": text(pane.watermark),
                "writer": pane.writer,
            }
            for pane in history.panes
        ],
        "late": [
            {
                "window": [text(late.window.start), text(late.window.end)],
                "event_time": text(late.event_time),
                "epoch": late.epoch,
                "behind_seconds": late.behind / 1e6,
                "reason": late.reason,
                "source": {"epoch": late.source[0], "partition": late.source[1], "offset": late.source[2]},
            }
            for late in history.late
        ],
    }
