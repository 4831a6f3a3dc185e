"""The plan of a map, for `explain`: its stages, the SQL of an epoch, its tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from tailrace.engines.choose import EngineChoice
from tailrace.lake.schema.owned_tables import contracts
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.model.definition.record_steps import Each
from tailrace.model.definition.source_text import written
from tailrace.plan.computation_plan import page, plan_data, table_data
from tailrace.plan.plan_stages import Execution, PlannedQuery
from tailrace.plan.reading import reads, taken
from tailrace.sql.records.selections import accepted, may_fail, stepped
from tailrace.sql.results import map_rows
from tailrace.sql.terms import Relation


def stages(definition: Map) -> Iterator[tuple[str, Execution, str]]:
    """List the stages of an epoch in order: a stage's name, where it runs, and what it does."""
    log = definition.log
    yield "read", Execution.NATIVE, f"{taken(log)}; the event time is {log.event_time}"
    for step in definition.each:
        yield "step", Execution.PYTHON if isinstance(step, Each) else Execution.NATIVE, written(step)
    if definition.keep is not None:
        yield "keep", Execution.NATIVE, written(definition.keep)
    yield "rows", Execution.NATIVE, f"{', '.join(definition.results)}; nothing is late, and nothing is kept"
    rejected = " and what a step rejects" if may_fail(definition) else ""
    yield "ledger", Execution.NATIVE, f"to {definition.name}__ledger: productions{rejected}, one append an epoch"


def query(definition: Map) -> PlannedQuery | None:
    """Write the SQL that makes the ledger's rows of a view of an epoch's records; None where a step runs in Python."""
    records = stepped(definition, Relation("bundle"), [*definition.log.columns, *map_rows.PLACE.values()])
    if records is None:
        return None
    records = accepted(records) if may_fail(definition) else records
    text = map_rows.of_epoch(definition, records, Clock(0, 0, 0), 1)
    return PlannedQuery("ledger", "the rows of an epoch, here of epoch 0", text)


def plan_page(definition: Map, engine: EngineChoice) -> RenderableType:
    """Lay out the plan as a page of text, with the engine on which a stream of the map begins."""
    return page(definition, reads(definition), engine, stages(definition), contracts(definition))


def data(definition: Map, engine: EngineChoice) -> dict[str, Any]:
    """Return the plan as JSON data, with the engine on which a stream of the map begins."""
    text = query(definition)
    return {
        "map": definition.name,
        **plan_data(definition, engine, stages(definition)),
        "gives": dict(definition.produced.columns),
        "sql": {} if text is None else {text.name: text.text},
        "tables": [table_data(contract.table, contract.columns) for contract in contracts(definition)],
    }
