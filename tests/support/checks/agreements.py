"""Asks of a definition of any kind what has to hold whatever it was given: audit, replay and backfill (X6, L3)."""

from __future__ import annotations

from tailrace import Computation, Join, Pipeline
from tailrace.backfill.backfill import backfill
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import BEGINNING
from tailrace.model.definition.chain import Definition
from tailrace.verify.computation_audit import audit_computation
from tailrace.verify.join_replay import replay_join
from tailrace.verify.map_replay import replay_map
from tailrace.verify.pipeline_audit import audit
from tailrace.verify.stage_replay import replay


def adds_up(lake: Lake, definition: Definition) -> None:
    """Audit, replay and backfill a definition: what is late is taken in, and what was set aside stays so."""
    if isinstance(definition, Computation):
        audited = audit_computation(lake, definition)
    else:
        audited = audit(lake, definition)
        if isinstance(definition, Pipeline):
            assert replay(lake, definition).ok
        else:
            again = replay_join(lake, definition) if isinstance(definition, Join) else replay_map(lake, definition)
            assert again.ok, again.counts
        backfill(lake, definition, BEGINNING)
        audited = audit(lake, definition)
    assert audited.ok, [check for check in audited.checks if not check.ok]
