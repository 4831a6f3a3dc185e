"""Let the writers of Airflow's SQLite database wait for each other instead of failing.

Airflow creates the runs of a backfill in savepoints. Python's `sqlite3` begins no transaction before a savepoint, so
SQLite begins a read transaction. If this transaction later has to write, and another process has written in the
meantime, SQLite refuses at once, regardless of the connection's timeout. A transaction that is a write transaction from
its start waits for its turn instead.
"""

from __future__ import annotations

import sqlite3
from typing import Any

WAIT = 60.0
"""The maximum time in seconds for which a writer waits. A write takes milliseconds, but longer on a busy machine."""


class TurnsCursor(sqlite3.Cursor):
    """A cursor whose savepoints are inside a write transaction."""

    def execute(self, sql: str, parameters: Any = (), /) -> TurnsCursor:
        """Execute a statement; before a savepoint outside a transaction, begin a write transaction."""
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
"""The value for Airflow's setting `[database] sql_alchemy_connect_args` that makes SQLite writers wait in turn."""
