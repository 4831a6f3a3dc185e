"""Let the processes that write to Airflow's SQLite database wait for each other instead of failing.

Airflow creates the runs of a backfill in savepoints. Python's `sqlite3` begins no transaction before a savepoint, so
SQLite begins a read transaction. If this transaction later has to write, and another process has written in the
meantime, SQLite reports an error at once, regardless of the connection's timeout. In contrast, a transaction that
starts as a write transaction waits for the other writers.
"""

from __future__ import annotations

import sqlite3
from typing import Any

WAIT = 60.0
"""The maximum time in seconds that a writer waits for other writers. A write usually takes milliseconds."""


class TurnsCursor(sqlite3.Cursor):
    """A cursor whose savepoints are inside a write transaction."""

    def execute(self, sql: str, parameters: Any = (), /) -> TurnsCursor:
        """Execute a statement. Before a savepoint that is outside a transaction, begin a write transaction."""
        if not self.connection.in_transaction and sql.lstrip()[:9].upper() == "SAVEPOINT":
            super().execute("BEGIN IMMEDIATE")
        super().execute(sql, parameters)
        return self


class TurnsConnection(sqlite3.Connection):
    """A connection to SQLite whose cursors are `TurnsCursor`."""

    def cursor(self, factory: Any = TurnsCursor) -> Any:
        """Open a cursor whose savepoints are inside a write transaction."""
        return super().cursor(factory)


CONNECT_ARGS: dict[str, Any] = {"factory": TurnsConnection, "timeout": WAIT}
"""The value of Airflow's setting `[database] sql_alchemy_connect_args` that lets SQLite writers wait for each other."""
