"""A lake's writer that is killed while it writes several files at once; run as a module, in a process of its own.

`python -m tests.support.faults.dying_writers FOLDER ACTION...` forks a process for each action, with a lake in a folder
of the action's name, and prints the signal that ended the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Log, Pipeline, Sum, seconds
from tailrace.engines.duckdb import follower
from tailrace.engines.duckdb.database import written_rows
from tailrace.engines.duckdb.executions import sql_execution
from tailrace.lake.digests import summed_output
from tailrace.lake.upkeep.rewriting import write_together
from tests.support.engines.threads import ThreadedLake

ROWS = 2048
"""The number of rows a file. It is DuckDB's smallest number of rows in a batch."""

RECORDS = 2 * ROWS
"""The number of records of an epoch, and of answers: those of two files."""

ORDERS = Log(
    name="orders",
    columns={"number": "bigint", "cents": "bigint", "at": "timestamp"},
    event_time="at",
    disorder=seconds(5),
)
BILLS = Pipeline(
    name="bills",
    log=ORDERS,
    key="number",
    what={"orders": Count(), "cents": Sum("cents")},
    where=Fixed(seconds(60)),
    when=AfterWatermark(late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=seconds(60),
)
END = [{"number": 0, "cents": 1, "at": "2026-01-01T00:30"}]
"""A record after which all others are too late."""


def records(epoch: int) -> list[dict[str, Any]]:
    """Return the records of an epoch: those of the first are late for the watermark that the second brings."""
    end = [{"number": 0, "cents": 1, "at": f"2026-01-01T00:{3 + 3 * epoch:02}"}]
    return [{"number": n, "cents": n + epoch, "at": f"2026-01-01T00:{3 * epoch:02}"} for n in range(RECORDS)] + end


def streamed(lake: ThreadedLake, dies: Callable[[str, int], None]) -> None:
    """Stream two epochs, and die in the second, while its panes are written."""
    lake.stream(BILLS, records(0))
    dies("bills__ledger", 2)
    lake.stream(BILLS, records(1))


def backfilled(lake: ThreadedLake, dies: Callable[[str, int], None]) -> None:
    """Stream records that are too late, and die while a backfill writes the panes that count them."""
    lake.stream(BILLS, END)
    lake.stream(BILLS, records(0))
    lake.stream.restart()
    dies("bills__ledger", 2)
    lake.backfill(BILLS)


def followed(lake: ThreadedLake, dies: Callable[[str, int], None]) -> None:
    """Stream records that are too late, and die while the answers follow the backfill that counts them."""
    lake.stream(BILLS, END)
    lake.stream(BILLS, records(0))
    lake.stream.restart()
    dies("bills", 2)
    lake.backfill(BILLS)


def compacted(lake: ThreadedLake, dies: Callable[[str, int], None]) -> None:
    """Stream two epochs, and die while their small files are written together, as maintenance does."""
    for epoch in range(2):
        lake.stream(BILLS, records(epoch))
    lake.stream.restart()
    dies("bills__ledger", 1)
    write_together(lake.tables, "bills__ledger", 2, 10**9)


ACTIONS = {action.__name__: action for action in (streamed, backfilled, followed, compacted)}


class Dying:
    """The writers of a process, which dies as soon as so many files of a table are half written."""

    def __init__(self) -> None:
        self.table, self.most, self.open, self.lock = "", 0, set[int](), threading.Lock()

    def arm(self, table: str, most: int) -> None:
        self.table, self.most = f"/{table}/data/", most

    def method(self) -> Callable[[Any, bytes], int]:
        """Return `write` as a method of streams."""
        return lambda stream, some: self.write(stream, some)

    def write(self, stream: Any, some: bytes) -> int:
        """Write bytes to a file of the table in two halves, and die between them if enough other files are, too."""
        if not self.most or self.table not in stream._output.location:
            return _WRITE(stream, some)
        half = len(some) // 2
        _WRITE(stream, bytes(some)[:half])
        stream.flush()
        with self.lock:
            self.open.add(id(stream))
            if len(self.open) >= self.most:
                os.kill(os.getpid(), signal.SIGKILL)
        # Another writer may come to its file in the meantime.
        time.sleep(0.5)
        with self.lock:
            self.open.discard(id(stream))
        return half + _WRITE(stream, bytes(some)[half:])


_WRITE = summed_output._Summed.write


@contextmanager
def small_files() -> Iterator[None]:
    """Have little data written to several files, as much data is."""
    with ExitStack() as there:
        for module in (written_rows, follower):
            there.enter_context(patch.object(module, "ROWS_A_FILE", ROWS))
        there.enter_context(patch.object(sql_execution, "MANY", 1))
        yield


def main(folder: Path, names: list[str]) -> None:
    for name in names:
        if (child := os.fork()) == 0:
            dying = Dying()
            with small_files(), patch.object(summed_output._Summed, "write", dying.method()):
                ACTIONS[name](ThreadedLake(folder / name, 4), dying.arm)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(name, os.WTERMSIG(status), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
