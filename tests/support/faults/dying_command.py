"""The command in a process that dies at a named point of the commit protocol; run as a module.

A point is `move TABLE`, `change TABLE` or `mark TABLE`, and `before` or `after`: main of the table is moved to what
Spark wrote, what the process wrote is added to it, or a lease of it is taken. DYING names it. The process group is
killed, so that the JVM dies in the same instant.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from tailrace.cli.main import app
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import MAIN

POINT = "DYING"


def dying(verb: str, table: str, when: str) -> None:
    """Have this process die as soon as it comes to the point."""
    does: Callable[..., Any] = getattr(Lake, verb)

    def done(lake: Lake, name: str, *given: Any) -> Any:
        here = name == table and (verb != "move" or given[0] == MAIN)
        if here and when == "before":
            _die()
        found = does(lake, name, *given)
        if here:
            _die()
        return found

    setattr(Lake, verb, done)


def _die() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    dying(*os.environ[POINT].split())
    app(prog_name="tailrace")
