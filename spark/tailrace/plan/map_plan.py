"""Create the plan of a map.

An epoch of a map consists of one query over the epoch's records and one append to the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.lake.schema.contracts import PRODUCTION, REJECTED
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.model.definition.record_steps import Each
from tailrace.model.definition.source_text import written
from tailrace.plan.stages import (
    Beginning,
    Execution,
    KindPlan,
    PlannedQuery,
    Stage,
    ledger_stage,
    read_stage,
    stage,
)
from tailrace.sql.epoch import map_rows
from tailrace.sql.records.selections import accepted_records, may_fail, needs_spark, query_steps
from tailrace.sql.records.traced_steps import traced
from tailrace.sql.terms import Relation


def map_plan(definition: Map, begin: Beginning) -> KindPlan:
    """Return the plan of a map for a stream that begins under the conditions `begin`."""
    stages = tuple(_stages(definition, begin))
    return KindPlan(stages, tuple(_queries(definition, begin)), None, definition.produced.columns)


def _stages(definition: Map, begin: Beginning) -> Iterator[Stage]:
    log, sql = definition.log, begin.sql
    yield read_stage(log, begin)
    # If one of the map's steps is written for Spark, Spark runs all steps of the map.
    steps = Execution.SPARK if needs_spark(definition) else sql
    types = log.columns
    for step in definition.each:
        called = isinstance(step, Each) and traced(step, types) is None
        yield stage("step", Execution.PYTHON if called else steps, written(step))
        types = step.columns(types)
    if definition.keep is not None:
        yield stage("keep", sql, written(definition.keep))
    query = "ledger" if any(_queries(definition, begin)) else ""
    given = f"{', '.join(definition.results)}; nothing is late, and nothing is kept"
    yield stage("rows", sql, given, query=query)
    kinds = (PRODUCTION, REJECTED) if may_fail(definition) else (PRODUCTION,)
    yield ledger_stage(definition, begin.commit, *kinds, query=query)


def _queries(definition: Map, begin: Beginning) -> Iterator[PlannedQuery]:
    """Yield the SQL text that computes the ledger's rows from an epoch's records.

    Yields nothing if a step of the map is Python code.
    """
    records = query_steps(definition, Relation("bundle"), [*definition.log.columns, *map_rows.PLACE.values()])
    if records is not None:
        records = accepted_records(records) if may_fail(definition) else records
        text = map_rows.of_epoch(definition, records, Clock(0, 0, 0), 1)
        by = Execution.SPARK if needs_spark(definition) else begin.sql
        yield PlannedQuery("ledger", "the rows of an epoch, here of epoch 0", text, by)
