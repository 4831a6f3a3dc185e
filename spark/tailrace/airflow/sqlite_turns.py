"""Let the writers of Airflow's SQLite database take turns, where it would refuse one of them.

Airflow creates the runs of a backfill in savepoints. Python's `sqlite3` begins no transaction before a savepoint, so
SQLite begins one that reads: when it then comes to write and another process wrote in between, SQLite refuses at once,
however long a connection would wait. A transaction that is for writing from its start waits for its turn instead.
"""

from __future__ import annotations

import sqlite3
from typing import Any

WAIT = 60.0
"""Seconds that a writer waits for its turn. Writers hold theirs for milliseconds, but a busy machine stretches them."""


class TurnsCursor(sqlite3.Cursor):
    """A cursor whose savepoints are inside a transaction that is for writing."""

    def execute(self, sql: str, parameters: Any = (), /) -> TurnsCursor:
        """Execute a statement; a savepoint outside a transaction begins one first."""
        if not self.connection.in_transaction and sql.lstrip()[:9].upper() == "SAVEPOINT":
            super().execute("BEGIN IMMEDIATE")
        super().execute(sql, parameters)
        return self


class TurnsConnection(sqlite3.Connection):
    """A connection to SQLite whose cursors are `TurnsCursor`."""

    def cursor(self, factory: Any = TurnsCursor) -> Any:
        """Open a cursor."""
        return super().cursor(factory)


CONNECT_ARGS: dict[str, Any] = {"factory": TurnsConnection, "timeout": WAIT}
"""Has Airflow's connections take turns, where its setting `[database] sql_alchemy_connect_args` names this."""
