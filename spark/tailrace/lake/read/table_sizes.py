"""Read the sizes of tables from the summaries of their current snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.digests.commit_digest import summary_of


@dataclass(frozen=True)
class TableSize:
    """The size of a table: the numbers of its rows, data files and bytes."""

    rows: int
    files: int
    bytes: int

    @classmethod
    def of(cls, table: Table) -> TableSize:
        """Read the size of a table from the summary of its current snapshot."""
        summary = summary_of(table.current_snapshot())
        return cls(*(int(summary.get(f"total-{one}", 0)) for one in ("records", "data-files", "files-size")))

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.files:,} files, {self.bytes / 1e6:,.1f} MB"


def table_sizes(lake: Lake, tables: Iterable[str]) -> dict[str, TableSize]:
    """Read the sizes of the named tables; tables that do not exist are left out.

    Raises `LakeError` if the catalog cannot be opened.
    """
    found = ((name, lake.find(name)) for name in tables)
    return {name: TableSize.of(table) for name, table in found if table is not None}
