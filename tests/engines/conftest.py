"""What the tests of DuckDB share: a session in the process, for a module of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.engines.duckdb.session import DuckSession
from tests.support.engines.sessions import in_process


@pytest.fixture(scope="module")
def session() -> Iterator[DuckSession]:
    opened = in_process()
    yield opened
    opened.close()
