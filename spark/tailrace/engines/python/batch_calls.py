"""Call a step's Python function on Arrow tables of records (`EachBatch`).

What the function returns is checked for a whole batch at once. If it fails, or returns what does not fit, the batch is
cut into halves, until the records that are at fault stand alone. So one bad record among n costs about 2 log n calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.lake.schema.iceberg_types import arrow_schema
from tailrace.model.base.errors import RecordError, failure
from tailrace.model.base.time import BEGINNING, END_OF_TIME
from tailrace.model.definition.batch_steps import EachBatch
from tailrace.sql.records.selections import FAILED


def batch_step_calls(
    step: EachBatch, types: Mapping[str, str], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield each batch with the step's new columns, and with the reasons of rejected records in the column `FAILED`.

    A record that an earlier step rejected is passed on without a call.
    """
    for batch in batches:
        table = pa.Table.from_batches([batch])
        before = table[FAILED].combine_chunks() if FAILED in table.column_names else pa.nulls(len(table), pa.string())
        if before.null_count == len(before):
            made, reasons = called(step, table, types)
        else:
            good = pc.is_null(before)
            made, reasons = called(step, table.filter(good), types)
            # A record that is passed on has no place among the called ones, so its new columns are null.
            places = pc.if_else(good, pc.subtract(pc.cumulative_sum(good.cast(pa.int64())), 1), None)
            made = made.take(places)
            reasons = pc.coalesce(reasons.take(places), before.cast(pa.string()))
        columns = {**{name: table[name] for name in table.column_names}, FAILED: reasons}
        columns.update((name, made[name]) for name in made.column_names)
        whole = pa.Table.from_arrays([columns[name] for name in schema.names], schema.names).cast(schema)
        yield from whole.combine_chunks().to_batches()


def outcomes(
    step: EachBatch, records: Sequence[Mapping[str, Any]], types: Mapping[str, str]
) -> list[tuple[dict[str, Any], str | None]]:
    """Call a step's function once for all records; return the new columns of each, and why it is rejected, if it is."""
    names = list(step.read_columns(types))
    own = [{name: record.get(name) for name in names} for record in records]
    given = pa.Table.from_pylist(own, schema=arrow_schema({name: types[name] for name in names}))
    made, reasons = called(step, given, types)
    return list(zip(made.to_pylist(), reasons.to_pylist(), strict=True))


def called(step: EachBatch, table: pa.Table, types: Mapping[str, str]) -> tuple[pa.Table, pa.Array]:
    """Return a table of a step's new columns for the records of a table, and the reason for each rejected record."""
    own = {name: types[name] for name in step.read_columns(types)}
    given, schema = table.select(list(own)).cast(arrow_schema(own)), arrow_schema(step.gives)
    parts, reasons = [schema.empty_table()], [pa.nulls(0, pa.string())]
    # The first one is next; halves are put back in their order.
    waiting = [(0, table.num_rows)] if table.num_rows else []
    while waiting:
        start, count = waiting.pop()
        try:
            made = _checked(step.function(given.slice(start, count)), step.gives, schema, count, given.column_names)
            reasons.append(pa.nulls(count, pa.string()))
        except Exception as error:
            if count > 1:
                waiting += [(start + count // 2, count - count // 2), (start, count // 2)]
                continue
            made = pa.Table.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
            reasons.append(pa.array([str(error) if isinstance(error, RecordError) else failure(error)]))
        parts.append(made)
    return pa.concat_tables(parts).combine_chunks(), pa.concat_arrays(reasons)


def _checked(given: Any, gives: Mapping[str, str], schema: pa.Schema, count: int, known: Sequence[str]) -> pa.Table:
    """Convert what a function returned to a table of the new columns. Raises `RecordError` with all faults."""
    columns = _columns(given)
    faults = [f"no column {name}" for name in gives if name not in columns]
    faults += [f"a column {name}" for name in columns if name not in gives and name not in known]
    if faults:
        raise RecordError(f"it gave {', '.join(map(str, faults))}: expected the columns {', '.join(gives)}")
    made = {}
    for name, type in gives.items():
        try:
            column = _array(columns[name])
        except (pa.ArrowException, ValueError, TypeError) as error:
            faults.append(f"it gave {name} = {columns[name]!r:.200}: expected {type} ({failure(error):.200})")
            continue
        if len(column) != count:
            faults.append(f"it gave {len(column)} rows in {name}: expected {count}, one for each record")
        elif not _converts(column.type, schema.field(name).type):
            faults.append(f"it gave {name} as {column.type}: expected {type}")
        else:
            try:
                made[name] = _converted(column, schema.field(name).type)
            except (pa.ArrowException, ValueError):
                faults.append(f"it gave {name} = {column[0].as_py()!r:.200}: expected {type}")
    if faults:
        raise RecordError("; ".join(faults))
    return pa.Table.from_pydict(made, schema=schema)


def _columns(given: Any) -> Mapping[str, Any]:
    """Return the columns of what a function returned: of a mapping, or of a table of any library."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    elif not isinstance(given, pa.Table):
        if type(given).__module__.startswith("pandas."):
            given = pa.Table.from_pandas(given, preserve_index=False)
        elif hasattr(given, "__arrow_c_stream__"):
            given = pa.table(given)
        else:
            raise RecordError(f"it gave {given!r:.200}: expected a mapping from names to arrays, or a table")
    return {name: given[place] for place, name in enumerate(given.column_names)}


def _array(given: Any) -> pa.Array:
    made = given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given)
    made = made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
    if pa.types.is_dictionary(made.type):
        made = made.dictionary_decode()
    made.validate(full=True)
    return made


_KINDS = (
    (pa.types.is_boolean, (pa.types.is_boolean,)),
    (pa.types.is_integer, (pa.types.is_integer, pa.types.is_floating)),
    (pa.types.is_floating, (pa.types.is_floating, pa.types.is_integer)),
    (pa.types.is_decimal, (pa.types.is_decimal, pa.types.is_integer)),
    (pa.types.is_string, (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
    (pa.types.is_large_string, (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
    (pa.types.is_timestamp, (pa.types.is_timestamp,)),
    (pa.types.is_date, (pa.types.is_date,)),
    (pa.types.is_binary, (pa.types.is_binary, pa.types.is_large_binary)),
    (pa.types.is_large_binary, (pa.types.is_binary, pa.types.is_large_binary)),
)
"""For each kind of a declared type, the kinds of arrays that are converted to it if every value fits exactly."""


def _converts(own: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_null(own) or own == target:
        return True
    if pa.types.is_nested(target):
        return bool(pa.types.is_nested(own))
    return any(is_target(target) and any(one(own) for one in owns) for is_target, owns in _KINDS)


def _converted(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert an array to a type. Raises `ArrowInvalid` or `ValueError` if a value does not fit."""
    if pa.types.is_decimal(target) and pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(38, 0))
    made = column.cast(target)
    if pa.types.is_float32(target) and pc.any(pc.and_(pc.is_inf(made), pc.invert(pc.is_inf(column)))).as_py():
        raise ValueError("a number is too large for a float")
    if pa.types.is_timestamp(target):
        ends = pc.min_max(made.cast(pa.int64())).as_py()
        if ends["min"] is not None and not BEGINNING <= ends["min"] <= ends["max"] <= END_OF_TIME:
            raise ValueError("an instant outside of the years 1 to 9999")
    return made
