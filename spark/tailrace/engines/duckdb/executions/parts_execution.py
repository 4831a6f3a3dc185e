"""Run a definition's step on DuckDB for a bundle on executors, after the executors have aggregated its parts.

The records are the largest data of an epoch, and they stay on the executors. Only the results of the aggregation, which
are called partials, are sent to this process, with one row per key and window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from tailrace.engines.duckdb.database.bundles import register
from tailrace.engines.duckdb.database.connection import single_value
from tailrace.engines.duckdb.database.dialect import in_duckdb, in_duckdb_once
from tailrace.engines.duckdb.executions.preparation import Connection, DuckBundle
from tailrace.engines.duckdb.executions.sql_execution import SqlExecution, clock_before
from tailrace.engines.protocol import EpochState
from tailrace.lake.schema.column_groups import SPAN
from tailrace.model.base.clock import Clock
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.clock_row import clock_row
from tailrace.sql.epoch.epoch_texts import EpochTexts
from tailrace.sql.epoch.partials import combine_partials, is_closed
from tailrace.sql.terms import Query, Relation

_SHARE = Relation("tailrace_share")


class PartsExecution(SqlExecution):
    """Executes a definition's step in SQL, for a bundle whose parts have been aggregated by executors.

    The input of the step are the results of this aggregation, which are called partials. `PartsExecution` also accepts
    bundles that are in this process. `records` is the name by which the queries read a part's records. `windowed_by`
    are the columns that identify a window.
    """

    def __init__(self, connection: Connection, pipeline: Pipeline) -> None:
        super().__init__(connection, pipeline)
        self.records = Relation(f"{self._own}_records")
        self.windowed_by = (*pipeline.key, *SPAN)
        self._together = in_duckdb(combine_partials(pipeline, _SHARE, counted=True))

    @property
    def adds_up(self) -> bool:
        """True if the step needs only partials (records aggregated by key and window), not the records themselves.

        The partials are not enough in two cases: the definition's steps change the records, or a window accepts no
        records after its trigger has finished (`finishing="close"`), so that each record must be checked.
        """
        return not self.pipeline.each and self.pipeline.finishing != "close"

    def adding(self, state: EpochState) -> Query:
        """Return the query that aggregates one part of a bundle to partials, with one row per key and window.

        `state` is the state before the bundle's epoch.
        """
        return self._of_part(state, clock_before(state)).partials

    def adding_gives(self, records: pa.Schema) -> pa.Schema:
        """Return the schema of the partials into which records with the schema `records` are aggregated."""
        with register(self.connection, records.empty_table(), self.records):
            return self.connection.execute(in_duckdb(self.adding(EpochState(None, 0)))).to_arrow_table().schema

    def late_rows(self, state: EpochState, clock: Clock) -> Query:
        """Return the query that computes ledger rows from the late records in one part of an epoch's bundle."""
        return self._of_part(state, clock).late

    def _of_part(self, state: EpochState, clock: Clock) -> EpochTexts:
        """Return the SQL texts for one part of a bundle. The texts contain the epoch's clock as literals."""
        row = Relation(f"({clock_row(self.pipeline, state.clock, clock, state.generation)})")
        return EpochTexts(self.pipeline, {"bundle": self.records, "clock": row}, in_process=True)

    def put_together(self, shares: Iterable[pa.Table]) -> int:
        """Collect the partials (aggregated records) of all parts in the table that the step reads.

        Returns the table's number of rows. The partials arrive in shares, and no window is in more than one share. The
        first share may be empty. Grouping a share needs several times as much memory as the result, so the shares are
        grouped one after another. If windows merge, this method does not group the partials, because the step groups
        them.
        """
        name = self._names["partials"]
        text = Query(f"SELECT * FROM {_SHARE}") if self._by_key else self._together
        for place, share in enumerate(shares):
            made = f"INSERT INTO {name}" if place else f"CREATE OR REPLACE TEMP TABLE {name} AS"
            with register(self.connection, share) as rows:
                self.connection.execute(f"{made} {text.replace(_SHARE, rows)}")
        return self._count(name)

    def count_late(self, state: EpochState) -> int | None:
        """Return the number of late records: the records that were aggregated to partials of windows that have expired.

        Returns None for windows that merge, because their partials do not show which records are late.
        """
        if self._by_key:
            return None
        expired = is_closed(self.pipeline, "window_end", f"{state.watermark}L")
        text = Query(f"SELECT COALESCE(SUM(arrived), 0) FROM {self._names['partials']} WHERE {expired}")
        return int(single_value(self.connection, in_duckdb_once(text)))

    def summed(self, late: Callable[[Clock], pa.Table]) -> DuckBundle:
        """Return the collected partials as a bundle.

        If some records may be late, the step calls `late`, which returns the ledger rows of the late records.
        """
        return DuckBundle(pa.table({}), None, self._closest(), late)
