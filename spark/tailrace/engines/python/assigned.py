"""Call user-defined windowing code for each record of Arrow tables, and build a column of the assigned windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from tailrace.engines.python import columns
from tailrace.engines.python.garbage import no_search_for_cycles
from tailrace.model.base.errors import RecordError
from tailrace.model.definition.pipeline import Pipeline

BOUNDS = "array<struct<window_start:bigint,window_end:bigint>>"
"""The type of a list of windows. Each window consists of its start and its end, in microseconds."""

_SPAN = pa.struct({"window_start": pa.int64(), "window_end": pa.int64()})


class AssignedWindows(NamedTuple):
    """The windows of each record, and the reasons why records are rejected.

    The windows of a record are a list of bounds in microseconds. A rejected record has no windows. The reason is null
    if the record is not rejected.
    """

    windows: pa.Array
    reasons: pa.Array


def assigned_windows(pipeline: Pipeline, records: pa.Table | pa.RecordBatch) -> AssignedWindows:
    """Call the pipeline's windowing code for each record, and return the windows and the reasons for rejections."""
    own, reasons = pa.table({name: records[name] for name in pipeline.columns}), dict[int, str]()
    times, assign = columns.micros(records[pipeline.log.event_time]), pipeline.windows_of
    with no_search_for_cycles():
        assigned = []
        for place, (at, record) in enumerate(zip(times, columns.mappings(own), strict=True)):
            try:
                assigned.append(assign(at, record))
            except RecordError as error:
                assigned.append([])
                reasons[place] = str(error)
        windows = [window for some in assigned for window in some]
        sides = [pa.array([window[side] for window in windows], pa.int64()) for side in (0, 1)]
        lists = columns.lists(map(len, assigned), columns.structs(sides, _SPAN), pa.list_(_SPAN))
        why = (
            pa.array(map(reasons.get, range(len(assigned))), pa.string()) if reasons else pa.nulls(len(lists), "string")
        )
        return AssignedWindows(lists, why)


def assigning_calls(
    pipeline: Pipeline, schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that converts batches of records to batches with the schema `schema`.

    The resulting batches also contain each record's windows. The last two columns of `schema` are `WINDOWS` (the
    windows) and `FAILED` (the reason if the record is rejected).
    """

    def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = [batch[field.name].cast(field.type) for field in list(schema)[:-2]]
            windows, reasons = assigned_windows(pipeline, batch)
            yield pa.RecordBatch.from_arrays([*found, windows.cast(schema.field(-2).type), reasons], schema=schema)

    return place
