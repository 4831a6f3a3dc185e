"""Whether two sides gave the same answers, row for row, and whether both are right.

Answers are tables of `advertiser`, `window_start`, `total` and `views`, one row for each advertiser and window.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data import WINDOW

SCHEMA = pa.schema(
    [
        ("advertiser", pa.int64()),
        ("window_start", pa.timestamp("us", "UTC")),
        ("total", pa.int64()),
        ("views", pa.int64()),
    ]
)
KEY = [("window_start", "ascending"), ("advertiser", "ascending")]


class DifferentError(Exception):
    """Two sides gave different rows: their times cannot be compared."""


def answers(table: pa.Table) -> pa.Table:
    """Answers of any order and column order as comparable ones. A row that is there twice stays twice."""
    return table.select(SCHEMA.names).cast(SCHEMA).sort_by(KEY).combine_chunks()


def expected(folder: Path) -> pa.Table:
    """The answers as pyarrow computes them from the files, with no part of Spark or of ours."""
    rows = pq.read_table(folder, columns=["advertiser", "price", "viewed_at"])
    at, size = rows["viewed_at"].cast(pa.int64()), int(WINDOW.total_seconds()) * 1_000_000
    start = pc.multiply(pc.divide(at, size), size).cast(SCHEMA.field("window_start").type)
    grouped = (
        pa.table({"advertiser": rows["advertiser"], "window_start": start, "price": rows["price"]})
        .group_by(["advertiser", "window_start"])
        .aggregate([("price", "sum"), ("price", "count")])
        .rename_columns({"price_sum": "total", "price_count": "views"})
    )
    return answers(grouped)


def differences(left: pa.Table, right: pa.Table, shown: int = 5) -> list[str]:
    """The first rows that only one of two sides has, each with the side; empty for the same rows."""
    if left.equals(right):
        return []
    found = []
    for mark, one, other in (("-", left, right), ("+", right, left)):
        only = one.join(other.append_column("there", _ones(other)), SCHEMA.names, join_type="left outer")
        only = only.filter(pc.is_null(only["there"])).sort_by(KEY)
        found += [f"{mark} {row}" for row in only.slice(0, shown).select(SCHEMA.names).to_pylist()]
    return found or [f"the same rows, but {left.num_rows} times here and {right.num_rows} times there"]


def same(files: Sequence[Path], truth: pa.Table) -> int:
    """Check the answers in Parquet files against the truth; gives how many rows each has. Raises `DifferentError`."""
    for file in files:
        wrong = differences(truth, answers(pq.read_table(file)))
        if wrong:
            listed = "\n  ".join(wrong)
            raise DifferentError(f"{file} is not what was expected (-: missing, +: not expected):\n  {listed}")
    return int(truth.num_rows)


def _ones(table: pa.Table) -> pa.Array:
    return pa.array([1] * table.num_rows, pa.int8())
