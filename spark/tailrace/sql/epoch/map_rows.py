"""Write the rows of a map in SQL: its output, and the ledger rows of an epoch."""

from __future__ import annotations

from tailrace.lake.schema.map_tables import map_contract
from tailrace.model.base.clock import Clock
from tailrace.model.definition.map import Map
from tailrace.model.logs.log import PANE_TIME
from tailrace.sql.epoch.rejected_rows import production_columns, rejected_rows
from tailrace.sql.query_shapes import select_list
from tailrace.sql.records.assignment import keep_clause
from tailrace.sql.terms import Query, Relation, quoted

PLACE = {"source_epoch": "_epoch", "source_partition": "_source", "source_offset": "_offset"}
"""The place of a row's record in the log: the ledger's columns, each with the column of the record."""


def output(definition: Map, records: Relation) -> Query:
    """Write the query of a map's output, from a relation of records after the steps: results, event time and place."""
    items = [quoted(name) for name in definition.results]
    items.append(f"{quoted(definition.log.event_time)} AS {PANE_TIME}")
    items += [f"{theirs} AS {ours}" for ours, theirs in PLACE.items()]
    return Query(f"SELECT {', '.join(items)} FROM {records}{keep_clause(definition)}")


def of_epoch(definition: Map, records: Relation, clock: Clock, generation: int) -> Query:
    """Write the query of the ledger rows of an epoch, from a relation of its records after the steps."""
    own = production_columns(clock, generation, "false")
    named = {name: quoted(name) for name in (*definition.results, PANE_TIME, *PLACE)}
    return Query(f"SELECT {select_list(row_types(definition), named | own)} FROM ({output(definition, records)})")


def of_rejected(definition: Map, rejected: Relation, clock: Clock) -> Query:
    """Write the query of the ledger rows of rejected records, from a relation of these records."""
    own = {PANE_TIME: quoted(definition.log.event_time), **PLACE}
    return rejected_rows(row_types(definition), rejected, clock, own)


def row_types(definition: Map) -> dict[str, str]:
    """Return the columns of a map's ledger with their types."""
    return map_contract(definition).types
