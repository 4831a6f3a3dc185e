"""Which snapshots of a table others have yet to read on from, by what the commits of those say."""

from __future__ import annotations

from tailrace.lake.catalog.lake import Lake

STAMP = "ledger_snapshot"
"""What a commit of table `p` says: the snapshot of the ledger that it stands for."""


def needed_of(lake: Lake, reader: str, named: str) -> list[int]:
    """The snapshot that the last commit of a table says it has read another one up to, if it says so."""
    if not lake.has(reader):
        return []
    found = lake.head(reader).properties.get(named, "")
    return [int(found)] if found else []
