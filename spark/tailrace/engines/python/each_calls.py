"""Call a definition's own function of a record over Arrow batches (`tailrace.model.definition.record_steps.Each`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from tailrace.model.base.errors import RecordError
from tailrace.model.definition.record_steps import Each
from tailrace.sql.records.selections import FAILED


def caller(
    step: Each, types: dict[str, str], schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that calls a step; a record that the step rejects goes on with the reason in `FAILED`.

    No step is called for a record that an earlier one rejected.
    """

    def made(record: dict[str, Any]) -> list[Any]:
        if record.get(FAILED) is not None:
            return [record]
        try:
            return step.records(record, types)
        except RecordError as error:
            return [{**record, FAILED: str(error)}]

    def call(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [dict(row) for record in batch.to_pylist() for row in made(record)]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return call
