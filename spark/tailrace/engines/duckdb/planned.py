"""Statements that DuckDB plans once for many epochs, over tables in a database of their own.

Of an epoch of a few hundred records DuckDB plans for longer than it computes. It keeps the plan of a prepared statement
until some table's definition in the databases that it reads changes; so these tables are emptied and filled again, not
made anew, and nobody else makes tables in their database.

A plan is made without looking at what the tables hold, for it outlasts that: DuckDB would take a filter that no row
passes today for one that none ever will.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TypeAlias

import duckdb

Connection: TypeAlias = duckdb.DuckDBPyConnection

DEAD = 50_000
"""After how many rows that were taken out of the tables they are made anew: until then those take room."""

EPOCHS = 8
"""Plans are made where they serve for so many epochs: those of an epoch of many rows are but a part of its time."""

GROWN = 4
"""By what factor an epoch may outgrow those that a plan was made for."""


_PLANNING = Lock()


class Planned:
    """A database of one execution's tables, which without plans are made anew in each epoch."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection, self.name = connection, name
        self._plans: tuple[str, ...] = ()
        self._dead, self._size, self._filled = 0, 0, 0

    def open(self) -> None:
        """Make the database where it is not there, and let go of all plans."""
        self.forget()
        self.connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {self.name}")

    def place(self, table: str) -> str:
        """The full name of a table."""
        return f"{self.name}.{table}"

    @property
    def ready(self) -> bool:
        """Whether the statements are planned."""
        return bool(self._plans)

    def fits(self, size: int) -> bool:
        """Whether what is planned is fit for an epoch with so many rows; else it is let go of."""
        if self._dead > DEAD or size > GROWN * (self._size + 1000):
            self.forget()
        return self.ready

    def plan(self, statements: Mapping[str, str], size: int) -> None:
        """Plan statements, by the names that they are run by, for epochs of about so many rows, if it is worth it.

        It is told after each epoch that had no plans.
        """
        filled, self._filled = self._filled, 0
        if filled * EPOCHS > DEAD:
            return
        # The setting is the whole database's, and other stages' threads are at work on it.
        with _PLANNING:
            self.connection.execute("SET disabled_optimizers = 'statistics_propagation'")
            try:
                for name, text in statements.items():
                    self.connection.execute(f"PREPARE {self.name}_{name} AS {text}")
                    self._plans += (name,)
            finally:
                self.connection.execute("RESET disabled_optimizers")
        self._size, self._dead = size, 0

    def fill(self, table: str, text: str) -> int:
        """Have a table hold the rows of a text, and no others; gives how many. By its plan, where it has one."""
        place = self.place(table)
        if not self.ready:
            count = self._count(f"CREATE OR REPLACE TABLE {place} AS {text}")
            self._filled += count
            return count
        self._dead += self._count(f"TRUNCATE {place}")
        if table in self._plans:
            return self._count(f"EXECUTE {self.name}_{table}")
        return self._count(f"INSERT INTO {place} {text}")

    def do(self, name: str, text: str) -> int:
        """Run a statement that changes rows, and give how many; those that it takes out are dead."""
        return self._count(f"EXECUTE {self.name}_{name}" if name in self._plans else text)

    def asked(self, name: str, text: str) -> Connection:
        """Run a query."""
        return self.connection.execute(f"EXECUTE {self.name}_{name}" if name in self._plans else text)

    def died(self, count: int) -> None:
        """Note that so many rows were taken out."""
        self._dead += count

    def forget(self) -> None:
        """Let go of the plans."""
        for name in self._plans:
            self.connection.execute(f"DEALLOCATE {self.name}_{name}")
        self._plans = ()

    def close(self) -> None:
        """Drop the tables."""
        self.forget()
        self.connection.execute(f"DETACH DATABASE IF EXISTS {self.name}")

    def _count(self, text: str) -> int:
        return int((self.connection.execute(text).fetchone() or (0,))[0])
