"""Control tables: rows that someone outside enters beside a log, each of which comes with one epoch of the log.

A stream looks for new rows as it lands an epoch, and the log's commit says up to which snapshot they were read: a
replay and a catch-up see each row in the same epoch, whatever has been entered since (rule T2).
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
    """A control table; the property `seen` of the log's commits says up to which snapshot the table was read."""

    lake: Lake
    contract: Contract
    seen: str

    def enter(self, **values: Any) -> None:
        """Enter a row with the current time."""
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
        """Return the rows that are new since a log's last commit, which has these properties.

        The second result is the property `seen` that the log's next commit is to have.
        """
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
