"""Signals from outside: rows of a log's table of signals, which open the triggers that wait for them.

A stream looks for new ones as it lands an epoch, and says in the log's commit which came with it: a replay and a
catch-up see them in the same epoch, whatever has been sent since (rule T2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from tailrace.lake.catalog import Lake, head_of, lineage
from tailrace.lake.contracts import signals_contract
from tailrace.lake.errors import MovedError
from tailrace.model.log import Log

NAMES, SEEN = "signals", "signals_seen"
"""What a commit of the log says: the signals that came with its epoch, and the snapshot that they were read up to."""


@dataclass(frozen=True)
class Signals:
    """The table of signals of one log."""

    lake: Lake
    log: Log

    @property
    def table(self) -> str:
        return f"{self.log.name}__signals"

    def send(self, name: str, note: str | None = None) -> None:
        """Enter a signal. It comes with the next epoch of the stream that lands the log."""
        self.lake.ensure(signals_contract(self.log))
        row = {"name": name, "at": datetime.now(UTC), "note": note}
        while True:
            loaded = self.lake.table(self.table)
            try:
                self.lake.append(loaded, pa.Table.from_pylist([row], schema=loaded.schema().as_arrow()), {})
                return
            except MovedError:
                continue

    def come(self, said: Mapping[str, str]) -> dict[str, str]:
        """What the next commit of the log is to say; `said` is what the last one says of those seen so far."""
        if not self.lake.has(self.table):
            return {}
        loaded = self.lake.table(self.table)
        head = head_of(loaded).snapshot
        seen = said.get(SEEN, "")
        if head is None or seen == str(head):
            return {SEEN: seen} if seen else {}
        fields = ("name", "at")
        rows = loaded.scan(selected_fields=fields).to_arrow().to_pylist()
        if any(str(snapshot.snapshot_id) == seen for snapshot in lineage(loaded, head)):
            before = loaded.scan(selected_fields=fields, snapshot_id=int(seen)).to_arrow().to_pylist()
            rows = [row for row in rows if row not in before]
        names = sorted({row["name"] for row in rows})
        return {SEEN: str(head), **({NAMES: ",".join(names)} if names else {})}


def names_of(said: Mapping[str, str]) -> tuple[str, ...]:
    """The signals that a commit says came with its epoch.

    >>> names_of({"signals": "close,open"}), names_of({})
    (('close', 'open'), ())
    """
    return tuple(name for name in said.get(NAMES, "").split(",") if name)
