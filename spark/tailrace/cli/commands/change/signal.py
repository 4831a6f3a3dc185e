"""`tailrace signal`: send a signal to the triggers of the pipelines that read a log."""

from __future__ import annotations

from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.usage import UsageError
from tailrace.model.base.names import name_faults
from tailrace.plan.loader import load
from tailrace.settings import Settings


def signal(
    definition: str,
    name: str,
    note: str | None = None,
    json: bool = False,
) -> None:
    """Send a signal to the pipelines of a definition's log; waiting triggers fire in the stream's next epoch.

    The signal is stored as a row in the log's table of signals, so a replay applies the signal in the same epoch.
    Starts no Spark.
    """
    output = Output(json)
    for fault in name_faults("NAME", name):
        raise UsageError(f"NAME {name}: expected {fault.expected}")
    pipeline = load(definition)
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.commit.signal_tables import Signals

    # A definition that reads several logs receives the signals of all of these logs, so it is enough to send the signal
    # to the first log.
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
