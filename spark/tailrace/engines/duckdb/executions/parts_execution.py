"""Run a definition's step on DuckDB over records that are elsewhere, where the parts of a bundle are added up.

The records are the large part of an epoch. Their partials, a row for each key and window, come to this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from tailrace.engines.duckdb.database.bundles import register
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
    """The step as SQL over the partials of parts of a bundle; it also takes bundles that are in this process.

    `records` is the name of a part's records in its queries. `windowed_by` are the columns that tell windows apart.
    """

    def __init__(self, connection: Connection, pipeline: Pipeline) -> None:
        super().__init__(connection, pipeline)
        self.records = Relation(f"{self._own}_records")
        self.windowed_by = (*pipeline.key, *SPAN)
        self._together = in_duckdb(combine_partials(pipeline, _SHARE, counted=True))

    @property
    def adds_up(self) -> bool:
        """Whether the partials of records as the log has them are enough for the rules.

        They are not where steps change the records, or where a finished trigger refuses records one by one.
        """
        return not self.pipeline.each and self.pipeline.finishing != "close"

    def adding(self, state: EpochState) -> Query:
        """Return the query that aggregates a part of a bundle to partials; the bundle follows `state`."""
        return self._of_part(state, clock_before(state)).partials

    def adding_gives(self, records: pa.Schema) -> pa.Schema:
        """Find the schema of the partials of records with a schema."""
        self.connection.register(self.records, records.empty_table())
        try:
            return self.connection.execute(in_duckdb(self.adding(EpochState(None, 0)))).to_arrow_table().schema
        finally:
            self.connection.unregister(self.records)

    def late_rows(self, state: EpochState, clock: Clock) -> Query:
        """Return the query for the ledger rows of a part's late records in an epoch."""
        return self._of_part(state, clock).late

    def _of_part(self, state: EpochState, clock: Clock) -> EpochTexts:
        """Return the texts over a part, with an epoch's clock written out."""
        row = Relation(f"({clock_row(self.pipeline, state.clock, clock, state.generation)})")
        return EpochTexts(self.pipeline, {"bundle": self.records, "clock": row}, in_process=True)

    def put_together(self, shares: Iterable[pa.Table]) -> int:
        """Put the partials of parts together, for the step; return their number.

        They come in shares, the first of which may be empty; no window is in two shares. Grouping takes several times
        the memory of its result, so shares are grouped one by one. Windows that merge are grouped by the step.
        """
        name = self._names["partials"]
        text = Query(f"SELECT * FROM {_SHARE}") if self._by_key else self._together
        for place, share in enumerate(shares):
            made = f"INSERT INTO {name}" if place else f"CREATE OR REPLACE TEMP TABLE {name} AS"
            with register(self.connection, share) as rows:
                self.connection.execute(f"{made} {text.replace(_SHARE, rows)}")
        return self._count(name)

    def count_late(self, state: EpochState) -> int | None:
        """Count the late records of the partials, once for each window; None where the partials do not say."""
        if self._by_key:
            return None
        expired = is_closed(self.pipeline, "window_end", f"{state.watermark}L")
        text = Query(f"SELECT COALESCE(SUM(arrived), 0) FROM {self._names['partials']} WHERE {expired}")
        return int(self._value(in_duckdb_once(text)))

    def summed(self, late: Callable[[Clock], pa.Table]) -> DuckBundle:
        """Return the partials that were put together as a bundle; `late` is called where records may be late."""
        return DuckBundle(pa.table({}), None, self._closest(), late)
