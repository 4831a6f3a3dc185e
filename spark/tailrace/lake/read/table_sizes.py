"""The sizes of tables, as the summaries of their current snapshots have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tailrace.lake.catalog.lake import Lake


@dataclass(frozen=True)
class TableSize:
    """The rows of a table, its data files, and their bytes."""

    rows: int
    files: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.files:,} files, {self.bytes / 1e6:,.1f} MB"


def table_sizes(lake: Lake, tables: Iterable[str]) -> dict[str, TableSize]:
    """Read the sizes of the tables that are there, by name. Raises `LakeError` where the catalog cannot be opened."""
    found = {}
    for name in tables:
        table = lake.find(name)
        snapshot = None if table is None else table.current_snapshot()
        if snapshot is not None and snapshot.summary is not None:
            summary: Any = snapshot.summary.additional_properties
            counts = (int(summary.get(f"total-{one}", 0)) for one in ("records", "data-files", "files-size"))
            found[name] = TableSize(*counts)
    return found
