"""However small the memory is that the settings name, DuckDB computes what is small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.engines.duckdb.database.connection import connect
from tailrace.settings import Settings


@pytest.mark.parametrize("megabytes", [1, 4, 8, 100])
def test_duckdb_computes_with_any_memory_that_the_settings_may_name(tmp_path: Path, megabytes: int) -> None:
    with connect(Settings(memory=f"{megabytes}MB", scratch=tmp_path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT range % 5000 AS k, 'x' || range AS s FROM range(200000)")
        counted = "SELECT COUNT(*) FROM (SELECT k, s FROM t GROUP BY ALL)"
        assert connection.execute(counted).fetchall() == [(200_000,)]
