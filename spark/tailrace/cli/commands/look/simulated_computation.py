"""The report of a simulated computation: its productions, and the records that it left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from tailrace.cli.commands.look.pane_history import value_shown
from tailrace.cli.commands.look.simulated_sample import MOST, sample_data, sample_text
from tailrace.cli.terminal.console import facts, table
from tailrace.cli.terminal.formats import counted, key_named, span, time_text
from tailrace.model.base.time import instant, text
from tailrace.model.samples.sample_records import Sample
from tailrace.model.windows.panes import Key
from tailrace.plots.computation_simulation import ComputationSimulation


def computation_lines(trial: ComputationSimulation, sample: Sample, key: Key | None) -> Iterator[Any]:
    computation, made = trial.definition, trial.productions(key)
    yield Text.assemble((computation.name, "bold"), f"  {type(computation).__name__} by {', '.join(computation.key)}")
    if made:
        rows = table("epoch", "produced at", "key", "event time", *computation.produces, right=("epoch",))
        for each in made[:MOST]:
            values = map(value_shown, each.values.values())
            produced = time_text(trial.produced_at[each.epoch])
            rows.add_row(str(each.epoch), produced, key_named(each.key), time_text(each.at), *values)
        yield rows
    if len(made) > MOST:
        yield f"and {counted(len(made) - MOST, 'production')} more: --json has all of them, --key picks one key's"
    late = [each for each in trial.late if key is None or each.key == key]
    if late:
        rows = table("key", "event time", "epoch", "behind", right=("epoch",), title="too late")
        for lost in late[:MOST]:
            at = time_text(instant(lost.record[computation.log.event_time]))
            rows.add_row(key_named(lost.key), at, str(lost.epoch), span(lost.behind / 1e6))
        yield rows
    yield facts(
        {
            "records": sample_text(sample),
            "epochs": f"{len(trial.epochs):,}",
            "produced": counted(len(made), "record"),
            "too late": counted(len(late), "record"),
            "rejected by it": counted(len(trial.rejected), "record"),
        }.items()
    )


def computation_data(trial: ComputationSimulation, sample: Sample, key: Key | None) -> dict[str, Any]:
    return {
        "computation": trial.definition.name,
        **sample_data(sample, trial.rejected),
        "epochs": len(trial.epochs),
        "productions": [
            {
                "key": list(each.key),
                "event_time": text(each.at),
                "epoch": each.epoch,
                "processing_time": text(trial.produced_at[each.epoch]),
                "values": dict(each.values),
            }
            for each in trial.productions(key)
        ],
        "late": [
            {"key": list(lost.key), "epoch": lost.epoch, "behind_seconds": lost.behind / 1e6}
            for lost in trial.late
            if key is None or lost.key == key
        ],
    }
