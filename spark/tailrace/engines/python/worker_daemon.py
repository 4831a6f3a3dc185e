"""Start Spark's Python workers: the process that they are forked from, in place of pyspark's own.

Spark lets workers go that were idle for a minute. Where they talk to the JVM by sockets that are files, pyspark's would
each print a trace of that to the terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import daemon

# pyspark gives these no types.
_worker: Callable[[Any, bool], int] = daemon.worker
_manager: Callable[[], None] = daemon.manager


def worker(sock: Any, authenticated: bool) -> int:
    """Work for Spark as pyspark's worker does, until it is let go; return the status to end with."""
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = worker
    _manager()
