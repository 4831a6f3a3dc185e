"""The rows of a map in SQL: its output of records, and the ledger rows of an epoch."""

from __future__ import annotations

from tailrace.lake.schema.contracts import PRODUCTION
from tailrace.lake.schema.map_tables import map_contract
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.epoch.rejected_rows import rejected_rows
from tailrace.sql.query_shapes import select_list
from tailrace.sql.records.assignment import keep_clause
from tailrace.sql.terms import Query, Relation, quoted

PLACE = {"source_epoch": "_epoch", "source_partition": "_source", "source_offset": "_offset"}
"""The place in the log of a row's record: the ledger's columns, each with the record's own."""


def output(definition: Map, records: Relation) -> Query:
    """Write the SQL of the output of a relation of records after the steps: columns, event time and place."""
    items = [quoted(name) for name in definition.results]
    items.append(f"{quoted(definition.log.event_time)} AS {PANE_TIME}")
    items += [f"{theirs} AS {ours}" for ours, theirs in PLACE.items()]
    return Query(f"SELECT {', '.join(items)} FROM {records}{keep_clause(definition)}")


def of_epoch(definition: Map, records: Relation, clock: Clock, generation: int) -> Query:
    """Write the SQL of the ledger rows of an epoch, from a relation of its records after the steps."""
    own = {
        "kind": f"'{PRODUCTION}'",
        "generation": f"{generation}L",
        "epoch": f"{clock.epoch}L",
        "retraction": "false",
        "processing_time": f"TIMESTAMP_MICROS({clock.processing_time}L)",
        "writer": "'stream'",
    }
    named = {name: quoted(name) for name in (*definition.results, PANE_TIME, *PLACE)}
    return Query(f"SELECT {select_list(row_types(definition), named | own)} FROM ({output(definition, records)})")


def of_rejected(definition: Map, rejected: Relation, clock: Clock) -> Query:
    """Write the SQL of the ledger rows of the records of a view that a step rejected."""
    own = {PANE_TIME: quoted(definition.log.event_time), **PLACE}
    return rejected_rows(row_types(definition), rejected, clock, own)


def row_types(definition: Map) -> dict[str, str]:
    """List the columns of a map's ledger and their types."""
    return map_contract(definition).types
