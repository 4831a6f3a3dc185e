"""Print what `tailrace simulate` found of a map or a join: the rows that it gave, and the records that it left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from tailrace.cli.commands.look.pane_history import value_shown
from tailrace.cli.commands.look.simulated_sample import sample_data, sample_told
from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.formats import counted, time_text
from tailrace.model.base.time import text
from tailrace.model.definition.join import Join
from tailrace.model.definition.map import Map, Mapped
from tailrace.model.samples import sample_records
from tailrace.model.step.chain_fold import ChainRun, fold_read
from tailrace.model.step.join_step import Joined

_MOST = 200
"""The maximum number of rows that a table shows; JSON has all of them."""


def show(output: Output, definition: Map | Join, epochs: sample_records.Epochs, sample: sample_records.Sample) -> None:
    """Fold a map or a join over epochs, as it reads them, by the reference execution; print the rows that it gave."""
    run = fold_read(definition, epochs)
    if output.json:
        output.data(_data(definition, run, sample))
    else:
        output.text(*_lines(definition, run, sample))


def _rows(run: ChainRun) -> Sequence[Mapped | Joined]:
    return [*run.mapped, *run.joined]


def _lines(definition: Map | Join, run: ChainRun, sample: sample_records.Sample) -> Iterator[Any]:
    rows = _rows(run)
    if isinstance(definition, Map):
        of = f"  map of {definition.log.name}"
    else:
        of = f"  {definition.kind} join of {definition.left.name} and {definition.right.name}"
    yield Text.assemble((definition.name, "bold"), of)
    if rows:
        signed = isinstance(definition, Join) and definition.takes_back
        shown = table("epoch", *(("",) if signed else ()), "event time", *definition.results, right=("epoch",))
        for row in rows[:_MOST]:
            values = (value_shown(row.values[name]) for name in definition.results)
            taken = isinstance(row, Joined) and row.retraction
            sign = Text("−", style="red") if taken else Text("+", style="green")
            shown.add_row(str(row.epoch), *((sign,) if signed else ()), time_text(row.at), *values)
        yield shown
    if len(rows) > _MOST:
        yield f"and {counted(len(rows) - _MOST, 'row')} more: --json has all of them"
    is_map = isinstance(definition, Map)
    left, number = ("rejected by it", len(run.rejected)) if is_map else ("too late", len(run.late_for_join))
    found = {"records": sample_told(sample), "gave": counted(len(rows), "row"), left: counted(number, "record")}
    yield facts(found.items())


def _data(definition: Map | Join, run: ChainRun, sample: sample_records.Sample) -> dict[str, Any]:
    found = {
        "map" if isinstance(definition, Map) else "join": definition.name,
        **sample_data(sample, run.rejected),
        "rows": [
            {"epoch": one.epoch, "event_time": text(one.at), "values": dict(one.values)}
            | ({"retraction": one.retraction} if isinstance(one, Joined) else {})
            for one in _rows(run)
        ],
    }
    if isinstance(definition, Join):
        found["late"] = [
            {"side": one.record.side, "event_time": text(one.record.at), "epoch": one.epoch}
            for one in run.late_for_join
        ]
    return found
