"""`tailrace generate`: generate a sample log for an example pipeline, as files that a stream can read."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.formats import parse_instant, quantity
from tailrace.cli.terminal.usage import UsageError
from tailrace.generate.delivery import MINUTE, SECOND
from tailrace.generate.delivery_files import land
from tailrace.generate.made_up_logs import LOGS
from tailrace.model.base.time import text

_BEGIN = "2026-01-01"


def generate(
    log: Annotated[str, typer.Argument(metavar="LOG", help=f"The log: {', '.join(LOGS)}.")],
    to: Path,
    rate: float = 10.0,
    minutes: float = 60.0,
    seed: int = 1,
    begin: str | None = None,
    every: float = 60.0,
    live: bool = False,
    json: bool = False,
) -> None:
    """Write a made-up log into a folder, with late records and duplicates.

    The same arguments always produce identical files. Records are written in the order in which they become known.
    Records that become known after the log's last event time are included. If a generator creates several logs, each
    log has its own subfolder. With --live, the command waits before each file until the file's last record has become
    known by the wall clock.
    """
    output = Output(json)
    if log not in LOGS:
        raise UsageError(f"{log!r}: expected one of {', '.join(LOGS)}")
    for name, value in (("rate", rate), ("minutes", minutes), ("every", every)):
        if not 0 < value < 1e9:
            raise UsageError(f"--{name} {value:g}: expected more than none")
    first = int(time.time()) * SECOND if live and not begin else parse_instant(begin or _BEGIN, "--begin")
    own = LOGS[log]
    made = own.generate(rate=rate, length=int(minutes * MINUTE), seed=seed, first=first)
    stretch, wait = max(1, int(every * SECOND)), _passing(output) if live else None
    files = 0
    for file in land(made, to, every=stretch, instants=own.instants, compressed=own.compressed, wait=wait):
        files += 1
        if live:
            output.say(f"{file.relative_to(to)} has landed")
    ends = text(made[-1].known) if made else text(first)
    if json:
        output.data({"log": log, "records": len(made), "files": files, "until": ends})
        return
    output.verbatim(
        f"{quantity(len(made), 'record')} in {quantity(files, 'file')} of {to}; the last becomes known at {ends}"
    )


def _passing(output: Output) -> Callable[[int], None]:
    """Return a function that waits until the wall clock reaches a given instant (in microseconds)."""

    def wait(until: int) -> None:
        left = until / SECOND - time.time()
        if left > 60:
            output.say(f"nothing becomes known for {timedelta(seconds=int(left))}")
        time.sleep(max(0.0, left))

    return wait
