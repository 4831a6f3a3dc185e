"""Start Spark's Python workers: the process that they are forked from, in place of pyspark's own.

It imports what their tasks do before it forks one, so that they share the memory of it. Spark lets workers go that were
idle for a minute. Where they talk to the JVM by sockets that are files, pyspark's would each print a trace of that to
the terminal.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module
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


_IMPORTED = ("tailrace.engines.spark.workers.worker_queries", "tailrace.lake.catalog.data_files")
"""The modules that the tasks of most workers import, beside pyspark's, which are there."""


if __name__ == "__main__":
    for name in _IMPORTED:
        import_module(name)
    # No look for garbage writes to these objects, and so makes a worker's own pages of them.
    gc.collect()
    gc.freeze()
    daemon.worker = worker
    _manager()
