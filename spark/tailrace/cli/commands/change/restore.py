"""`tailrace restore`: return all tables to their state at the end of an epoch."""

from __future__ import annotations

from tailrace.cli.runtime.process import skip_unused_imports
from tailrace.cli.terminal.console import Output
from tailrace.plan.loader import load_all
from tailrace.settings import Settings
from tailrace.telemetry.json_fields import fields


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
    running during the restore can no longer commit. Corrections that backfills made after epoch N are undone, so run
    those backfills again. Starts no Spark, and moves no rows.
    """
    loaded, output = load_all(definitions), Output(json)
    skip_unused_imports()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.change.restoration import restore as run

    restored = run(Lake(Settings()), loaded, epoch, log=log, reason=reason)
    if json:
        output.data({"epoch": epoch, "restored": [fields(one, "table", "before", "epoch", "tag") for one in restored]})
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
