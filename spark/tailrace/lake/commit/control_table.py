"""Control tables: rows that someone outside enters beside a log, each of which comes with one of its epochs.

A stream looks for new rows as it lands an epoch, and the log's commit says up to which snapshot they were read: a
replay and a catch-up see each in the same epoch, whatever has been entered since (rule T2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tailrace.lake.catalog.lake import Lake, head_of, lineage
from tailrace.lake.schema.contracts import Contract
from tailrace.lake.schema.lake_errors import MovedError


@dataclass(frozen=True)
class ControlTable:
    """One control table; a commit of the log says under `seen` how far it was read."""

    lake: Lake
    contract: Contract
    seen: str

    def enter(self, **values: Any) -> None:
        """Enter a row, of now."""
        self.lake.ensure(self.contract)
        row = {"at": datetime.now(UTC), **values}
        while True:
            expected = self.lake.head(self.contract.table).snapshot
            try:
                self.lake.enter(self.contract.table, [row], {}, expected)
                return
            except MovedError:
                continue

    def come(self, properties: Mapping[str, str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The rows that are new to a log whose last commit says this, and what its next one is to say."""
        if not self.lake.has(self.contract.table):
            return [], {}
        loaded = self.lake.table(self.contract.table)
        head, seen = head_of(loaded).snapshot, properties.get(self.seen, "")
        if head is None or seen == str(head):
            return [], ({self.seen: seen} if seen else {})
        rows = loaded.scan().to_arrow().to_pylist()
        if any(str(snapshot.snapshot_id) == seen for snapshot in lineage(loaded, head)):
            before = loaded.scan(snapshot_id=int(seen)).to_arrow().to_pylist()
            rows = [row for row in rows if row not in before]
        return sorted(rows, key=lambda row: row["at"]), {self.seen: str(head)}
