"""Snapshots of a table that its readers have yet to read on from, by the properties of the readers' commits."""

from __future__ import annotations

from tailrace.lake.catalog.lake import Lake

STAMP = "ledger_snapshot"
"""The property of a commit of the answers with the snapshot of the ledger that they stand for."""


def needed_of(lake: Lake, reader: str, named: str) -> list[int]:
    """Return the snapshot up to which a reader has read, by property `named` of its last commit; empty without one."""
    if not lake.has(reader):
        return []
    found = lake.head(reader).properties.get(named, "")
    return [int(found)] if found else []
