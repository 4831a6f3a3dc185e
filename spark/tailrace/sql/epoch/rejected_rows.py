"""The columns that ledger rows of a stream share in SQL, and the ledger rows of rejected records (rule X7)."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.lake.schema.contracts import PRODUCTION, REJECTED
from tailrace.model.base.clock import Clock
from tailrace.sql.query_shapes import select_list
from tailrace.sql.records.selections import FAILED
from tailrace.sql.terms import Query, Relation


def epoch_columns(kind: str, clock: Clock) -> dict[str, str]:
    """Write the columns that all ledger rows of a kind have that an epoch writes."""
    now = f"TIMESTAMP_MICROS({clock.processing_time}L)"
    return {"kind": f"'{kind}'", "epoch": f"{clock.epoch}L", "processing_time": now}


def production_columns(clock: Clock, generation: int, retraction: str) -> dict[str, str]:
    """Write the columns that all productions of a map or a join have that an epoch writes."""
    more = {"generation": f"{generation}L", "retraction": retraction, "writer": "'stream'"}
    return epoch_columns(PRODUCTION, clock) | more


def rejected_rows(types: Mapping[str, str], records: Relation, clock: Clock, own: Mapping[str, str]) -> Query:
    """Write the query of the ledger rows of rejected records, whose reason is in column `FAILED`.

    `types` are the types of the ledger's columns, `own` the terms of a record's event time, place and other columns.
    """
    values = epoch_columns(REJECTED, clock) | {"reason": FAILED} | dict(own)
    return Query(f"SELECT {select_list(types, values)} FROM {records}")
