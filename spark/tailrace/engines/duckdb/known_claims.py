"""Cache the claims of a registry in this process, so that each commit of the registry is read only once.

A registry has one file per epoch of each claimant. The cache is a table of the database, so DuckDB can spill it. The
cache reflects one snapshot of the registry. If the registry no longer has that snapshot, the claims are read again.
"""

from __future__ import annotations

import uuid

import duckdb
from pyiceberg.table import Table

from tailrace.engines.duckdb.database.connection import single_value
from tailrace.engines.duckdb.database.scans import Scan, scan_files
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.filters import Filter, since
from tailrace.model.base.time import BEGINNING, END_OF_TIME, duration, hours
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.terms import Relation

EARLIER = duration(hours(2))
"""How far the cache reaches back before the earliest event time that was requested, in microseconds.

If a later request starts at a somewhat earlier event time, the cache then already contains the requested claims.
"""

MOST = 1_000_000
"""The maximum number of cached claims, and of ids that this process remembers to have output.

If there are more claims in the cache, the cache is emptied, and only the requested claims are read again. If there are
more ids, they are forgotten, and the ledger is read for them.
"""


class KnownClaims:
    """The cache of one registry's claims."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, lake: Lake, registry: str) -> None:
        self.connection, self.lake, self.registry = connection, lake, registry
        self._table = Relation(f"tailrace_{registry}_{uuid.uuid4().hex[:8]}")
        self._output = Relation(f"{self._table}_output")
        self._at: int | None = None
        self._first = END_OF_TIME
        self._begin()

    def as_of(self, snapshot: int | None, first: int) -> Relation:
        """Return a relation of the registry's claims at a snapshot.

        The relation contains all claims whose event time is `first` (in microseconds) or later. The relation may also
        contain earlier claims.
        """
        if self._at is None or first < self._first or self._count(self._table) > MOST or not self._gained(snapshot):
            self._read(snapshot, max(BEGINNING, first - EARLIER))
        self._at = snapshot
        return self._table

    def output(self, epoch: int) -> Relation:
        """Return a relation of the ids that this process has output before an epoch.

        An epoch is folded only after the epoch before it is in the ledger, so the ledger has these ids.
        """
        return Relation(f"(SELECT * FROM {self._output} WHERE epoch < {epoch}L)")

    def will_output(self, epoch: int, ids: Relation | None) -> None:
        """Remember the ids that an epoch outputs; forget those of later epochs, and of another try of the epoch."""
        self.connection.execute(f"DELETE FROM {self._output} WHERE epoch >= {epoch}")
        if self._count(self._output) > MOST:
            self._begin()
        if ids is not None:
            self.connection.execute(f"INSERT INTO {self._output} SELECT id, {PANE_TIME}, {epoch} FROM {ids}")

    def close(self) -> None:
        """Drop the tables with the cached claims and the ids."""
        for table in (self._table, self._output):
            self.connection.execute(f"DROP TABLE IF EXISTS {table}")
        self._at = None

    def _gained(self, snapshot: int | None) -> bool:
        """Read the claims that were committed after the cached snapshot.

        Returns False if the registry no longer has all commits since that snapshot.
        """
        if snapshot == self._at:
            return True
        loaded = self.lake.table(self.registry)
        # The scan reads the files that each append added, even if a compaction has since merged them.
        scan = loaded.incremental_append_scan(
            from_snapshot_id_exclusive=self._at, to_snapshot_id_inclusive=snapshot, row_filter=self._filter
        )
        try:
            self._insert(loaded, scan)
        except ValueError:
            return False
        return True

    @property
    def _filter(self) -> Filter:
        return since(PANE_TIME, self._first)

    def _begin(self) -> None:
        columns = f"id VARCHAR, {PANE_TIME} TIMESTAMPTZ, epoch BIGINT"
        self.connection.execute(f"CREATE OR REPLACE TABLE {self._output} ({columns})")

    def _count(self, table: Relation) -> int:
        return int(single_value(self.connection, f"SELECT COUNT(*) FROM {table}"))

    def _read(self, snapshot: int | None, first: int) -> None:
        self._first = first
        columns = f"id VARCHAR, {PANE_TIME} TIMESTAMPTZ, claimant VARCHAR"
        self.connection.execute(f"CREATE OR REPLACE TABLE {self._table} ({columns})")
        loaded = self.lake.table(self.registry)
        self._insert(loaded, loaded.scan(row_filter=self._filter, snapshot_id=snapshot))

    def _insert(self, loaded: Table, scan: Scan) -> None:
        with scan_files(self.connection, loaded, scan, list(scan.plan_files())) as rows:
            within = f"{PANE_TIME} >= make_timestamptz({self._first})"
            self.connection.execute(
                f"INSERT INTO {self._table} SELECT id, {PANE_TIME}, claimant FROM {rows} WHERE {within}"
            )
