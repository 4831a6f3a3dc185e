"""The trace of a record in a map: the rows that the map outputs for the record, computed without a ledger."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.model.base.time import instant
from tailrace.model.definition.map import Map
from tailrace.model.logs.log import PLACE
from tailrace.trace.ledgers import Ledgers
from tailrace.trace.steps import Record, Row, Step, left_out


def through_map(definition: Map, record: Record, ledgers: Ledgers) -> Iterator[Step]:
    """Yield the outcomes of a record in a map."""
    prepared = definition.prepared(record)
    yield from left_out(definition.name, prepared)
    at, place = instant(record[definition.log.event_time]), tuple(record[name] for name in PLACE)
    for one in prepared.records:
        values = {name: one[name] for name in definition.results}
        yield Row(definition.name, values, at, record["_epoch"], place)
