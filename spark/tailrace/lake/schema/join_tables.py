"""Declare the tables of a join: its ledger and its table of runs."""

from __future__ import annotations

from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import (
    Column,
    Contract,
    DefinitionTables,
    declared_columns,
    runs_contract,
)
from tailrace.lake.schema.table_names import ledger_name
from tailrace.lake.schema.time_spans import reach_of_log, span_terms
from tailrace.model.definition.join import Join
from tailrace.model.logs.log import PANE_TIME


def join_tables(join: Join) -> DefinitionTables:
    """Declare the tables of a join."""
    places = tuple(JOIN_PLACE.values())
    return DefinitionTables(join_contract(join), (), tuple(join.results), runs=runs_contract(join), places=places)


def join_contract(join: Join) -> Contract:
    """Declare the ledger of a join, which has pairs, late records and rejected records; each epoch is one commit.

    The ledger does not contain the records that the join keeps in its state. After a restart, the join restores this
    state by reading its logs.
    """
    results = {name: Column(type, "production") for name, type in join.results.items()}
    columns = declared_columns("join", results=results)
    doc = f"what join {join.name} gave of logs {join.left.name} and {join.right.name}, one commit an epoch"
    spans = span_terms(PANE_TIME, reach_of_log(join.log))
    return Contract(ledger_name(join.name), doc, columns, ("kind", *spans), sort_by=(PANE_TIME,))
