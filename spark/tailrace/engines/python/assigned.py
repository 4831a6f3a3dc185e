"""Call a definition's own windowing for each record of Arrow tables: the windows become a column of the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from tailrace.engines.python import columns
from tailrace.engines.python.garbage import no_search_for_cycles
from tailrace.model.definition.pipeline import Pipeline

BOUNDS = "array<struct<window_start:bigint,window_end:bigint>>"
"""The type of a record's windows, in microseconds."""

_SPAN = pa.struct({"window_start": pa.int64(), "window_end": pa.int64()})


def assigned_windows(pipeline: Pipeline, records: pa.Table | pa.RecordBatch) -> pa.Array:
    """Assign windows to each record; return them as lists of their bounds in microseconds."""
    assign, own = pipeline.windows_of, pa.table({name: records[name] for name in pipeline.columns})
    times = columns.micros(records[pipeline.log.event_time])
    with no_search_for_cycles():
        assigned = [assign(at, record) for at, record in zip(times, columns.mappings(own), strict=True)]
        windows = [window for some in assigned for window in some]
        sides = [columns.array([window[side] for window in windows], pa.int64()) for side in (0, 1)]
        return columns.lists(map(len, assigned), columns.structs(sides, _SPAN), pa.list_(_SPAN))


def placer(pipeline: Pipeline, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that makes rows of `schema` from records; its last column has the windows of each record."""

    def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            windows = assigned_windows(pipeline, batch).cast(schema.field(-1).type)
            found = [batch[field.name].cast(field.type) for field in list(schema)[:-1]]
            yield pa.RecordBatch.from_arrays([*found, windows], schema=schema)

    return place
