"""Start Spark's Python workers. Spark runs this module instead of pyspark's daemon, and this module forks the workers.

Before this module forks a worker, it imports the modules that most tasks need, so all workers share the memory of these
modules. Spark ends workers that have been idle for a minute. With Unix domain sockets, a worker of pyspark's own daemon
would print a stack trace to the terminal when Spark ends the worker.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module
from typing import Any

from pyspark import daemon

# Declare the types of `worker` and `manager` here, because pyspark does not declare them.
_worker: Callable[[Any, bool], int] = daemon.worker
_manager: Callable[[], None] = daemon.manager


def worker(sock: Any, authenticated: bool) -> int:
    """Run pyspark's worker until Spark ends it, and return the exit status."""
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return 1


_IMPORTED = ("tailrace.engines.spark.workers.worker_queries", "tailrace.lake.catalog.data_files")
"""The modules that most tasks of the workers import.

pyspark's modules are left out, because this module already imports them.
"""


if __name__ == "__main__":
    for name in _IMPORTED:
        import_module(name)
    # Freeze all objects. The garbage collector does not write to frozen objects, so the workers can share their memory
    # pages.
    gc.collect()
    gc.freeze()
    daemon.worker = worker
    _manager()
