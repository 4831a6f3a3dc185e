"""Asks of a definition of any kind what has to hold whatever it was given: audit, replay and backfill (X6, L3)."""

from __future__ import annotations

from tailrace.backfill.backfill import backfill
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.definition import Definition, Ranged
from tailrace.verify.audit import audit
from tailrace.verify.replay import replay


def adds_up(lake: Lake, definition: Definition) -> None:
    """Audit, replay and backfill a definition: what is late is taken in, and what was set aside stays so."""
    if isinstance(definition, Ranged):
        again = replay(lake, definition)
        assert again.ok, (again.counts, again.differences)
        backfill(lake, definition, BEGINNING)
    audited = audit(lake, definition)
    assert audited.ok, [check for check in audited.checks if not check.ok]
