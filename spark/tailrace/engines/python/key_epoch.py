"""Describe one epoch of a computation for a step that computes its rows: the clocks, and the schemas of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from tailrace.engines.python import columns
from tailrace.model.base.clock import Clock
from tailrace.model.definition.computation import Computation


class KeyRows(NamedTuple):
    """The result of an epoch for some keys: the state of each key that still has a state, and rows for the ledger."""

    states: pa.Table
    ledger: pa.Table


@dataclass(frozen=True)
class KeyEpoch:
    """One epoch of a computation, of which a step computes the rows.

    `states` is the schema of key states, and `ledger` the schema of ledger rows. If a timer's code fails and `stops` is
    true, the whole epoch fails. If `stops` is false, only the firing of this timer is rejected. If `tries` is true, the
    code for a batch gets every epoch, however small, and its errors are not caught.
    """

    computation: Computation
    clock: Clock
    before: Clock | None
    states: pa.Schema
    ledger: pa.Schema
    stops: bool = False
    tries: bool = False

    def ledger_rows(self, kind: str, count: int, arrays: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Build `count` ledger rows of one kind, with this epoch's number and processing time."""
        now = columns.instants([self.clock.processing_time], self.ledger.field("processing_time").type)[0]
        own = {
            "kind": columns.repeat_value(kind, count, self.ledger.field("kind").type),
            "epoch": columns.repeat_value(self.clock.epoch, count, self.ledger.field("epoch").type),
            "processing_time": pa.repeat(now, count),
        }
        return columns.batch(own | dict(arrays), count, self.ledger)
