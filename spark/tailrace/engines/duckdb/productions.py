"""Write the rows of maps and joins on DuckDB, and hand on what they and computations produce: Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.database.dialect import in_duckdb_once
from tailrace.engines.duckdb.database.scans import scanned
from tailrace.engines.duckdb.executions.preparation import Connection
from tailrace.engines.protocol import EpochCounts
from tailrace.engines.row_side import RowSide, SteppedRows
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.catalog.table_protocol import FileChange
from tailrace.lake.commit.branch import Branch
from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.lake.schema.filters import above, at_most, equal, every
from tailrace.model.definition.computation import Computation
from tailrace.model.definition.definition import Windowless
from tailrace.sql.records.stage_records import productions
from tailrace.sql.terms import Relation


class DuckProducer:
    """A definition on DuckDB that produces what others read. A stepped epoch has its ledger rows as `rows`."""

    connection: Connection
    lake: Lake
    definition: Windowless | Computation
    ledger: str

    def passed(self, stepped: Any) -> pa.Table:
        with registered(self.connection, stepped.rows) as rows:
            return self._produced(rows)

    def passed_again(self, epoch: int, after: int | None = None) -> pa.Table:
        after = epoch - 1 if after is None else after
        where = every(equal("kind", PRODUCTION), above("epoch", after), at_most("epoch", epoch))
        with scanned(self.connection, self.lake, self.ledger, where) as rows:
            return self._produced(Relation(f"(SELECT * FROM {rows} WHERE epoch > {after}L AND epoch <= {epoch}L)"))

    def _produced(self, rows: Relation) -> pa.Table:
        return self.connection.execute(in_duckdb_once(productions(self.definition, rows))).to_arrow_table()


class DuckRows(DuckProducer, RowSide[pa.Table]):
    """A map or a join of a stream on DuckDB, for small work."""

    definition: Windowless
    direct = True

    def write(self, stepped: SteppedRows[pa.Table], branch: Branch, properties: Mapping[str, str]) -> EpochCounts:
        branch.hold(FileChange(tuple(self.lake.write_files(self.ledger, stepped.rows))), properties)
        kinds = {one["values"]: one["counts"] for one in pc.value_counts(stepped.rows["kind"]).to_pylist()}
        return EpochCounts.of_kinds(kinds)
