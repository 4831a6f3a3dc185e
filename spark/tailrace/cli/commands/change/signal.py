"""`tailrace signal`: tell the pipelines of a log something from outside."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.cli.runtime.options import Definition, Json
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import UsageError
from tailrace.model.base.names import name_faults
from tailrace.plan.loader import load
from tailrace.settings import Settings


def signal(
    definition: Definition,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which signal: the name that AfterSignal has.")],
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the table of signals.")] = None,
    json: Json = False,
) -> None:
    """Send a signal to the pipelines of a definition's log: what waits for it fires with the stream's next epoch.

    It is a row in the table of signals beside the log; a replay sees it in the same epoch. Starts no Spark.
    """
    output = Output(json)
    for fault in name_faults("NAME", name):
        raise UsageError(f"NAME {name}: expected {fault.expected}")
    pipeline = load(definition)
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.commit.signal_tables import Signals

    # A definition over several logs takes the signals of each.
    log = pipeline.sources[0]
    signals = Signals(Lake(Settings()), log)
    signals.send(name, note)
    waiting = [stage.name for stage in pipeline.stages if name in stage.when.signals()]
    if json:
        output.data({"signal": name, "table": signals.table, "waiting": waiting})
        return
    output.text(f"sent {name} to log {log.name}")
    if not waiting:
        output.say(f"no trigger of {pipeline.name} waits for {name}")
