"""Start Spark's Python workers: this process forks them, in place of pyspark's daemon.

It imports the modules of their tasks before it forks a worker, so the workers share the memory of these modules. Spark
ends workers that were idle for a minute. With sockets that are files, each of pyspark's workers would then print a
trace to the terminal.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module
from typing import Any

from pyspark import daemon

# These have no types in pyspark.
_worker: Callable[[Any, bool], int] = daemon.worker
_manager: Callable[[], None] = daemon.manager


def worker(sock: Any, authenticated: bool) -> int:
    """Run pyspark's worker until Spark ends it; return the exit status."""
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return 1


_IMPORTED = ("tailrace.engines.spark.workers.worker_queries", "tailrace.lake.catalog.data_files")
"""The modules that the tasks of most workers import besides the modules of pyspark, which are imported already."""


if __name__ == "__main__":
    for name in _IMPORTED:
        import_module(name)
    # No garbage search writes to frozen objects, so workers share their pages of memory.
    gc.collect()
    gc.freeze()
    daemon.worker = worker
    _manager()
