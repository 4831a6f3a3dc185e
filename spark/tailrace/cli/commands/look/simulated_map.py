"""Print what `tailrace simulate` found of a map: the rows that it gave, and the records that it rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from tailrace.cli.commands.look.pane_history import value_shown
from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.formats import counted, time_text
from tailrace.model.base.time import text
from tailrace.model.definition.map import Map
from tailrace.model.samples import sample_records
from tailrace.model.step.chain_fold import ChainRun, fold_chain

_MOST = 200
"""The most rows that a table shows; JSON has all of them."""


def show(output: Output, definition: Map, epochs: sample_records.Epochs, sample: sample_records.Sample) -> None:
    """Fold a map over epochs by the reference execution, and print the rows that it gave."""
    run = fold_chain(definition, epochs)[-1]
    records = sum(len(bundle) for bundle, _ in epochs)
    if output.json:
        output.data(_data(definition, run, records, sample))
    else:
        output.text(*_lines(definition, run, records, sample))


def _lines(definition: Map, run: ChainRun, records: int, sample: sample_records.Sample) -> Iterator[Any]:
    yield Text.assemble((definition.name, "bold"), f"  map of {definition.log.name}")
    if run.mapped:
        rows = table("epoch", "event time", *definition.results, right=("epoch",))
        for row in run.mapped[:_MOST]:
            rows.add_row(str(row.epoch), time_text(row.at), *map(value_shown, row.values.values()))
        yield rows
    if len(run.mapped) > _MOST:
        yield f"and {counted(len(run.mapped) - _MOST, 'row')} more: --json has all of them"
    again = len(sample.records) - records
    yield facts(
        {
            "records": f"{records:,}, {counted(len(sample.rejected), 'line')} rejected"
            + (f", {again:,} that came again" if again else ""),
            "gave": counted(len(run.mapped), "row"),
            "rejected by it": counted(len(run.rejected), "record"),
        }.items()
    )


def _data(definition: Map, run: ChainRun, records: int, sample: sample_records.Sample) -> dict[str, Any]:
    return {
        "map": definition.name,
        "records": records,
        "duplicates": len(sample.records) - records,
        "rows": [{"epoch": one.epoch, "event_time": text(one.at), "values": dict(one.values)} for one in run.mapped],
        "rejected": [{"line": line, "reason": reason} for line, reason in sample.rejected]
        + [{"epoch": bad.epoch, "reason": bad.reason} for bad in run.rejected],
    }
