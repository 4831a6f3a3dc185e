"""`tailrace restore`: go back to the end of an epoch, in all tables at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.cli.runtime.definitions import load_all
from tailrace.cli.runtime.options import Definitions, Json
from tailrace.cli.runtime.process import looking
from tailrace.cli.terminal.console import Output
from tailrace.settings import Settings

if TYPE_CHECKING:
    from tailrace.lake.change.restoration import Restoration


def restore(
    definitions: Definitions,
    epoch: Annotated[int, typer.Option("--epoch", metavar="N", min=0, help="The last epoch that stays.")],
    log: Annotated[
        bool, typer.Option("--log", help="Take the log back, too: what came after is read again from the source.")
    ] = False,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the table of runs.")] = None,
    json: Json = False,
) -> None:
    """Go back to the end of an epoch: a consistent cut over all stages and tables.

    What the tables held until then keeps a tag. The next stream of the definitions folds the epochs after it again from
    the log; with --log the log goes back as well, and the stream reads its source again from there. A stream that runs
    is fenced off. What backfills corrected after that epoch is undone, too: run them again. Starts no Spark, and moves
    no rows.
    """
    loaded, output = load_all(definitions), Output(json)
    looking()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.change.restoration import restore as run

    restored = run(Lake(Settings()), loaded, epoch, log=log, reason=reason)
    if json:
        output.data({"epoch": epoch, "restored": [_data(table) for table in restored]})
        return
    for table in restored:
        output.text(
            f"{table.table}: from epoch {table.before} back to {table.epoch}; what it held is at tag {table.tag}"
        )
    if not restored:
        output.text(f"nothing to do: no table has come further than epoch {epoch}")
        return
    output.say(
        "the next stream of the definitions folds on from there; backfills made since are undone: run them again"
    )


def _data(restored: Restoration) -> dict[str, object]:
    return {"table": restored.table, "before": restored.before, "epoch": restored.epoch, "tag": restored.tag}
