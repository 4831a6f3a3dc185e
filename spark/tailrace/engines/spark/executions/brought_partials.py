"""Add up a small epoch's records in this process, by DuckDB, for windows that Spark has.

Spark would plan that for longer than it takes. What comes of it is a row for each key and window.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.duckdb.database.dialect import in_duckdb, literal_row
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.pipeline import Pipeline
from tailrace.sql.epoch.clock_row import clock_values
from tailrace.sql.epoch.partials import late, may_be_late, may_have_passed, partials
from tailrace.sql.terms import Query, Relation


@dataclass(frozen=True)
class Brought:
    """A bundle's partials, when the first and the last of their windows end, and whether records came too late."""

    rows: pa.Table
    closest: int | None
    furthest: int | None
    late: bool


class BroughtPartials:
    """The partials of one definition's bundles, where its records need no step before they are put into windows."""

    def __init__(self, pipeline: Pipeline, connection: duckdb.DuckDBPyConnection) -> None:
        self.pipeline, self._connection = pipeline, connection
        own = uuid.uuid4().hex[:8]
        bundle, clock = (Relation(f"tailrace_{own}_{name}") for name in ("bundle", "clock"))
        self._bundle, self._clock = bundle, clock
        self._partials = in_duckdb(partials(pipeline, bundle, clock, by_slices=True))
        passed = may_have_passed(pipeline, bundle, clock)
        self._late = in_duckdb(Query(f"SELECT COUNT(*) FROM ({late(pipeline, passed, clock)})"))

    def of(self, bundle: pa.Table, schema: pa.Schema, before: Clock | None, generation: int) -> Brought:
        """Add up a bundle that comes after an epoch; the partials have `schema`."""
        watermark = before.watermark if before else BEGINNING
        row = literal_row(clock_values(self.pipeline, before, Clock(-1, watermark, 0), generation))
        connection = self._connection
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {self._clock} AS {row}")
        connection.register(self._bundle, bundle)
        try:
            found = connection.execute(self._partials).to_arrow_table()
            ends = pc.min_max(found["window_end"]).as_py()
            closest, furthest = ends["min"], ends["max"]
            behind = bool(bundle.num_rows) and may_be_late(self.pipeline, closest, before)
            too_late = behind and bool((connection.execute(self._late).fetchone() or (0,))[0])
        finally:
            connection.unregister(self._bundle)
        return Brought(found.rename_columns(schema.names).cast(schema), closest, furthest, too_late)
