"""`tailrace simulate`: what a definition makes of a sample, pane by pane, with no Spark and no lake."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tailrace.cli.commands.look.simulated_sample import read_samples, sample_data, sample_told
from tailrace.cli.runtime.definitions import load_any
from tailrace.cli.runtime.options import Json
from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.formats import bounds, counted, key_named, time_text, together
from tailrace.cli.terminal.usage import UsageError
from tailrace.model.base.time import END_OF_TIME, instant, text
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples import sample_records
from tailrace.model.step.chain_fold import epochs_read
from tailrace.model.windows.panes import settled_indexes
from tailrace.model.windows.windows import Window

if TYPE_CHECKING:
    from tailrace.model.windows.panes import Key, Late, Pane
    from tailrace.observe.plots.computation_trial import Producing
    from tailrace.observe.plots.simulation import Simulation

_SMALL = 1.0
"""The scale of the pictures of the figures, which are for pages: some 1,200 pixels wide."""

_MOST = 200
"""The maximum number of panes that a table shows; JSON and the page have all of them."""


def simulate(
    definition: Annotated[
        str | None, typer.Argument(metavar="DEFINITION", help="A Python file with a definition: FILE or FILE:NAME.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="A sample: .jsonl, .json, .csv or .parquet, or a folder of them; for several logs a folder with "
            "a file or folder named after each.",
        ),
    ] = None,
    per_epoch: Annotated[int, typer.Option(metavar="N", min=1, help="Records in an epoch.")] = 1,
    every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Let an epoch have all that comes in so much processing time instead."),
    ] = None,
    leave_open: Annotated[bool, typer.Option("--open", help="Do not end the input: windows stay open.")] = False,
    key: Annotated[
        list[str] | None, typer.Option(metavar="VALUE", help="Show one key: a value for each column.")
    ] = None,
    result: Annotated[
        str | None, typer.Option(metavar="NAME", help="The result, or column, that the plot shows.")
    ] = None,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the plot as a page.")] = None,
    png: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Write the plot as a picture.")] = None,
    scale: Annotated[
        float, typer.Option(metavar="N", min=0.5, max=8, help="How large it is: N times some 1,200 pixels wide.")
    ] = 2.0,
    paper: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the paper's figures 5 to 14 instead, computed.")
    ] = None,
    json: Json = False,
) -> None:
    """Fold a definition over a sample, in Python alone, and show the panes that it gives, or what it produces.

    The watermark follows the log's rule, processing time its arrival times. A plot has one key: the one with the most
    panes, or the one asked for. Try --per-epoch and --every: the panes may differ, the last answers never do.
    """
    output = Output(json)
    if paper is not None:
        _paper(output, paper)
        return
    if definition is None or data is None:
        raise UsageError("a definition and a sample are wanted: tailrace simulate DEFINITION DATA, or --paper FOLDER")
    if every is not None and every <= 0:
        raise UsageError(f"--every {every:g}: expected more than no time at all")
    loaded = load_any(definition)
    read = read_samples(loaded.sources, data)
    period = timedelta(seconds=every) if every is not None else None
    given = [(log, one.records) for log, one in read]
    cut = sample_records.epochs_of_logs(given, per_epoch=per_epoch, every=period, ends=not leave_open)
    sample = sample_records.Sample.together(one for _, one in read)
    came = sum(len(records) for epoch in cut for records, _ in epoch.values())
    sample = replace(sample, duplicates=len(sample.records) - came)
    epochs = epochs_read(loaded.stages[0] if isinstance(loaded, Pipeline) else loaded, cut)
    if epochs and not leave_open:
        # Where input ends, time does, for what goes by arrival as well.
        epochs[-1] = (epochs[-1][0], replace(epochs[-1][1], watermark=END_OF_TIME))
    if isinstance(loaded, Map | Join):
        from tailrace.cli.commands.look import simulated_rows

        if page is not None or png is not None:
            kind = "map" if isinstance(loaded, Map) else "join"
            raise UsageError(f"{loaded.name} is a {kind}, and gives a record at once: it has no panes to draw")
        simulated_rows.show(output, loaded, epochs, sample)
        return
    if isinstance(loaded, Computation):
        from tailrace.cli.commands.look.simulated_computation import show
        from tailrace.observe.plots.computation_trial import Producing

        trial: Simulation | Producing = Producing(loaded, epochs)
        results = list(loaded.produces)
        say: Callable[[Output, Any, sample_records.Sample, Key | None], None] = show
    else:
        from tailrace.observe.plots.simulation import Simulation

        trial, results, say = Simulation(loaded, epochs), list(loaded.what), _show
    chosen = _key(trial.keys, key)
    if page is not None or png is not None:
        _draw(output, trial, chosen, _result(results, result), page, png, scale)
    say(output, trial, sample, chosen)


def _show(output: Output, trial: Simulation, sample: sample_records.Sample, key: Key | None) -> None:
    if output.json:
        output.data(_data(trial, sample, key))
    else:
        output.text(*_lines(trial, sample, key))


def _key(keys: list[Key], texts: list[str] | None) -> Key | None:
    if not texts:
        return None
    for key in keys:
        if [str(part) for part in key] == texts:
            return key
    known = ", ".join("/".join(map(str, key)) for key in keys[:5]) or "none"
    raise UsageError(f"--key {' '.join(texts)}: nothing has this key; the keys with the most are {known}")


def _result(names: list[str], name: str | None) -> str:
    if name is not None and name not in names:
        raise UsageError(f"--result {name}: expected one of {', '.join(names)}")
    return name or names[0]


def _draw(
    output: Output,
    trial: Simulation | Producing,
    key: Key | None,
    result: str,
    page: Path | None,
    png: Path | None,
    scale: float,
) -> None:
    if key is None and not trial.keys:
        raise UsageError("there is nothing to draw: no pane fired, nothing was produced")
    from tailrace.observe.plots.plot_page import render, render_png

    plot = trial.plot(trial.keys[0] if key is None else key, result)
    for path in filter(None, (page, png)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(render(plot).encode() if path is page else render_png(plot, scale))
        output.say(f"wrote {path}")


def _paper(output: Output, folder: Path) -> None:
    from tailrace.observe.plots.paper import figures, page
    from tailrace.observe.plots.plot_page import render_png

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "paper.html").write_text(page(), encoding="utf-8")
    written = ["paper.html"]
    for figure in figures():
        name = f"figure_{figure.number:02}.png"
        (folder / name).write_bytes(render_png(figure.plot, _SMALL))
        written.append(name)
    if output.json:
        output.data({"folder": str(folder), "files": written})
    else:
        output.text(f"wrote {len(written)} files to {folder}: paper.html and a picture of each figure")


def _lines(trial: Simulation, sample: sample_records.Sample, key: Key | None) -> Iterator[Any]:
    from tailrace.observe.plots.simulation import answers

    pipeline = trial.pipeline
    for stage, run in zip(pipeline.stages[:-1], trial.runs[:-1], strict=True):
        yield Text.assemble((stage.name, "bold"), f"  {answers(stage)}")
        if run.panes:
            yield from _table(stage, list(run.panes[:_MOST]))
        if len(run.panes) > _MOST:
            yield f"and {counted(len(run.panes) - _MOST, 'pane')} more"
    panes = list(trial.run.panes) if key is None else trial.panes(key)
    yield Text.assemble((pipeline.name, "bold"), f"  {answers(pipeline)}")
    if panes:
        yield from _table(pipeline, panes[:_MOST])
    if len(panes) > _MOST:
        yield f"and {counted(len(panes) - _MOST, 'pane')} more: --json has all of them, --key picks one key's"
    if late := _late(trial, key):
        made = table(
            "stage",
            "key",
            "window",
            "event time",
            "epoch",
            "reason",
            right=("epoch",),
            whole=("key", "window"),
            title="too late",
        )
        for stage, each in late[:_MOST]:
            at = time_text(instant(each.record[stage.log.event_time]))
            made.add_row(stage.name, key_named(each.key), bounds(each.window), at, str(each.epoch), each.reason)
        yield made
    failed = [bad for run in trial.runs for bad in run.rejected]
    if failed:
        made = table("epoch", "rejected by a step, for", right=("epoch",))
        for bad in failed[:_MOST]:
            made.add_row(str(bad.epoch), bad.reason)
        yield made
    if sample.rejected:
        made = table("line", "rejected, for", right=("line",))
        for line, reason in sample.rejected[:_MOST]:
            made.add_row(str(line), reason)
        yield made
    yield facts(_counts(trial, sample).items())


def _table(pipeline: Pipeline, panes: list[Pane]) -> Iterator[Any]:
    """Make a table of panes in the order in which they fired, with the day or year that all share once, above."""
    results = pipeline.columns_shown(pane.values for pane in panes)
    shared, short = together(at for pane in panes for at in (pane.processing_time, *pane.window))
    if shared:
        yield Text(f"times are of {shared}, UTC", style="dim")
    made = table(
        "epoch", "fired at", "key", "window", "timing", "", *results, "pane",
        right=("epoch", *results, "pane"), whole=("fired at", "key", "window"),
    )  # fmt: skip
    for pane in panes:
        sign = Text("−", style="red") if pane.retraction else Text("+", style="green")
        values = (_value(pane.values.get(name)) for name in results)
        timing = pane.timing.value.replace("_", " ")
        made.add_row(
            str(pane.version.epoch),
            short(pane.processing_time),
            key_named(pane.key),
            bounds(pane.window, short),
            timing,
            sign,
            *values,
            str(pane.version.index),
            style="dim" if pane.retraction else "",
        )
    yield made


def _value(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.6g}" if isinstance(value, float) else f"{value}"


def _counts(trial: Simulation, sample: sample_records.Sample) -> dict[str, str]:
    taken_back = sum(pane.retraction for pane in trial.run.panes)
    return {
        "records": sample_told(sample),
        "epochs": f"{len(trial.epochs):,}",
        "panes": f"{len(trial.run.panes) - taken_back:,}, {counted(taken_back, 'retraction')}",
        "too late": counted(len(_late(trial, None)), "record"),
        "still open": counted(sum(map(len, trial.run.state.windows.values())), "window"),
    }


def _late(trial: Simulation, key: Key | None) -> list[tuple[Pipeline, Late]]:
    """List the records that came too late, each with its stage; of the last stage those of a key where one is given."""
    return [
        (stage, late)
        for stage, run in zip(trial.pipeline.stages, trial.runs, strict=True)
        for late in run.late
        if key is None or stage is not trial.pipeline or late.key == key
    ]


def _data(trial: Simulation, sample: sample_records.Sample, key: Key | None) -> dict[str, Any]:
    return {
        "pipeline": trial.pipeline.name,
        **sample_data(sample, (bad for run in trial.runs for bad in run.rejected)),
        "epochs": len(trial.epochs),
        "panes": _panes(pane for pane in trial.run.panes if key is None or pane.key == key),
        "late": [
            {
                "stage": stage.name,
                "key": list(late.key),
                "window": _ends(late.window),
                "epoch": late.epoch,
                "reason": late.reason,
            }
            for stage, late in _late(trial, key)
        ],
        "earlier": [
            {"pipeline": stage.name, "panes": _panes(run.panes)}
            for stage, run in zip(trial.pipeline.stages[:-1], trial.runs[:-1], strict=True)
        ],
        "open_windows": sum(map(len, trial.run.state.windows.values())),
    }


def _panes(panes: Iterable[Pane]) -> list[dict[str, Any]]:
    fired = list(panes)
    places = (((one.key, one.window, one.version.generation), one.timing.value, one.retraction) for one in fired)
    return [_pane(one, place) for one, place in zip(fired, settled_indexes(places), strict=True)]


def _pane(pane: Pane, settled_index: int | None) -> dict[str, Any]:
    return {
        "key": list(pane.key),
        "window": _ends(pane.window),
        "epoch": pane.version.epoch,
        "index": pane.version.index,
        "settled_index": settled_index,
        "last": pane.is_last,
        "timing": pane.timing.value,
        "retraction": pane.retraction,
        "values": dict(pane.values),
        "answer": dict(pane.answer),
        "processing_time": text(pane.processing_time),
        "watermark": text(pane.watermark),
    }


def _ends(window: Window) -> list[str]:
    return [text(window.start), text(window.end)]
