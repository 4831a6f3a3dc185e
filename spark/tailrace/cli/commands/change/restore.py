"""`tailrace restore`: return all tables to their state at the end of an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.corrections import backfill_commands
from tailrace.cli.terminal.formats import quantity
from tailrace.model.definition.chain import chain
from tailrace.model.definition.definition import Definition
from tailrace.model.windows.window_spans import touching_groups
from tailrace.plan.loader import load_all
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.lake.change.restoration import UndoneBackfill


def restore(
    definitions: list[str],
    epoch: int,
    log: bool = False,
    reason: str | None = None,
    json: bool = False,
) -> None:
    """Go back to the end of an epoch: a consistent cut over all stages and tables.

    For each table, a tag preserves the state from before the restore. The next stream of the definitions folds all
    epochs after epoch N from the log, as if these epochs were new. With --log, the restore also removes from the log
    the records of all epochs after epoch N, and the stream reads these records again from the source. A stream that is
    running during the restore can no longer commit. Corrections that backfills made after epoch N are undone. The
    command names these backfills before it changes anything, and shows the commands that run them again. Starts no
    Spark, and moves no rows.
    """
    loaded, output = load_all(definitions), Output(json)
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.change.restoration import restore as run

    lost: list[UndoneBackfill] = []

    def foretell(undone: Sequence[UndoneBackfill]) -> None:
        lost.extend(undone)
        if lost:
            which = ", ".join(f"{one.run.run} of {one.stage}" for one in lost)
            output.say(f"undoing {quantity(len(lost), 'backfill')} made after epoch {epoch}: {which}")

    restored = run(Lake(Settings()), loaded, epoch, log=log, reason=reason, foretell=foretell)
    again = [command for place, one in zip(definitions, loaded, strict=True) for command in _again(place, one, lost)]
    if json:
        tables = [fields(one, "table", "before", "epoch", "tag") for one in restored]
        undone = [fields(one, "stage", "run=run.run") for one in lost]
        output.data({"epoch": epoch, "restored": tables, "undone": undone, "again": again})
        return
    for table in restored:
        output.text(
            f"{table.table}: from epoch {table.before} back to {table.epoch}; what it held is at tag {table.tag}"
        )
    if not restored:
        output.text(f"nothing to do: no table has come further than epoch {epoch}")
        return
    output.say("the next stream of the definitions folds on from there")
    if again:
        output.text("", Text("then, to correct again what the undone backfills corrected:", style="dim"))
        output.verbatim(*again)


def _again(place: str, definition: Definition, undone: Sequence[UndoneBackfill]) -> list[str]:
    """Return the commands that run the undone backfills of a definition and its stages again.

    Ranges that touch are one command.
    """
    stages = {stage.name for stage in chain(definition)}
    ranges = [(one.run.first, one.run.last) for one in undone if one.stage in stages]
    spans = [(group[0][0], max(last for _, last in group)) for group in touching_groups(ranges, lambda span: span)]
    return backfill_commands(place, spans)
