"""Declare the tables of a map definition: its ledger and its table of runs."""

from __future__ import annotations

from tailrace.lake.schema.contracts import (
    Column,
    Contract,
    DefinitionTables,
    declared_columns,
    runs_contract,
)
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.schema.time_spans import reach_of_log, span_terms
from tailrace.model.definition.map import Map
from tailrace.model.logs.log import PANE_TIME


def map_tables(definition: Map) -> DefinitionTables:
    """Declare the tables of a map definition."""
    return DefinitionTables(map_contract(definition), (), tuple(definition.results), runs=runs_contract(definition))


def map_contract(definition: Map) -> Contract:
    """Declare the ledger of a map definition, which has output rows and rejected records.

    Each epoch is one commit.
    """
    results = {name: Column(type, "production") for name, type in definition.results.items()}
    columns = declared_columns("map", results=results)
    doc = f"what map {definition.name} made of the records of log {definition.log.name}, one commit an epoch"
    spans = span_terms(PANE_TIME, reach_of_log(definition.log))
    return Contract(ledger_name(definition.name), doc, columns, ("kind", *spans), sort_by=(PANE_TIME,))
