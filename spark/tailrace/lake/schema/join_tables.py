"""Declare the tables of a join: its ledger and its table of runs."""

from __future__ import annotations

from tailrace.lake.schema.column_groups import JOIN_PLACE
from tailrace.lake.schema.contracts import Column, Contract, DefinitionTables, runs_contract
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
    place = {part: f"the {{0}} record's _{name} in its log" for part, name in (
        ("epoch", "epoch"), ("partition", "source"), ("offset", "offset"))}  # fmt: skip
    types = {"epoch": "bigint", "partition": "string", "offset": "bigint"}
    columns = {
        "kind": Column("string", "production (a pair, or a record without one), late, or rejected", required=True),
        **{name: Column(type, "production") for name, type in join.results.items()},
        PANE_TIME: Column(
            "timestamp", "production: the later record's time; late, rejected: the record's", required=True
        ),
        "generation": Column("bigint", "production: the generation that it is of (rule V2)"),
        "epoch": Column("bigint", "the epoch that wrote the row", required=True),
        "retraction": Column("boolean", "production: whether it takes back what was given"),
        "processing_time": Column("timestamp", "the epoch's processing time"),
        "writer": Column("string", "production: stream or backfill"),
        "side": Column("string", "late, rejected: which side's record it is"),
        "watermark": Column("timestamp", "late: the watermark that it was judged by"),
        "behind": Column("bigint", "late: how far the watermark was past the record, in microseconds"),
        **{
            f"{side}_{part}": Column(types[part], doc.format(side))
            for side in ("left", "right")
            for part, doc in place.items()
        },
        "reason": Column("string", "rejected: what was wrong"),
    }
    doc = f"what join {join.name} gave of logs {join.left.name} and {join.right.name}, one commit an epoch"
    spans = span_terms(PANE_TIME, reach_of_log(join.log))
    return Contract(ledger_name(join.name), doc, columns, ("kind", *spans), sort_by=(PANE_TIME,))
