"""Call a definition's own Python code for each record of Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from tailrace.engines.python.batch_calls import batch_step_calls
from tailrace.model.base.errors import RecordError
from tailrace.model.definition.batch_steps import EachBatch
from tailrace.model.definition.record_steps import Each
from tailrace.sql.records.selections import FAILED

OverBatches: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function that maps Arrow batches to Arrow batches. The function yields one batch at a time, and computes the next
batch only when the caller asks for it.
"""


def over_records(call: Callable[[dict[str, Any]], Iterable[Mapping[str, Any]]], schema: pa.Schema) -> OverBatches:
    """Return a function that calls `call` for each input record and yields batches of all rows that `call` returns."""

    def over(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [row for record in batch.to_pylist() for row in call(record)]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return over


def step_calls(step: Each, types: dict[str, str], schema: pa.Schema) -> OverBatches:
    """Return a function that calls a step for each record, or for each batch (`EachBatch`).

    If the step rejects a record, the record's column `FAILED` contains the reason. A record that an earlier step
    rejected is passed through without a call.
    """

    if isinstance(step, EachBatch):
        return partial(batch_step_calls, step, types, schema)

    def made(record: dict[str, Any]) -> Iterable[Mapping[str, Any]]:
        if record.get(FAILED) is not None:
            return [record]
        try:
            return step.records(record, types)
        except RecordError as error:
            return [{**record, FAILED: str(error)}]

    return over_records(made, schema)
