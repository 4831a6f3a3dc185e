"""`tailrace generate`: a made-up log of one of the example pipelines, as files for a stream to find."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli.runtime.options import Json
from tailrace.cli.terminal.console import Output
from tailrace.cli.terminal.formats import parse_instant, quantity
from tailrace.cli.terminal.usage import UsageError
from tailrace.generate.delivery import MINUTE, SECOND
from tailrace.generate.delivery_files import land
from tailrace.generate.made_up_logs import LOGS
from tailrace.model.base.time import text

_BEGIN = "2026-01-01"


def generate(
    log: Annotated[str, typer.Argument(metavar="LOG", help=f"Which log: {', '.join(LOGS)}.")],
    to: Annotated[Path, typer.Option(metavar="DIR", help="The folder that files land in.", file_okay=False)],
    rate: Annotated[float, typer.Option(metavar="N", help="Records a second.")] = 10.0,
    minutes: Annotated[float, typer.Option(metavar="N", help="How long things happen.")] = 60.0,
    seed: Annotated[int, typer.Option(metavar="N", help="The same seed, the same log.")] = 1,
    begin: Annotated[
        str | None,
        typer.Option(metavar="INSTANT", help="When it begins. [default: 2026-01-01, and with --live now]"),
    ] = None,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="What becomes known in this time is one file.")
    ] = 60.0,
    live: Annotated[bool, typer.Option("--live", help="Let each file appear when its time has come.")] = False,
    json: Json = False,
) -> None:
    """Write a made-up log into a folder: some things become known late, some twice.

    The same arguments give the same bytes. The records become known in the order of the files; those that become known
    after the end are there, too. Logs that belong together have a folder each. With --live it takes as long as it says,
    and then some for who is late.
    """
    output = Output(json)
    if log not in LOGS:
        raise UsageError(f"{log!r}: expected one of {', '.join(LOGS)}")
    for name, value in (("rate", rate), ("minutes", minutes), ("every", every)):
        if not 0 < value < 1e9:
            raise UsageError(f"--{name} {value:g}: expected more than none")
    first = int(time.time()) * SECOND if live and not begin else parse_instant(begin or _BEGIN, "--begin")
    made = LOGS[log].made(rate=rate, length=int(minutes * MINUTE), seed=seed, first=first)
    stretch = max(1, int(every * SECOND))
    files = 0
    for file in land(made, to, every=stretch, instants=LOGS[log].instants, wait=_passing(output) if live else None):
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
    """Make a function that waits until an instant of the wall clock, in microseconds."""

    def wait(until: int) -> None:
        left = until / SECOND - time.time()
        if left > 60:
            output.say(f"nothing becomes known for {timedelta(seconds=int(left))}")
        time.sleep(max(0.0, left))

    return wait
