"""Print what `tailrace replay` found of a map or a join: how many rows came out again, some of those that did not."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.formats import span

if TYPE_CHECKING:
    from tailrace.model.definition.chain import Windowless
    from tailrace.verify.rows_replay import RowsReplayed


def show(output: Output, definition: Windowless, replayed: RowsReplayed) -> None:
    """Print what a replay found."""
    if output.json:
        output.data(
            {
                type(definition).__name__.lower(): definition.name,
                "ok": replayed.ok,
                "epochs": [replayed.first, replayed.last],
                "last_epoch": replayed.latest,
                "rows": {kind: asdict(one) for kind, one in replayed.counts.items()},
                "differences": [{column: _plain(value) for column, value in one.items()} for one in replayed.quoted],
                "seconds": round(replayed.seconds, 3),
                "engine": replayed.engine.engine.value,
                "engine_because": replayed.engine.why,
            }
        )
        return
    rows = table("kind", "ledger", "replay", "same", right=("ledger", "replay", "same"))
    for kind, counts in replayed.counts.items():
        rows.add_row(kind, *(f"{count:,}" for count in (counts.ledger, counts.replay, counts.same)))
    epochs = f"{replayed.first:,} to {replayed.last:,} of {replayed.latest:,}"
    header = [("epochs", epochs), ("engine", str(replayed.engine)), ("took", span(replayed.seconds))]
    output.text(Text(definition.name, style="bold"), facts(header), "", rows, "")
    output.text(*(Text(str(one), style="red") for one in replayed.quoted))
    ok = Text("the same rows came out", style="bold green")
    output.text(ok if replayed.ok else Text("other rows came out", style="bold red"))


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
