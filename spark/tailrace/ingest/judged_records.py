"""Build the rows of records that were read with a schema: valid records, and rejected ones with their reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.ingest.column_values import Misfits
from tailrace.ingest.plain_columns import as_numbers, fit_mask, schema_of
from tailrace.model.logs.json_records import time_fault
from tailrace.model.logs.log import ROUNDED, SIGN, Log


def judged_records(
    log: Log, columns: Mapping[str, pa.Array], places: pa.Table, misfits: Misfits,
    raw: Callable[[pa.Array], pa.ChunkedArray | pa.Array], sign: int | None = None,
) -> pa.Table:  # fmt: skip
    """Build the rows of records from their columns, and from the columns `_source`, `_offset` and `_arrival`.

    `misfits` are the reasons for rejecting records that are known already. `raw` returns the bytes of the records with
    the given indexes. `sign` is the sign of the records in a log of changes.
    """
    schema, rows = schema_of(log), len(places)
    made = {name: places[name] for name in ("_source", "_offset", "_arrival")}
    if log.arrival_time is not None:
        made["_arrival"] = columns[log.arrival_time]
    nothing = {name: pa.nulls(rows, schema.field(name).type) for name in ("_error", "_raw")}
    made = {
        ROUNDED: pa.nulls(rows, pa.int32()),
        **columns,
        **made,
        **nothing,
        SIGN: pa.repeat(pa.scalar(sign, pa.int32()), rows),
    }
    table = pa.table([made[name] for name in schema.names], schema=schema)
    fits = fit_mask(log, table)
    if not misfits and pc.all(fits, min_count=0).as_py():
        return table
    lacking = [place for place in np.flatnonzero(~fits.to_numpy()) if place not in misfits]
    said = misfits | {int(place): _time_fault(log, table, int(place)) for place in lacking}
    rejected = pa.array(sorted(said), pa.int64())
    given = raw(rejected)
    bytes = given.combine_chunks() if isinstance(given, pa.ChunkedArray) else given
    order = pc.index_in(pa.arange(0, rows), value_set=rejected)
    errors = pa.array([said[place.as_py()] for place in rejected], pa.string()).take(order)
    # A rejected record has no values, as some of its values may be none that tables can store.
    kept = pc.if_else(order.is_valid(), pa.scalar(None, pa.int64()), pa.arange(0, rows))
    values = {name: column.take(kept) for name, column in columns.items()}
    made = {**made, **values, "_error": errors, "_raw": bytes.take(order)}
    return pa.table([made[name] for name in schema.names], schema=schema)


def _time_fault(log: Log, table: pa.Table, place: int) -> str:
    """Return the reason why a record does not fit the log although each of its values has the declared type."""
    row = table.slice(place, 1)
    values = {name: as_numbers(row[name]).to_pylist()[0] for name in log.columns}
    reason = time_fault(log, values, row["_arrival"].cast(pa.int64()).to_pylist()[0])
    assert reason is not None, "a record that fits lacks nothing"
    return reason
