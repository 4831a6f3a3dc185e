"""A `tailrace serve` in a process of its own, as its users run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tailrace.settings import Settings


@dataclass(frozen=True)
class Served:
    """A running server: its process, its address, and what it said as it started."""

    process: subprocess.Popen[str]
    address: str
    said: str


@contextmanager
def serving(settings: Settings, definition: str, *options: str, **env: str) -> Iterator[Served]:
    """A server of a lake at a port that was free; it is ended if it still runs."""
    command = [sys.executable, "-m", "tailrace.cli.main", "serve", definition, "--port", "0", *options]
    own = {**os.environ, "TAILRACE_WAREHOUSE": str(settings.warehouse), "COLUMNS": "200", **env}
    with subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            found = re.search(r"http://\S+?/(?=;|\s)", said)
            assert found, said + process.stderr.read()
            yield Served(process, found[0], said)
        finally:
            if process.poll() is None:
                process.kill()
