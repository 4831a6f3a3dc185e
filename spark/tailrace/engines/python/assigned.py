"""Call user-defined windowing code for each record of Arrow tables, and build a column of the assigned windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.python import columns
from tailrace.engines.python.garbage import no_search_for_cycles
from tailrace.model.base.errors import RecordError
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.combiners.own import OwnWindows
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
    if (found := batch_windows(pipeline, records)) is not None:
        return AssignedWindows(found, pa.nulls(len(found), pa.string()))
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


def batch_windows(pipeline: Pipeline, records: pa.Table | pa.RecordBatch) -> pa.Array | None:
    """Return the windows that the windowing code assigns to all records at once; None if it does not, or if it fails.

    A failure is not reported here, because the code for single records then finds the records at fault.
    """
    where = pipeline.where
    if not isinstance(where, OwnWindows) or where.merges or type(where).assign_batch is OwnWindows.assign_batch:
        return None
    names = pipeline.columns if where.columns is None else where.columns
    given = pa.table({name: records[name] for name in names if name in pipeline.columns})
    try:
        return windows_of_batch(where, records[pipeline.log.event_time], given)
    except Exception:
        return None


def windows_of_batch(where: OwnWindows, at: pa.Array | pa.ChunkedArray, records: pa.Table) -> pa.Array | None:
    """Call windowing code for all records at once; return a list of windows for each record, cut at the ends of time.

    Raises `ValueError` if it returns what are no windows, or not for each record.
    """
    whole = at.combine_chunks() if isinstance(at, pa.ChunkedArray) else at
    times = whole.cast(pa.int64()).to_numpy(zero_copy_only=False)
    given = where.assign_batch(times, records)
    if given is None:
        return None
    (starts, counts), (ends, also) = map(_flat, given)
    if len(counts) != len(times) or counts != also:
        raise ValueError(f"windows of {len(counts)} and {len(also)} records: expected those of {len(times)}")
    if starts.null_count or ends.null_count:
        raise ValueError("a window without a start or an end")
    starts = pc.max_element_wise(starts, pa.scalar(BEGINNING, pa.int64()))
    ends = pc.min_element_wise(ends, pa.scalar(END_OF_TIME, pa.int64()))
    if not pc.all(pc.less(starts, ends)).as_py() and len(starts):
        raise ValueError("a window that does not end after it begins")
    return columns.lists(counts, columns.structs([starts, ends], _SPAN), pa.list_(_SPAN))


def _flat(bounds: Any) -> tuple[pa.Array, list[int]]:
    """Return all bounds of windows one after another, and their number for each record."""
    if getattr(bounds, "ndim", 1) == 2:
        count, each = bounds.shape
        return pa.array(bounds.reshape(-1)).cast(pa.int64()), [each] * count
    made = bounds if isinstance(bounds, pa.Array | pa.ChunkedArray) else pa.array(bounds)
    made = made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
    if pa.types.is_nested(made.type):
        return made.flatten().cast(pa.int64()), pc.list_value_length(made).to_pylist()
    return made.cast(pa.int64()), [1] * len(made)


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
