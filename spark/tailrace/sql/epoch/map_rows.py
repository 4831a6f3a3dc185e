"""Write a map's rows in SQL: the map's output, and the ledger rows of an epoch."""

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
"""A mapping from ledger columns to record columns. These columns store the position of a row's source record."""


def output(definition: Map, records: Relation) -> Query:
    """Return the query for a map's output: results, event time and position.

    `records` is a relation of the records after the map's steps.
    """
    items = [quoted(name) for name in definition.results]
    items.append(f"{quoted(definition.log.event_time)} AS {PANE_TIME}")
    items += [f"{theirs} AS {ours}" for ours, theirs in PLACE.items()]
    return Query(f"SELECT {', '.join(items)} FROM {records}{keep_clause(definition)}")


def of_epoch(definition: Map, records: Relation, clock: Clock, generation: int) -> Query:
    """Return the query for an epoch's ledger rows; `records` are the epoch's records after the map's steps."""
    own = production_columns(clock, generation, "false")
    named = {name: quoted(name) for name in (*definition.results, PANE_TIME, *PLACE)}
    return Query(f"SELECT {select_list(row_types(definition), named | own)} FROM ({output(definition, records)})")


def of_rejected(definition: Map, rejected: Relation, clock: Clock) -> Query:
    """Return the query for the ledger rows about rejected records; `rejected` is a relation of these records."""
    own = {PANE_TIME: quoted(definition.log.event_time), **PLACE}
    return rejected_rows(row_types(definition), rejected, clock, own)


def row_types(definition: Map) -> dict[str, str]:
    """Return the columns of a map's ledger with their types."""
    return map_contract(definition).types
