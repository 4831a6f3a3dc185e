"""Call the code of custom combiners for many windows at once: the functions that an engine's queries call.

Arguments and results are Arrow columns, with a row for each window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import Parameter, Signature
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.engines.python import columns
from tailrace.engines.python.garbage import no_search_for_cycles
from tailrace.engines.python.record_calls import OverBatches
from tailrace.lake.schema.iceberg_types import arrow_schema
from tailrace.model.base.errors import RecordError
from tailrace.model.base.types import column_of, is_plain
from tailrace.model.combiners.own import (
    Guarded,
    OwnCall,
    OwnCombiner,
    OwnPart,
    OwnUse,
    added,
    fitted,
    merged,
    merged_all,
)
from tailrace.model.definition.pipeline import Pipeline

OverColumns: TypeAlias = "Callable[..., pa.Array]"
"""A function from Arrow columns to a column of structs, which have the fields of the call (`OwnCall.fields`)."""


FAILURES: Counter[str] = Counter()
"""For each function by name: how often the combiner's code has failed for a record in this process.

Such a record must be rejected, but a function of whole windows does not say which record it was. So whoever calls the
function compares the number before the call with the number after it. Other threads may increase the number, too.
"""


def types_of(call: OwnCall) -> tuple[list[str], str]:
    """Return the column types of a function's arguments, and the type of the value that it returns."""
    part, state = call.part, call.part.type
    one = [state, "string"] if part.fails else [state]
    match call.use:
        case OwnUse.ZERO:
            return ["bigint"], state
        case OwnUse.ADD:
            return [f"array<{part.reads or 'boolean'}>"], state
        case OwnUse.MERGE:
            return one * 2, state
        case OwnUse.MERGE_ALL:
            fields = ",".join(f"{name}:{type}" for name, type in zip(("value", "failed"), one, strict=False))
            return [f"array<struct<{fields}>>"], state
    return one, part.combiner.result_type(part.reads)


_FUNCTIONS: dict[str, OverColumns] = {}
"""The functions by name. DuckDB does not keep a function alive when the connection that added it is closed."""


def over_columns(call: OwnCall) -> OverColumns:
    """Return the function that makes a call for each row of Arrow columns."""
    if call.name not in _FUNCTIONS:
        _FUNCTIONS[call.name] = _over_columns(call)
    return _FUNCTIONS[call.name]


def _over_columns(call: OwnCall) -> OverColumns:
    given_types, returned = types_of(call)
    type = arrow_schema({"value": returned}).field(0).type
    compute = _COMPUTED[call.use]

    def over(*given: pa.Array | pa.ChunkedArray) -> pa.Array:
        arrays = list(map(_whole, given))
        with no_search_for_cycles():
            values = _without_failures(call, arrays, type)
            if values is None:
                found = list(compute(call, arrays))
                made = [pa.array([value for value, _ in found], type), pa.array([why for _, why in found], pa.string())]
            else:
                made = [values, pa.nulls(len(values), pa.string())]
        made = made[: len(call.fields)]
        return pa.StructArray.from_arrays(made, list(call.fields))

    # DuckDB counts the parameters.
    names = [Parameter(f"given_{place}", Parameter.POSITIONAL_ONLY) for place in range(len(given_types))]
    vars(over)["__signature__"] = Signature(names)
    return over


def _without_failures(call: OwnCall, given: Sequence[pa.Array], type: pa.DataType) -> pa.Array | None:
    """Return the values of a call for all rows, or None if something fails, and each row has to be asked for by itself.

    Nearly always, nothing fails, and no row needs a guard.
    """
    quick = _QUICK.get(call.use)
    if quick is None or any(one.null_count < len(one) for one in given[1::2] if call.part.fails):
        return None
    try:
        return quick(call, given[:: 2 if call.part.fails else 1], type)
    except Exception:
        return None


def _merged_quickly(call: OwnCall, given: Sequence[pa.Array], type: pa.DataType) -> pa.Array:
    """Merge accumulators. An empty one, of a window without earlier or new records, leaves the other as it is."""
    a, b = given
    if not is_plain(call.part.type):
        return pa.array(_merges(call.part, a, b), type)
    empty = [_is(call.part.combiner.zero(), one) for one in given]
    merges = pc.invert(pc.or_(*empty))
    chosen = pc.if_else(empty[0], b, a)
    if not (count := merges.true_count):
        return chosen
    if count == len(merges):
        return pa.array(_merges(call.part, a, b), type)
    return pc.replace_with_mask(chosen, merges, pa.array(_merges(call.part, a.filter(merges), b.filter(merges)), type))


def _merges(part: OwnPart, a: pa.Array, b: pa.Array) -> list[Any]:
    merge, fit = part.combiner.merge, fitted(part.type)
    pairs = zip(columns.values(a), columns.values(b), strict=True)
    return [fit(merge(x, y)) for x, y in pairs] if part.fails else [merge(x, y) for x, y in pairs]


def _is(value: Any, column: pa.Array) -> pa.Array:
    if value is None:
        return column.is_null()
    return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)


def _outputs_quickly(call: OwnCall, given: Sequence[pa.Array], type: pa.DataType) -> pa.Array:
    output, fit = call.part.combiner.output, fitted(types_of(call)[1])
    states = columns.values(given[0])
    return pa.array([fit(output(one)) for one in states] if call.part.fails else list(map(output, states)), type)


def _groups_quickly(call: OwnCall, given: Sequence[pa.Array], type: pa.DataType) -> pa.Array | None:
    """Call `add_groups` for all windows at once; return None if it does not return a state for each."""
    combiner, lists = call.part.combiner, given[0]
    if not combiner.by_groups:
        return None
    flat, _ = _elements(lists)
    lengths = pc.list_value_length(lists).to_numpy()
    there = lengths.nonzero()[0]
    # A group begins where the one before it ends; groups without values begin nowhere.
    starts = (lengths.cumsum() - lengths)[there]
    states: Any = []
    if len(starts):
        states = combiner.add_groups(pa.nulls(len(flat)) if combiner.column is None else flat, starts)
    if len(states) != len(starts):
        return None
    # Whole numbers of NumPy fit their type as they are.
    exact = call.part.type == "bigint" and getattr(states, "dtype", None) == "int64"
    fit = fitted(call.part.type)
    made = pa.array(states if exact else [fit(one) for one in plain_state(states)], type)
    if len(made) == len(lists):
        return made
    places: list[int | None] = [None] * len(lists)
    for place, group in enumerate(there.tolist()):
        places[group] = place
    zeros = pa.array([combiner.zero()], type)
    found = pa.concat_arrays([made, zeros])
    return found.take(pa.array([len(made) if one is None else one for one in places], pa.int64()))


_QUICK: dict[OwnUse, Callable[[OwnCall, Sequence[pa.Array], pa.DataType], pa.Array | None]] = {
    OwnUse.ADD: _groups_quickly,
    OwnUse.MERGE: _merged_quickly,
    OwnUse.OUTPUT: _outputs_quickly,
}


def _zeros(call: OwnCall, given: Sequence[pa.Array]) -> Iterator[Guarded]:
    return (((call.part.combiner.zero(), None)) for _ in range(len(given[0])))


def _added(call: OwnCall, given: Sequence[pa.Array]) -> Iterable[Guarded]:
    lists, combiner = given[0], call.part.combiner
    flat, ends = _elements(lists)
    flat = pa.nulls(len(flat)) if combiner.column is None else flat
    if combiner.by_batch:
        return (_by_batch(call, flat[start:end]) for start, end in pairwise(ends))
    return _in_pieces(call, flat, ends)


PIECE = 65_536
"""The number of values that are Python objects at the same time, unless the code itself keeps them."""


def _in_pieces(call: OwnCall, flat: pa.Array, ends: Sequence[int]) -> Iterator[Guarded]:
    """Add the values of each window one by one. A window with many values is added in pieces, which are merged."""
    values, first = list[Any](), 0
    for start, end in pairwise(ends):
        if end - start > PIECE:
            pieces = [
                _one_by_one(call, columns.values(flat[at : min(at + PIECE, end)])) for at in range(start, end, PIECE)
            ]
            yield merged_all(call.part, pieces)
            continue
        if end > first + len(values):
            values, first = columns.values(flat[start : start + PIECE]), start
        yield _one_by_one(call, values[start - first : end - first])


def _by_batch(call: OwnCall, values: pa.Array) -> Guarded:
    combiner = call.part.combiner
    if not len(values):
        return combiner.zero(), None  # Records without values add nothing, and many functions fail for nothing.
    try:
        return fitted(call.part.type)(plain_state(combiner.add_batch(combiner.zero(), values))), None
    except Exception:
        # Only the calls for each record say which record the code cannot take, and whether it is a record at all.
        return _one_by_one(call, columns.values(values))


def _one_by_one(call: OwnCall, values: Sequence[Any]) -> Guarded:
    try:
        return added(call.part, values)
    except RecordError as error:
        FAILURES[call.name] += 1
        return None, str(error)


def plain_state(state: Any) -> Any:
    """Return a state as a Python value; code over arrays may return a scalar or an array of Arrow or NumPy."""
    if isinstance(state, pa.Scalar):
        return columns.values(pa.array([state]))[0]
    if isinstance(state, pa.Array | pa.ChunkedArray):
        return columns.values(state)
    return state.tolist() if type(state).__module__ == "numpy" else state


def _merged(call: OwnCall, given: Sequence[pa.Array]) -> Iterator[Guarded]:
    part = call.part
    rows = columns.rows(given, len(given[0]))
    if not part.fails:
        return ((part.combiner.merge(a, b), None) for a, b in rows)
    return (merged(part, (a, why_a), (b, why_b)) for a, why_a, b, why_b in rows)


def _merged_all(call: OwnCall, given: Sequence[pa.Array]) -> Iterator[Guarded]:
    flat, ends = _elements(given[0])
    fields = [columns.values(one) for one in columns.fields(flat)]
    accumulators = list(zip(fields[0], fields[1] if call.part.fails else [None] * len(flat), strict=True))
    return (merged_all(call.part, accumulators[start:end]) for start, end in pairwise(ends))


def _outputs(call: OwnCall, given: Sequence[pa.Array]) -> Iterator[Guarded]:
    for row in columns.rows(given, len(given[0])):
        value, *why = call(*row)
        yield value, why[0] if why else None


def _elements(lists: pa.Array) -> tuple[pa.Array, list[int]]:
    """Return the elements of all lists as one column, and the places in it at which a list begins or ends."""
    offsets = lists.offsets
    first = offsets[0].as_py()
    return lists.values.slice(first, offsets[-1].as_py() - first), pc.subtract(offsets, first).to_pylist()


_COMPUTED: dict[OwnUse, Callable[[OwnCall, Sequence[pa.Array]], Iterable[Guarded]]] = {
    OwnUse.ZERO: _zeros,
    OwnUse.ADD: _added,
    OwnUse.MERGE: _merged,
    OwnUse.MERGE_ALL: _merged_all,
    OwnUse.OUTPUT: _outputs,
}


def judging_calls(pipeline: Pipeline, schema: pa.Schema) -> OverBatches:
    """Return a function that adds to records the reasons why custom combiners reject them, in the last column."""

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = [batch[field.name].cast(field.type) for field in list(schema)[:-1]]
            yield pa.RecordBatch.from_arrays([*kept, rejections(pipeline, batch)], schema=schema)

    return judge


def rejections(pipeline: Pipeline, records: pa.Table | pa.RecordBatch) -> pa.Array:
    """Return the reasons why custom combiners reject records, as a column; it is null for the accepted records.

    The code is called for each record by itself, unless the batch that all of its values are causes no failure.
    """
    judged = [one for one in pipeline.own_combiners if one.fails and not _takes_all(one, records)]
    reasons: list[str | None] = [None] * records.num_rows
    if judged:
        names = sorted({column_of(name) for one in judged for name in one.columns})
        read = [columns.values(records[name]) for name in names]
        made = zip(*read, strict=True) if names else iter([()] * records.num_rows)
        with no_search_for_cycles():
            for place, values in enumerate(made):
                try:
                    pipeline.lifts(dict(zip(names, values, strict=True)), judged)
                except RecordError as error:
                    reasons[place] = str(error)
    return pa.array(reasons, pa.string())


def _takes_all(combiner: OwnCombiner, records: pa.Table | pa.RecordBatch) -> bool:
    """Return True if a combiner takes the values of all records as one batch."""
    column = combiner.column
    if not (combiner.by_groups or combiner.by_batch) or (column is not None and column not in records.schema.names):
        return False
    values = pa.nulls(records.num_rows) if column is None else _whole(records[column]).drop_null()
    if not len(values):
        return True
    try:
        if combiner.by_groups:
            combiner.add_groups(values, np.zeros(1, np.int64))
        else:
            combiner.add_batch(combiner.zero(), values)
    except Exception:
        return False
    return True


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
