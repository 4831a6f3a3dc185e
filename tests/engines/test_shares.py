"""Rows in shares: each row is in one, rows that are alike in the same, and what was shared otherwise is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.engines.duckdb.database.connection import EngineError
from tailrace.engines.duckdb.database.shares import SHARES, check_shares, in_shares, with_share
from tests.support.engines.engine_runs import CONNECTION

BY = ("key", "window_start")
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 40), st.integers(0, 9)), max_size=60)


def shared(rows: pa.Table) -> list[tuple[int, pa.Table]]:
    own = CONNECTION.cursor()
    own.register("some_rows", rows)
    batches = own.execute(with_share("FROM some_rows", BY)).to_arrow_table().to_batches(7)
    return [(share, pa.Table.from_batches([batch])) for share, batch in in_shares(batches)]


def table(rows: list[tuple[str | None, int, int]]) -> pa.Table:
    names = pa.schema({"key": pa.string(), "window_start": pa.int64(), "n": pa.int64()})
    return pa.Table.from_pylist([dict(zip(names.names, row, strict=True)) for row in rows], names)


@given(rows=ROWS)
def test_each_row_is_in_one_share_and_rows_of_one_window_in_the_same(rows: list[tuple[str | None, int, int]]) -> None:
    found = shared(table(rows))
    there = [(share, row) for share, some in found for row in some.to_pylist()]
    assert sorted(str(row) for _, row in there) == sorted(map(str, table(rows).to_pylist()))
    of = {(row["key"], row["window_start"], share) for share, row in there}
    assert len(of) == len({(key, start) for key, start, _ in rows})
    assert [some for _, some in found] == list(check_shares(CONNECTION, BY, found))


def test_L1_rows_that_another_version_shared_in_its_own_way_are_refused_with_what_to_do() -> None:
    found = shared(table([("a", start, 1) for start in range(100)]))
    assert len({share for share, _ in found}) > SHARES // 2
    others = [((share + 1) % SHARES, some) for share, some in found]
    with pytest.raises(EngineError, match="give the executors the package that is here"):
        list(check_shares(CONNECTION, BY, others))
