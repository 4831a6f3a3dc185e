"""`tailrace simulate`: run a definition on a sample of records, without Spark and without a lake."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.cli.commands.look.simulated_sample import read_samples
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import UsageError
from tailrace.model.base.time import END_OF_TIME
from tailrace.model.definition.definition import Definition
from tailrace.model.samples import sample_records
from tailrace.model.samples.sample_records import Epochs, Sample
from tailrace.model.step.chain_fold import epochs_read
from tailrace.plan.loader import load_any

if TYPE_CHECKING:
    from tailrace.model.windows.panes import Key
    from tailrace.plots.plot import PanePlot
    from tailrace.plots.simulation import Simulation

_SMALL = 1.0
"""The scale of the pictures that `--paper` writes. At this scale, each picture is about 1,200 pixels wide."""


def simulate(
    definition: str | None = None,
    data: Path | None = None,
    per_epoch: int = 1,
    every: float | None = None,
    leave_open: bool = False,
    key: list[str] | None = None,
    result: str | None = None,
    page: Path | None = None,
    png: Path | None = None,
    scale: float = 2.0,
    paper: Path | None = None,
    json: bool = False,
) -> None:
    """Fold a definition over a sample, in Python alone, and show its panes, rows or productions.

    The log's watermark strategy determines the watermark. The arrival times of the records determine the processing
    time. A plot shows the key that --key names. Without --key, the plot shows the key with the largest number of panes.
    With other values of --per-epoch and --every, the panes may differ, but the last answer of each window stays the
    same.
    """
    output = Output(json)
    if paper is not None:
        _paper(output, paper)
        return
    if definition is None or data is None:
        raise UsageError("a definition and a sample are wanted: tailrace simulate DEFINITION DATA, or --paper FOLDER")
    if every is not None and every <= 0:
        raise UsageError(f"--every {every:g}: expected more than no time at all")
    from tailrace.cli.commands.look.simulation_reports import report_data, report_lines
    from tailrace.plots.simulations import simulation

    loaded = load_any(definition)
    period = timedelta(seconds=every) if every is not None else None
    epochs, sample = _cut(loaded, data, per_epoch=per_epoch, every=period, ends=not leave_open)
    trial = simulation(loaded, epochs)
    chosen = _key(trial.keys, key)
    if page is not None or png is not None:
        plot = _plot(trial, chosen, result)
        from tailrace.plots.plot_page import render, render_png

        for path in filter(None, (page, png)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(render(plot).encode() if path is page else render_png(plot, scale))
            output.say(f"wrote {path}")
    output.report(report_data(trial, sample, chosen), report_lines(trial, sample, chosen))


def _cut(
    definition: Definition, data: Path, *, per_epoch: int, every: timedelta | None, ends: bool
) -> tuple[Epochs, Sample]:
    """Read a sample, cut it into epochs, and convert the records to the form that the definition's first stage reads.

    Returns the epochs and the sample.
    """
    read = read_samples(definition.sources, data)
    given = [(log, one.records) for log, one in read]
    cut = sample_records.epochs_of_logs(given, per_epoch=per_epoch, every=every, ends=ends)
    came = sum(len(records) for epoch in cut for records, _ in epoch.values())
    epochs = epochs_read(definition.stages[0], cut)
    if epochs and ends:
        # At the end of the input, the watermark moves to the end of time, even for definitions whose event time is the
        # arrival time.
        epochs[-1] = (epochs[-1][0], replace(epochs[-1][1], watermark=END_OF_TIME))
    sample = Sample.together(one for _, one in read)
    return epochs, replace(sample, duplicates=len(sample.records) - came)


def _plot(trial: Simulation[Any], key: Key | None, result: str | None) -> PanePlot:
    """Plot a result of `key`. If `key` is None, plot the key with the most panes.

    Raises `UsageError` if there is nothing to draw.
    """
    names, definition = trial.results, trial.definition
    if not names:
        given = f"{definition.name} is a {definition.kind_name}, and gives a record at once"
        raise UsageError(f"{given}: it has no panes to draw")
    if result is not None and result not in names:
        raise UsageError(f"--result {result}: expected one of {', '.join(names)}")
    if key is None and not trial.keys:
        raise UsageError("there is nothing to draw: no pane fired, nothing was produced")
    return trial.plot(trial.keys[0] if key is None else key, result or names[0])


def _key(keys: list[Key], texts: list[str] | None) -> Key | None:
    if not texts:
        return None
    for key in keys:
        if [str(part) for part in key] == texts:
            return key
    known = ", ".join("/".join(map(str, key)) for key in keys[:5]) or "none"
    raise UsageError(f"--key {' '.join(texts)}: nothing has this key; the keys with the most are {known}")


def _paper(output: Output, folder: Path) -> None:
    from tailrace.plots.paper import figures, page
    from tailrace.plots.plot_page import render_png

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "paper.html").write_text(page(), encoding="utf-8")
    written = ["paper.html"]
    for figure in figures():
        name = f"figure_{figure.number:02}.png"
        (folder / name).write_bytes(render_png(figure.plot, _SMALL))
        written.append(name)
    said = f"wrote {len(written)} files to {folder}: paper.html and a picture of each figure"
    output.report({"folder": str(folder), "files": written}, [said])
