"""The ledger rows of rejected records in SQL, whatever definition rejects them (rule X7)."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.lake.schema.contracts import REJECTED
from tailrace.model.base.clock import Clock
from tailrace.sql.query_shapes import select_list
from tailrace.sql.records.selections import FAILED
from tailrace.sql.terms import Query, Relation


def rejected_rows(types: Mapping[str, str], records: Relation, clock: Clock, own: Mapping[str, str]) -> Query:
    """Write the SQL of the ledger rows of rejected records, whose reason is in column `FAILED`.

    `types` are the types of the ledger's columns, `own` the terms of a record's event time, place and other columns.
    """
    values = {
        "kind": f"'{REJECTED}'",
        "epoch": f"{clock.epoch}L",
        "processing_time": f"TIMESTAMP_MICROS({clock.processing_time}L)",
        "reason": FAILED,
    }
    return Query(f"SELECT {select_list(types, values | dict(own))} FROM {records}")
