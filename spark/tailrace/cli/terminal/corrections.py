"""Report the stages that lack corrections, and the backfills that would add the corrections."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tailrace.cli.terminal.console import Output
from tailrace.model.base.time import moment, text
from tailrace.telemetry.json_fields import fields

if TYPE_CHECKING:
    from tailrace.lake.corrections.stages_behind import StageBehind


def backfill_commands(definition: str, ranges: Iterable[tuple[int, int]]) -> list[str]:
    """Return a `tailrace backfill` command for each range. A range is a pair of instants, in microseconds."""

    def at(micros: int) -> str:
        # The beginning and the end of time are also written as instants, because `--from` and `--to` accept nothing
        # else.
        return moment(micros).isoformat().replace("+00:00", "Z")

    return [f"tailrace backfill {shlex.quote(definition)} --from {at(first)} --to {at(last)}" for first, last in ranges]


def tell_behind(output: Output, definition: str, behind: Sequence[StageBehind]) -> None:
    """Print the stages that lack corrections, and the backfill commands that would add the corrections."""
    if not behind:
        return
    from tailrace.lake.corrections.stages_behind import backfills_of

    output.text("", Text("behind what was corrected:", style="yellow"))
    output.verbatim(*(one.said for one in behind))
    if commands := backfill_commands(definition, backfills_of(behind)):
        output.text("", Text("to bring it up:", style="dim"))
        output.verbatim(*commands)


def behind_data(definition: str, behind: Sequence[StageBehind]) -> Iterator[dict[str, Any]]:
    """Yield JSON data for each stage that lacks corrections, with the backfill command that would add the corrections.

    If no backfill can add the corrections yet, the command is None.
    """
    if not behind:
        return
    from tailrace.lake.corrections.stages_behind import backfills_of

    for one in behind:
        lacks = [fields(cause, "of", "run=run.run") for cause in one.causes]
        command = next(iter(backfill_commands(definition, backfills_of([one]))), None)
        yield {
            **fields(one, "stage=stage.name"), "range": [text(one.first), text(one.last)], "lacks": lacks,
            "ready": one.ready, "command": command,
        }  # fmt: skip
