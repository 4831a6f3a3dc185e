"""`tailrace panes`: the history of one key and window, pane by pane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tailrace.cli.console import Output, facts, table
from tailrace.cli.definitions import load
from tailrace.cli.errors import UsageError
from tailrace.cli.options import Definition, Json
from tailrace.cli.process import without_pandas
from tailrace.cli.texts import bounds, counted, parsed, shown, span, together
from tailrace.model.pipeline import Pipeline
from tailrace.model.time import text
from tailrace.model.windows import Window
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.lake.history import History, LedgerPane

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
    without_pandas()
    from tailrace.lake.catalog import Lake
    from tailrace.lake.history import history, key_values

    found = history(Lake(settings), pipeline, key_values(pipeline, texts), at)
    if json:
        output.data(_data(pipeline, found))
    else:
        output.text(*_shown(pipeline, found, texts, at))


def keyed(pipeline: Pipeline, given: Sequence[str]) -> list[str]:
    """The key's values in the order of its columns. Raises `UsageError` where they are not one for each."""
    named: dict[str, str] = {}
    for place, text_ in enumerate(given):
        name, equals, value = text_.partition("=")
        if equals and name in pipeline.key:
            named[name] = value
        elif place < len(pipeline.key):
            named[pipeline.key[place]] = text_
    if len(given) != len(pipeline.key) or set(named) != set(pipeline.key):
        wanted = " ".join(f"--key {name}=VALUE" for name in pipeline.key) or "no --key, for it has one group"
        raise UsageError(f"the key of {pipeline.name} is ({', '.join(pipeline.key)}): expected {wanted}")
    return [named[name] for name in pipeline.key]


def _shown(pipeline: Pipeline, found: History, texts: Sequence[str], at: int | None) -> Iterator[Any]:
    said = ", ".join(f"{name} {value}" for name, value in zip(pipeline.key, texts, strict=True))
    windows = found.windows
    title = Text.assemble((pipeline.name, "bold"), f"  {said}" if said else "")
    if len(windows) == 1:
        title.append(f"  {bounds(windows[0])}")
    yield title
    if not windows:
        where = f" at {shown(at)}" if at is not None else ""
        yield (
            f"no pane yet{where}: no record of this key is in the window, or its trigger has not fired; the ledger is "
            f"at epoch {found.epoch}, its watermark at {shown(found.watermark)}"
        )
        return
    if found.panes:
        yield from _table(pipeline, found.panes, one=len(windows) == 1)
    if found.late:
        yield ""
        yield _late(found, one=len(windows) == 1)
    if len(windows) == 1:
        yield ""
        yield facts(_state(pipeline, found, windows[0]))


def _table(pipeline: Pipeline, rows: Sequence[LedgerPane], *, one: bool) -> Iterator[Text | Table]:
    """The panes of one window, or of several with each pane's window in place of its watermark.

    What all their instants have in common is said once, above.
    """
    results = list(pipeline.results)
    several = len({pane.version.generation for pane in rows}) > 1
    number = ("gen", "epoch", "pane")[not several :]
    place, last = ((), ("watermark",)) if one else (("window",), ())
    made = table(
        *number, *place, "timing", "", *results, "fired at", *last,
        right=(*number, *results), whole=("window", "timing", "fired at", "watermark"),
    )  # fmt: skip
    shared, said = together(at for pane in rows for at in (pane.processing_time, *_times(pane, one=one)))
    news = [f"times are of {shared}, UTC"] if shared else []
    news += [] if several else [f"all of generation {rows[0].version.generation}"]
    if news:
        yield Text(", ".join(news), style="dim")
    for pane in rows:
        sign = Text("−", style="red") if pane.retraction else Text("+", style="green")
        made.add_row(
            *(f"{number}" for number in pane.version[not several :]),
            *([] if one else [bounds(pane.window, said)]),
            Text(pane.timing.replace("_", " "), style=_STYLES.get(pane.timing, "")),
            sign,
            *(value_shown(value) for value in pane.values.values()),
            said(pane.processing_time),
            *([said(pane.watermark)] if one else []),
            style="dim" if pane.retraction else "",
        )
    yield made


def _times(pane: LedgerPane, *, one: bool) -> tuple[int, ...]:
    """The instants that a pane is shown with besides when it fired."""
    return (pane.watermark,) if one else pane.window


def _late(found: History, *, one: bool) -> Table:
    made = table(
        *(() if one else ("window",)),
        "event time",
        "epoch",
        "behind",
        "reason",
        "in the log",
        right=("epoch",),
        whole=("window", "event time"),
        title="too late",
    )
    for late in found.late:
        source = f"{late.source[1].rsplit('/', 1)[-1]}, {late.source[2]}"
        where = () if one else (bounds(late.window),)
        made.add_row(*where, shown(late.event_time), str(late.epoch), span(late.behind / 1e6), late.reason, source)
    return made


def _state(pipeline: Pipeline, found: History, window: Window) -> Iterator[tuple[str, str]]:
    answer = found.answer(window)
    if answer is not None:
        values = ", ".join(f"{name} {value_shown(value)}" for name, value in answer.answer.items())
        yield "answer", f"{values}  ({answer.timing.replace('_', ' ')}, written by the {answer.writer})"
    else:
        yield "answer", "none: it was taken back" if found.panes else "none yet"
    closes = pipeline.closes(window.end)
    if found.watermark >= closes:
        yield "window", f"closed: the watermark passed {shown(closes)}"
    else:
        yield "window", f"open until the watermark passes {shown(closes)}; it is at {shown(found.watermark)}"
    yield "panes", f"{counted(len(found.panes), 'pane')}, {counted(len(found.late), 'late record')}"


def value_shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _data(pipeline: Pipeline, found: History) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "key": dict(zip(pipeline.key, found.key, strict=True)),
        "epoch": found.epoch,
        "watermark": text(found.watermark),
        "panes": [
            {
                "window": [text(pane.window.start), text(pane.window.end)],
                "generation": pane.version.generation,
                "epoch": pane.version.epoch,
                "index": pane.version.index,
                "timing": pane.timing,
                "retraction": pane.retraction,
                "values": dict(pane.values),
                "answer": dict(pane.answer),
                "processing_time": text(pane.processing_time),
                "watermark": text(pane.watermark),
                "writer": pane.writer,
            }
            for pane in found.panes
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
            for late in found.late
        ],
    }
