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

    return partial(_called, step, types, schema)


def _called(
    step: Each, types: Mapping[str, str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield each batch after a step; only the columns that the function reads become Python values."""
    names, new = list(step.read_columns(types)), list(step.gives)
    empty = dict.fromkeys(new)
    for batch in batches:
        before = batch[FAILED].to_pylist() if FAILED in batch.schema.names else [None] * batch.num_rows
        places, rows, reasons = list[int](), list[dict[str, Any]](), list[str | None]()
        for place, (own, why) in enumerate(zip(batch.select(names).to_pylist(), before, strict=True)):
            made, reason = [empty], why
            if why is None:
                try:
                    made = step.new_columns(own)
                except RecordError as error:
                    reason = str(error)
            for one in made:
                places.append(place)
                rows.append(one)
                reasons.append(reason)
        kept = batch if places == list(range(batch.num_rows)) else batch.take(pa.array(places, pa.int64()))
        columns: dict[str, Any] = {name: kept[name] for name in kept.schema.names}
        columns.update({name: pa.array([row[name] for row in rows], schema.field(name).type) for name in new})
        columns[FAILED] = pa.array(reasons, pa.string())
        yield pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in schema], schema=schema)
