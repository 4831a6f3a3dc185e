"""The report of a simulated map or join: the rows that it gave, and the records that it left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from tailrace.cli.commands.look.pane_history import value_shown
from tailrace.cli.commands.look.simulated_sample import MOST, sample_data, sample_text
from tailrace.cli.terminal.console import facts, table
from tailrace.cli.terminal.formats import counted, time_text
from tailrace.model.base.time import text
from tailrace.model.samples.sample_records import Sample
from tailrace.model.windows.panes import Key
from tailrace.plots.row_simulation import RowSimulation


def row_lines(trial: RowSimulation[Any], sample: Sample, key: Key | None) -> Iterator[Any]:
    """Yield the report for people."""
    rows, signs, late = trial.rows, trial.signs, trial.late
    yield Text.assemble((trial.definition.name, "bold"), f"  {trial.reads}")
    if rows:
        signed = () if signs is None else ("",)
        shown = table("epoch", *signed, "event time", *trial.columns, right=("epoch",))
        for place, row in enumerate(rows[:MOST]):
            values = (value_shown(row.values[name]) for name in trial.columns)
            sign = () if signs is None else (Text("−", style="red") if signs[place] < 0 else Text("+", style="green"),)
            shown.add_row(str(row.epoch), *sign, time_text(row.at), *values)
        yield shown
    if len(rows) > MOST:
        yield f"and {counted(len(rows) - MOST, 'row')} more: --json has all of them"
    left, number = ("rejected by it", len(trial.rejected)) if late is None else ("too late", len(late))
    found = {"records": sample_text(sample), "gave": counted(len(rows), "row"), left: counted(number, "record")}
    yield facts(found.items())


def row_data(trial: RowSimulation[Any], sample: Sample, key: Key | None) -> dict[str, Any]:
    """Return the report as JSON data."""
    found = {
        trial.definition.kind_name: trial.definition.name,
        **sample_data(sample, trial.rejected),
        "rows": [{"epoch": one.epoch, "event_time": text(one.at), "values": dict(one.values)} for one in trial.rows],
    }
    for row, sign in zip(found["rows"], trial.signs or (), strict=False):
        row["retraction"] = sign < 0
    if trial.late is not None:
        found["late"] = [
            {"side": one.record.side, "event_time": text(one.record.at), "epoch": one.epoch} for one in trial.late
        ]
    return found
