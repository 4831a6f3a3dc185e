"""The records that streams of a definition set aside, as its ledger has them (rule X7, the last resort)."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar, cast

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.schema.contracts import REJECTED
from tailrace.lake.schema.filters import begins, equal, every
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.chain import Definition
from tailrace.model.definition.map import Map
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.definition.record_steps import Place, SetAside, own_steps
from tailrace.model.logs.derived_logs import Panes

WHY = "set aside: "
"""The beginning of the reason in a ledger's row of a record that was set aside."""

D = TypeVar("D", bound=Definition)


def with_set_aside(lake: Lake, definition: D) -> D:
    """Return a definition that rejects the records that its streams set aside, by its first step.

    Of a later stage, the stages before it do. A definition whose ledger has no such records is returned as it is.
    """
    if isinstance(definition, Pipeline) and isinstance(definition.log, Panes):
        before = with_set_aside(lake, definition.log.of)
        if before is definition.log.of:
            return definition
        return replace(definition, log=replace(definition.log, of=before))
    if not suits(definition):
        return definition
    found = set_aside(lake, definition)
    return cast("D", rejecting(definition, found)) if found else definition


def suits(definition: Definition) -> bool:
    """Tell whether records can be set aside of a definition: by their places, in logs that sources fill."""
    return isinstance(definition, Pipeline | Map) and all(log.landed for log in definition.log.parts)


def rejecting(definition: Definition, reasons: dict[Place, str]) -> Definition:
    """Put the step that rejects these records before a definition's own, and in the place of such a step."""
    assert isinstance(definition, Pipeline | Map)
    return replace(definition, each=(SetAside(reasons), *own_steps(definition.each)))


def set_aside(lake: Lake, definition: Definition) -> dict[Place, str]:
    """Find the records that were set aside, each with the reason of then."""
    if (ledger := lake.find(ledger_name(definition.name))) is None:
        return {}
    where = every(equal("kind", REJECTED), begins("reason", WHY))
    columns = ("source_epoch", "source_partition", "source_offset", "reason")
    rows = ledger.scan(row_filter=where, selected_fields=columns).to_arrow().select(columns).to_pylist()
    return {Place(*list(row.values())[:3]): row["reason"] for row in rows}
