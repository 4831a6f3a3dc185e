"""Read, from a definition's ledger, the records that its streams have set aside (rule X7, last resort).

A stream sets a record aside if the record makes the fold of an epoch fail.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, cast

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import EpochCommit
from tailrace.lake.schema.contracts import REJECTED
from tailrace.lake.schema.filters import begins, equal, every
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.table_names import ledger_name
from tailrace.model.definition.definition import Definition
from tailrace.model.definition.record_steps import Place
from tailrace.model.logs.derived_logs import Panes

WHY = "set aside: "
"""The prefix of the value in the column `reason`, in the ledger row of a record that was set aside."""

D = TypeVar("D", bound=Definition)


def with_set_aside(lake: Lake, definition: D) -> D:
    """Return a copy of a definition that rejects the records that its streams have set aside.

    If no records were set aside, the definition itself is returned. If the definition is a later stage of a pipeline,
    the first stage in the copy rejects the records.
    """
    if isinstance(definition.log, Panes):
        earlier = with_set_aside(lake, definition.log.of)
        if earlier is definition.log.of:
            return definition
        return cast("D", replace(cast("Any", definition), log=replace(definition.log, of=earlier)))
    found = set_aside(lake, definition)
    return definition.with_set_aside(found) if found else definition


def can_set_aside(definition: Definition) -> bool:
    """Return True if a stream of the definition may set aside records that make its fold fail.

    This is allowed only if none of the definition's logs can retract records.
    """
    return not any(log.takes_back for log in definition.log.parts)


def set_aside(lake: Lake, definition: Definition) -> dict[Place, str]:
    """Return the positions of the records that were set aside; each position is mapped to the recorded reason.

    The ledger's rows are searched only if the commit of the ledger's last epoch states that records were set aside.
    """
    ledger = ledger_name(definition.name)
    if not lake.has(ledger) or not EpochCommit.of(lake.head(ledger).properties).set_aside:
        return {}
    found = dict[Place, str]()
    where = every(equal("kind", REJECTED), begins("reason", WHY))
    for columns in tables_of(definition).places:
        names = (*columns, "reason")
        rows = lake.table(ledger).scan(row_filter=where, selected_fields=names).to_arrow().select(names).to_pylist()
        found |= {Place(*list(row.values())[:3]): row["reason"] for row in rows if row[names[0]] is not None}
    return found
