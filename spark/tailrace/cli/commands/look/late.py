"""`tailrace late`: what came too late for its window, by range, and the backfills that would take it in."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from tailrace.cli.runtime.definitions import load
from tailrace.cli.runtime.options import Definition, Json
from tailrace.cli.runtime.process import looking
from tailrace.cli.terminal.console import Output, table
from tailrace.cli.terminal.formats import bounds, counted, span
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import moment, text
from tailrace.model.windows.windows import Window
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.lake.read.late_records import LateRange, LateReport

RANGES = 20
"""The most ranges that are shown to people; JSON has them all."""


def late(definition: Definition, json: Json = False) -> None:
    """Show what came too late for its window, grouped by range of event time, and how to repair it.

    A record that is too late is in the log but in no answer, until a backfill of its range takes it in. What one has
    taken in is not shown. Of a definition of several stages each is shown. Reads the ledger, without Spark.
    """
    output, settings = Output(json), Settings()
    pipeline = load(definition)
    looking()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.read.late_records import late_report

    lake = Lake(settings)
    found = [late_report(lake, stage) for stage in pipeline.stages if lake.has(ledger_name(stage.name))]
    if json:
        output.data({"pipeline": pipeline.name, "stages": [_data(one) for one in found]})
        return
    if not found:
        output.whole(f"{pipeline.name}: no stream has run yet: tailrace stream {definition} --from DIR")
    for place, one in enumerate(found):
        output.text(*([""] if place else []), *_shown(one))
    commands = _commands(definition, [ready for one in found for ready in one.ready])
    if commands:
        output.text("", Text("to take them in:", style="dim"))
        output.whole(*commands)


def _shown(found: LateReport) -> Iterator[Any]:
    said = f"{counted(found.records, 'late record')}"
    said += f", {found.repaired:,} of them taken in by backfills" if found.repaired else ""
    yield Text.assemble((found.pipeline.name, "bold"), f"  {said}")
    if found.ranges:
        yield _table(found)


def _table(found: LateReport) -> Table:
    numbers = ("records", "windows", "epochs")
    made = table("range", *numbers, "behind", "closed", right=numbers, whole=("range", "behind"))
    for one in found.ranges[:RANGES]:
        epochs = str(one.first_epoch) if one.first_epoch == one.last_epoch else f"{one.first_epoch}–{one.last_epoch}"
        wait = found.wait(one)
        when = Text(f"in {span(wait / 1e6)}", style="yellow") if wait else Text("yes", style="green")
        counts = (f"{one.records:,}", f"{one.windows:,}", epochs)
        made.add_row(bounds(Window(one.first, one.last)), *counts, span(one.behind / 1e6), when)
    if len(found.ranges) > RANGES:
        made.caption = f"the first {RANGES} of {len(found.ranges)} ranges; --json shows all"
        made.caption_justify = "left"
    return made


def _commands(definition: str, ready: Sequence[LateRange]) -> list[str]:
    """Write the commands that take the ranges in: one for each, or one over all where they are many or overlap."""
    from tailrace.lake.read.late_records import proposed

    # The beginning and the end of time are written as instants, too: the options take nothing else.
    at = [[moment(micros).isoformat().replace("+00:00", "Z") for micros in bounds] for bounds in proposed(ready)]
    return [f"tailrace backfill {shlex.quote(definition)} --from {first} --to {last}" for first, last in at]


def _data(found: LateReport) -> dict[str, Any]:
    return {
        "pipeline": found.pipeline.name,
        "records": found.records,
        "repaired": found.repaired,
        "closed_until": text(found.closed),
        "ranges": [
            {
                "range": [text(one.first), text(one.last)],
                "records": one.records,
                "windows": one.windows,
                "epochs": [one.first_epoch, one.last_epoch],
                "behind_seconds": one.behind / 1e6,
                "ready": found.wait(one) == 0,
            }
            for one in found.ranges
        ],
    }
