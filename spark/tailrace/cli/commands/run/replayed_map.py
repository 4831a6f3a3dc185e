"""Print what `tailrace replay` found of a map: how many rows came out again, and some of those that did not."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from tailrace.cli.terminal.console import Output, facts, table
from tailrace.cli.terminal.formats import span

if TYPE_CHECKING:
    from tailrace.verify.map_replay import MapReplayed


def told(output: Output, name: str, found: MapReplayed) -> None:
    """Print what a replay found."""
    if output.json:
        output.data(
            {
                "map": name,
                "ok": found.ok,
                "epochs": [found.first, found.last],
                "last_epoch": found.latest,
                "rows": {kind: asdict(one) for kind, one in found.counts.items()},
                "differences": [{column: _plain(value) for column, value in one.items()} for one in found.quoted],
                "seconds": round(found.seconds, 3),
                "engine": found.engine.engine.value,
                "engine_because": found.engine.why,
            }
        )
        return
    rows = table("kind", "ledger", "replay", "same", right=("ledger", "replay", "same"))
    for kind, one in found.counts.items():
        rows.add_row(kind, *(f"{count:,}" for count in (one.ledger, one.replay, one.same)))
    epochs = f"{found.first:,} to {found.last:,} of {found.latest:,}"
    said = [("epochs", epochs), ("engine", str(found.engine)), ("took", span(found.seconds))]
    output.text(Text(name, style="bold"), facts(said), "", rows, "")
    output.text(*(Text(str(one), style="red") for one in found.quoted))
    ok = Text("the same rows came out", style="bold green")
    output.text(ok if found.ok else Text("other rows came out", style="bold red"))


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
