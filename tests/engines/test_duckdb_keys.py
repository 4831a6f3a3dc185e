"""A computation on DuckDB says and keeps what the reference does, and its ledger restores it (X2; MillWheel, 6.2)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from tailrace.engines.choose import Engine, EngineChoice
from tailrace.engines.duckdb import keys as module
from tailrace.engines.duckdb.database.bundles import registered
from tailrace.engines.duckdb.keys import DuckKeys, KeysHere
from tailrace.engines.duckdb.session import ROWS_A_CALL
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.clock import Clock
from tailrace.settings import Settings
from tests.support.cases.computations import Machine, machines
from tests.support.cases.strategies import each_time_the_same
from tests.support.depth import cases
from tests.support.engines.duckdb_runs import CONNECTION
from tests.support.engines.key_tables import KeysAsTables, is_the_reference


class Here(KeysAsTables):
    """A side on DuckDB. It needs no lake, for nothing is read from a table or written to one."""

    def __init__(self, machine: Machine) -> None:
        self.side: DuckKeys = DuckKeys(
            CONNECTION.cursor(), Lake(Settings()), machine, EngineChoice(Engine.DUCKDB, "a test")
        )

    def rows(self, stepped: Any) -> pa.Table:
        return stepped.rows

    def keys(self, state: Any) -> pa.Table:
        found: pa.Table = self.side.connection.execute(f"SELECT * FROM {self.side._table}").to_arrow_table()
        return found

    def loop(self, state: Any) -> pa.Table | None:
        found: pa.Table = state.loop
        return found

    def again(self, ledger: list[pa.Table], clock: Clock) -> KeysHere:
        with registered(self.side.connection, pa.concat_tables(ledger)) as rows:
            return self.side.restore(rows, clock)


@pytest.mark.parametrize("rows_a_call", [ROWS_A_CALL, 2])
def test_a_computation_on_duckdb_is_the_reference_step(rows_a_call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_A_CALL", rows_a_call)

    @seed(1)
    @each_time_the_same(cases(20, deeper=60) if rows_a_call > 2 else cases(7, deeper=20))
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        machine = data.draw(machines())
        one = Here(machine)
        is_the_reference(machine, one, data, 6)
        one.side.close()

    holds()
