"""Report the results of a simulation, and the records that are late or rejected, as text or as JSON data.

To support a custom kind of definition, register a function with `report_lines`, and another function with
`report_data`. Each function takes the simulation, its sample, and the key to report; the key is None for all keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from tailrace.cli.commands.look.simulated_sample import sample_data, sample_text
from tailrace.cli.terminal.console import facts, sign, table
from tailrace.cli.terminal.formats import bounds, key_text, quantity, short_times, span, time_text, value_text
from tailrace.model.base.time import instant, text
from tailrace.model.definition.definition import KindError
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.samples.sample_records import Sample
from tailrace.model.windows.panes import Key, Late, Pane, settled_indexes
from tailrace.plots.computation_simulation import ComputationSimulation
from tailrace.plots.pipeline_simulation import PipelineSimulation, answers_text
from tailrace.plots.row_simulation import RowSimulation
from tailrace.plots.simulation import Simulation
from tailrace.telemetry.json_fields import fields

MOST = 200
"""The maximum number of rows in each table of the printed report; JSON output and the HTML page have all rows."""

_MORE = ": --json has all of them, --key picks one key's"


@singledispatch
def report_lines(trial: Simulation[Any], sample: Sample, key: Key | None) -> Iterator[Any]:
    """Yield the lines and tables of the printed report of a simulation."""
    raise KindError("report of a simulation", trial.definition)


@singledispatch
def report_data(trial: Simulation[Any], sample: Sample, key: Key | None) -> dict[str, Any]:
    """Return the report of a simulation as JSON data."""
    raise KindError("report of a simulation", trial.definition)


def _title(name: str, says: str) -> Text:
    return Text.assemble((name, "bold"), f"  {says}")


def _more(count: int, noun: str, how: str = "") -> Iterator[str]:
    """Yield a line with the number of rows that the report omits after the first `MOST` rows.

    Yields nothing if the report omits no rows.
    """
    if count > MOST:
        yield f"and {quantity(count - MOST, noun)} more{how}"


@report_lines.register
def _pipeline_lines(trial: PipelineSimulation, sample: Sample, key: Key | None) -> Iterator[Any]:
    pipeline = trial.definition
    for stage, run in zip(pipeline.stages[:-1], trial.runs[:-1], strict=True):
        yield from _pane_lines(stage, run.panes)
    yield from _pane_lines(pipeline, trial.run.panes if key is None else trial.panes(key), _MORE)
    if late := _late(trial, key):
        rows = (
            (stage.name, key_text(each.key), bounds(each.window),
             time_text(instant(each.record[stage.log.event_time])), str(each.epoch), each.reason)
            for stage, each in late[:MOST]
        )  # fmt: skip
        names = ("stage", "key", "window", "event time", "epoch", "reason")
        yield table(*names, rows=rows, right=("epoch",), whole=("key", "window"), title="too late")
    if failed := [(str(one.epoch), one.reason) for one in trial.rejected[:MOST]]:
        yield table("epoch", "rejected by a step, for", rows=failed, right=("epoch",))
    if failed := [(str(line), reason) for line, reason in sample.rejected[:MOST]]:
        yield table("line", "rejected, for", rows=failed, right=("line",))
    taken_back = sum(pane.retraction for pane in trial.run.panes)
    yield facts(
        {
            "records": sample_text(sample),
            "epochs": f"{len(trial.epochs):,}",
            "panes": f"{len(trial.run.panes) - taken_back:,}, {quantity(taken_back, 'retraction')}",
            "too late": quantity(len(_late(trial, None)), "record"),
            "still open": quantity(_open_windows(trial), "window"),
        }.items()
    )


def _pane_lines(pipeline: Pipeline, panes: Iterable[Pane], more: str = "") -> Iterator[Any]:
    """Yield a table of panes in the order of firing.

    A line above the table shows the day or year that all panes share.
    """
    yield _title(pipeline.name, answers_text(pipeline))
    fired = list(panes)
    if not fired:
        return
    shown = fired[:MOST]
    results = pipeline.columns_shown(pane.values for pane in shown)
    shared, short = short_times(at for pane in shown for at in (pane.processing_time, *pane.window))
    if shared:
        yield Text(f"times are of {shared}, UTC", style="dim")
    made = table(
        "epoch", "fired at", "key", "window", "timing", "", *results, "pane",
        right=("epoch", *results, "pane"), whole=("fired at", "key", "window"),
    )  # fmt: skip
    for pane in shown:
        made.add_row(
            str(pane.version.epoch), short(pane.processing_time), key_text(pane.key), bounds(pane.window, short),
            pane.timing.value.replace("_", " "), sign(minus=pane.retraction),
            *(_value(pane.values.get(name)) for name in results), str(pane.version.index),
            style="dim" if pane.retraction else "",
        )  # fmt: skip
    yield made
    yield from _more(len(fired), "pane", more)


def _value(value: Any) -> str:
    return value_text(value) if value is None or isinstance(value, float) else f"{value}"


def _late(trial: PipelineSimulation, key: Key | None) -> list[tuple[Pipeline, Late]]:
    """List the records that came too late. Each record is paired with the stage whose window had already closed.

    If `key` is given, the records of the last stage are limited to this key; the records of earlier stages are listed
    for all keys.
    """
    return [
        (stage, late)
        for stage, run in zip(trial.definition.stages, trial.runs, strict=True)
        for late in run.late
        if key is None or stage is not trial.definition or late.key == key
    ]


def _open_windows(trial: PipelineSimulation) -> int:
    return sum(map(len, trial.run.state.windows.values()))


@report_data.register
def _pipeline_data(trial: PipelineSimulation, sample: Sample, key: Key | None) -> dict[str, Any]:
    earlier = zip(trial.definition.stages[:-1], trial.runs[:-1], strict=True)
    return {
        "pipeline": trial.definition.name,
        **sample_data(sample, trial.rejected),
        "epochs": len(trial.epochs),
        "panes": _panes(pane for pane in trial.run.panes if key is None or pane.key == key),
        "late": [
            {"stage": stage.name, **fields(late, "key", "window", "epoch", "reason")}
            for stage, late in _late(trial, key)
        ],
        "earlier": [{"pipeline": stage.name, "panes": _panes(run.panes)} for stage, run in earlier],
        "open_windows": _open_windows(trial),
    }


def _panes(panes: Iterable[Pane]) -> list[dict[str, Any]]:
    fired = list(panes)
    places = (((one.key, one.window, one.version.generation), one.timing.value, one.retraction) for one in fired)
    return [
        fields(pane, "key", "window", "version.epoch", "version.index")
        | {"settled_index": place}
        | fields(pane, "last=is_last", "timing", "retraction", "values", "answer", "processing_time", "watermark")
        for pane, place in zip(fired, settled_indexes(places), strict=True)
    ]


@report_lines.register
def _computation_lines(trial: ComputationSimulation, sample: Sample, key: Key | None) -> Iterator[Any]:
    computation, made = trial.definition, trial.productions(key)
    yield _title(computation.name, f"{type(computation).__name__} by {', '.join(computation.key)}")
    if made:
        rows = (
            (str(each.epoch), time_text(trial.produced_at[each.epoch]), key_text(each.key), time_text(each.at),
             *map(value_text, each.values.values()))
            for each in made[:MOST]
        )  # fmt: skip
        yield table("epoch", "produced at", "key", "event time", *computation.produces, rows=rows, right=("epoch",))
    yield from _more(len(made), "production", _MORE)
    late = [each for each in trial.late if key is None or each.key == key]
    if late:
        lost = (
            (key_text(each.key), time_text(instant(each.record[computation.log.event_time])), str(each.epoch),
             span(each.behind / 1e6))
            for each in late[:MOST]
        )  # fmt: skip
        yield table("key", "event time", "epoch", "behind", rows=lost, right=("epoch",), title="too late")
    yield facts(
        {
            "records": sample_text(sample),
            "epochs": f"{len(trial.epochs):,}",
            "produced": quantity(len(made), "record"),
            "too late": quantity(len(late), "record"),
            "rejected by it": quantity(len(trial.rejected), "record"),
        }.items()
    )


@report_data.register
def _computation_data(trial: ComputationSimulation, sample: Sample, key: Key | None) -> dict[str, Any]:
    return {
        "computation": trial.definition.name,
        **sample_data(sample, trial.rejected),
        "epochs": len(trial.epochs),
        "productions": [
            {
                **fields(each, "key", "event_time=at", "epoch"),
                "processing_time": text(trial.produced_at[each.epoch]),
                **fields(each, "values"),
            }
            for each in trial.productions(key)
        ],
        "late": [
            fields(lost, "key", "epoch", "behind_seconds=behind")
            for lost in trial.late
            if key is None or lost.key == key
        ],
    }


@report_lines.register(RowSimulation)
def _row_lines(trial: RowSimulation[Any], sample: Sample, key: Key | None) -> Iterator[Any]:
    rows, late = trial.rows, trial.late
    yield _title(trial.definition.name, trial.reads)
    if rows:
        signed = trial.signs is not None
        signs = trial.signs or (0,) * len(rows)
        cells: Iterable[Sequence[RenderableType]] = (
            (str(row.epoch), *([sign(minus=one < 0)] if signed else []), time_text(row.at),
             *(value_text(row.values[name]) for name in trial.definition.results))
            for row, one in zip(rows[:MOST], signs, strict=False)
        )  # fmt: skip
        yield table("epoch", *[""] * signed, "event time", *trial.definition.results, rows=cells, right=("epoch",))
    yield from _more(len(rows), "row", ": --json has all of them")
    left, number = ("rejected by it", len(trial.rejected)) if late is None else ("too late", len(late))
    found = {"records": sample_text(sample), "gave": quantity(len(rows), "row"), left: quantity(number, "record")}
    yield facts(found.items())


@report_data.register(RowSimulation)
def _row_data(trial: RowSimulation[Any], sample: Sample, key: Key | None) -> dict[str, Any]:
    found = {
        trial.definition.kind_name: trial.definition.name,
        **sample_data(sample, trial.rejected),
        "rows": [fields(one, "epoch", "event_time=at", "values") for one in trial.rows],
    }
    for row, signed in zip(found["rows"], trial.signs or (), strict=False):
        row["retraction"] = signed < 0
    if trial.late is not None:
        found["late"] = [fields(one, "record.side", "event_time=record.at", "epoch") for one in trial.late]
    return found
