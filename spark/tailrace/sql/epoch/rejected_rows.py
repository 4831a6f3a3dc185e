"""The SQL for the columns that a stream's ledger rows share, and for ledger rows about rejected records (rule X7)."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.lake.schema.contracts import PRODUCTION, REJECTED
from tailrace.model.base.clock import Clock
from tailrace.sql.query_shapes import select_list
from tailrace.sql.records.selections import FAILED
from tailrace.sql.terms import Query, Relation


def epoch_columns(kind: str, clock: Clock) -> dict[str, str]:
    """Map each column that an epoch writes in all ledger rows of one kind to the column's SQL expression."""
    now = f"TIMESTAMP_MICROS({clock.processing_time}L)"
    return {"kind": f"'{kind}'", "epoch": f"{clock.epoch}L", "processing_time": now}


def production_columns(clock: Clock, generation: int, retraction: str) -> dict[str, str]:
    """Map each column that an epoch writes in all output rows of a map or a join to the column's SQL expression."""
    more = {"generation": f"{generation}L", "retraction": retraction, "writer": "'stream'"}
    return epoch_columns(PRODUCTION, clock) | more


def rejected_rows(types: Mapping[str, str], records: Relation, clock: Clock, own: Mapping[str, str]) -> Query:
    """Return the query for the ledger rows about rejected records. Column `FAILED` has the reason.

    `types` are the types of the ledger's columns. `own` maps the columns for a record's event time, position and other
    facts to their SQL expressions.
    """
    values = epoch_columns(REJECTED, clock) | {"reason": FAILED} | dict(own)
    return Query(f"SELECT {select_list(types, values)} FROM {records}")
