"""Read the watermark up to which the answers of a definition, or the records of a log, are complete."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table

from tailrace.lake.catalog.lake import Lake, head_of, lineage, properties_of
from tailrace.lake.catalog.table_protocol import STAMP
from tailrace.lake.commit.epoch_properties import progress_in
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.base.time import BEGINNING


def current_watermark(lake: Lake, name: str) -> int | None:
    """Return the watermark of a definition or log, given its name, in microseconds; None if no stream has started it.

    A definition's watermark holds for its table of answers: as long as the answers lack later epochs of the ledger,
    the watermark is the one at which the answers were updated. `BEGINNING` means that there is no watermark yet.
    """
    if not lake.exists:
        return None
    table, ledger = lake.find(name), lake.find(ledger_name(name))
    if ledger is None:
        return None if table is None else _log_watermark(table)
    return _watermark(head_of(ledger).properties) if table is None else _answers_watermark(table, ledger)


def _log_watermark(log: Table) -> int | None:
    progress = progress_in(head_of(log))
    return None if progress is None else progress.watermark


def _answers_watermark(answers: Table, ledger: Table) -> int:
    """Return the watermark of the ledger's snapshot from which the answers were updated last."""
    updated_from = head_of(answers).number(STAMP)
    there = {snapshot.snapshot_id for snapshot in ledger.metadata.snapshots}
    if updated_from not in there:
        # Maintenance has expired this snapshot, or nothing has been answered yet.
        return BEGINNING
    found = (properties_of(snapshot) for snapshot in lineage(ledger, updated_from))
    return _watermark(next((properties for properties in found if properties), {}))


def _watermark(properties: Mapping[str, str]) -> int:
    return int(properties.get("watermark", BEGINNING))
