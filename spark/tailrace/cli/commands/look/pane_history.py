"""`tailrace panes`: show the history of a key's windows, with one row for each pane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table
from rich.text import Text

from tailrace.cli.runtime.options import key_texts
from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output, facts, sign, table
from tailrace.cli.terminal.formats import (
    bounds,
    parse_instant,
    quantity,
    short_times,
    span,
    time_text,
    value_text,
)
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.windows import Window
from tailrace.plan.loader import load
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.trace.key_history import History, LedgerLate, LedgerPane

_STYLES = {"early": "cyan", "on_time": "green", "late": "yellow", "correction": "magenta"}


def panes(
    definition: str,
    key: list[str] | None = None,
    window: str | None = None,
    json: bool = False,
) -> None:
    """Show every pane of a key's windows, in version order, and the records that came too late.

    A plus sign marks a pane, and a minus sign marks a retraction. Reads the ledger, without Spark.
    """
    output, settings = Output(json), Settings()
    pipeline = load(definition)
    texts = key_texts(pipeline, key or [])
    at = parse_instant(window, "--window") if window is not None else None
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.trace.key_history import history, key_values

    past = history(Lake(settings), pipeline, key_values(pipeline, texts), at)
    output.report(_data(pipeline, past), _lines(pipeline, past, texts, at))


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
    shown = _shown(history, one_window=len(windows) == 1)
    if shown.said_once:
        yield Text(", ".join(shown.said_once), style="dim")
    if history.panes:
        yield _table(pipeline, history.panes, shown)
    if history.late:
        cells: dict[str, Callable[[LedgerLate], str]] = {
            "window": lambda late: bounds(late.window, shown.short),
            "event time": lambda late: shown.short(late.event_time),
            "epoch": lambda late: str(late.epoch),
            "behind": lambda late: span(late.behind / 1e6),
            "reason": lambda late: late.reason,
            "in the log": lambda late: f"{late.source[1].rsplit('/', 1)[-1]}, {late.source[2]}",
        }
        del cells["window" if len(windows) == 1 else "in the log"]
        rows = ([cell(one) for cell in cells.values()] for one in history.late)
        yield ""
        yield table(*cells, rows=rows, right=("epoch",), whole=("window", "event time"), title="too late")
    if len(windows) == 1:
        yield ""
        yield facts(_state(pipeline, history, windows[0]))


class _Shown(NamedTuple):
    """The layout of a table of panes.

    `before` and `after` are the columns before and after the columns of results. `said_once` has the lines of text
    above the table. `short` is a function that formats an instant. `short` leaves out the day or year that all instants
    share; the shared day or year is printed once, above the table.
    """

    before: Mapping[str, Callable[[LedgerPane], str]]
    after: Mapping[str, Callable[[LedgerPane], str]]
    said_once: Sequence[str]
    short: Callable[[int | None], str]


def _shown(history: History, *, one_window: bool) -> _Shown:
    """Choose the columns of the table of panes.

    For a single window, the columns are the parts of the version and the firing time. For several windows, the columns
    are the window and the version.
    """
    panes, times = history.panes, [one.event_time for one in history.late]
    if one_window:
        times += [at for pane in panes for at in (pane.processing_time, pane.watermark)]
    else:
        windows = [*(pane.window for pane in panes), *(one.window for one in history.late)]
        times += [at for window in windows for at in window]
    shared, short = short_times(times)
    said = [f"times are of {shared}, UTC"] if shared else []
    if not one_window:
        window_and_version = {
            "window": lambda pane: bounds(pane.window, short),
            "version": lambda pane: ".".join(map(str, pane.version)),
        }
        return _Shown(window_and_version, {}, [*said, "a version is generation.epoch.pane"], short)
    before = {
        "gen": lambda pane: str(pane.version.generation),
        "epoch": lambda pane: str(pane.version.epoch),
        "pane": lambda pane: str(pane.version.index),
    }
    generations = {pane.version.generation for pane in panes}
    if len(generations) < 2:
        del before["gen"]
        said += [f"all of generation {one}" for one in generations]
    after = {"fired at": lambda pane: short(pane.processing_time), "watermark": lambda pane: short(pane.watermark)}
    return _Shown(before, after, said, short)


def _table(pipeline: Pipeline, panes: Sequence[LedgerPane], shown: _Shown) -> Table:
    results = pipeline.columns_shown(pane.values for pane in panes)
    whole = (*(name for name in shown.before if name in ("window", "version")), "timing", *shown.after)
    numbers = [name for name in shown.before if name not in whole]
    made = table(
        *shown.before, "timing", "", *results, *shown.after, right=(*numbers, *results), whole=(*numbers, *whole)
    )
    for pane in panes:
        timing = pane.timing.replace("_", " ") + (", last" if pane.is_last else "")
        made.add_row(
            *(cell(pane) for cell in shown.before.values()),
            Text(timing, _STYLES.get(pane.timing, "")),
            sign(minus=pane.retraction),
            *(value_text(pane.values.get(name)) for name in results),
            *(cell(pane) for cell in shown.after.values()),
            style="dim" if pane.retraction else "",
        )
    return made


def _state(pipeline: Pipeline, history: History, window: Window) -> Iterator[tuple[str, str]]:
    answer = history.answer(window)
    if answer is not None:
        values = ", ".join(f"{name} {value_text(value)}" for name, value in answer.answer.items())
        yield "answer", f"{values}  ({answer.timing.replace('_', ' ')}, written by the {answer.writer})"
    else:
        yield "answer", "none: it was taken back" if history.panes else "none yet"
    closes = pipeline.closes(window.end)
    if history.watermark >= closes:
        yield "window", f"closed: the watermark passed {time_text(closes)}"
    else:
        yield "window", f"open until the watermark passes {time_text(closes)}; it is at {time_text(history.watermark)}"
    yield "panes", f"{quantity(len(history.panes), 'pane')}, {quantity(len(history.late), 'late record')}"


def _data(pipeline: Pipeline, history: History) -> dict[str, Any]:
    panes = [
        fields(
            pane, "window", "version.generation", "version.epoch", "version.index", "settled_index", "last=is_last",
            "timing", "retraction", "values", "answer", "processing_time", "watermark", "writer",
        )
        for pane in history.panes
    ]  # fmt: skip
    late = [
        fields(late, "window", "event_time", "epoch", "behind_seconds=behind", "reason")
        | {"source": dict(zip(("epoch", "partition", "offset"), late.source, strict=True))}
        for late in history.late
    ]
    key = dict(zip(pipeline.key, history.key, strict=True))
    return {
        "pipeline": pipeline.name,
        "key": key,
        **fields(history, "epoch", "watermark"),
        "panes": panes,
        "late": late,
    }
