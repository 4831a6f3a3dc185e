"""The report of a simulated pipeline: its panes, stage by stage, and the records that it left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich.text import Text

from tailrace.cli.commands.look.simulated_sample import MOST, sample_data, sample_text
from tailrace.cli.terminal.console import facts, table
from tailrace.cli.terminal.formats import bounds, counted, key_named, time_text, together
from tailrace.model.base.time import instant, text
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples.sample_records import Sample
from tailrace.model.windows.panes import Key, Late, Pane, settled_indexes
from tailrace.model.windows.windows import Window
from tailrace.plots.pipeline_simulation import PipelineSimulation, answers_text


def pipeline_lines(trial: PipelineSimulation, sample: Sample, key: Key | None) -> Iterator[Any]:
    pipeline = trial.definition
    for stage, run in zip(pipeline.stages[:-1], trial.runs[:-1], strict=True):
        yield Text.assemble((stage.name, "bold"), f"  {answers_text(stage)}")
        if run.panes:
            yield from _table(stage, list(run.panes[:MOST]))
        if len(run.panes) > MOST:
            yield f"and {counted(len(run.panes) - MOST, 'pane')} more"
    panes = list(trial.run.panes) if key is None else trial.panes(key)
    yield Text.assemble((pipeline.name, "bold"), f"  {answers_text(pipeline)}")
    if panes:
        yield from _table(pipeline, panes[:MOST])
    if len(panes) > MOST:
        yield f"and {counted(len(panes) - MOST, 'pane')} more: --json has all of them, --key picks one key's"
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
        for stage, each in late[:MOST]:
            at = time_text(instant(each.record[stage.log.event_time]))
            made.add_row(stage.name, key_named(each.key), bounds(each.window), at, str(each.epoch), each.reason)
        yield made
    if failed := trial.rejected:
        made = table("epoch", "rejected by a step, for", right=("epoch",))
        for bad in failed[:MOST]:
            made.add_row(str(bad.epoch), bad.reason)
        yield made
    if sample.rejected:
        made = table("line", "rejected, for", right=("line",))
        for line, reason in sample.rejected[:MOST]:
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


def _counts(trial: PipelineSimulation, sample: Sample) -> dict[str, str]:
    taken_back = sum(pane.retraction for pane in trial.run.panes)
    return {
        "records": sample_text(sample),
        "epochs": f"{len(trial.epochs):,}",
        "panes": f"{len(trial.run.panes) - taken_back:,}, {counted(taken_back, 'retraction')}",
        "too late": counted(len(_late(trial, None)), "record"),
        "still open": counted(sum(map(len, trial.run.state.windows.values())), "window"),
    }


def _late(trial: PipelineSimulation, key: Key | None) -> list[tuple[Pipeline, Late]]:
    """List the records that came too late, each with its stage; of the last stage those of a key where one is given."""
    return [
        (stage, late)
        for stage, run in zip(trial.definition.stages, trial.runs, strict=True)
        for late in run.late
        if key is None or stage is not trial.definition or late.key == key
    ]


def pipeline_data(trial: PipelineSimulation, sample: Sample, key: Key | None) -> dict[str, Any]:
    return {
        "pipeline": trial.definition.name,
        **sample_data(sample, trial.rejected),
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
            for stage, run in zip(trial.definition.stages[:-1], trial.runs[:-1], strict=True)
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
