"""Choose how a data file stores each column: as indexes into a dictionary, or as differences of adjacent values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

FEW = 10_000
"""The number of rows up to which the writer's defaults are as good."""

_SAMPLE = 8_192
"""The number of rows in which distinct values are counted."""


def encodings(rows: pa.Table) -> dict[str, Any]:
    """Return the options of pyarrow's Parquet writer for the columns of some rows; empty if the defaults are as good.

    Numbers and instants that seldom repeat, such as positions and event times, are stored as differences. pyarrow's
    default is to collect a dictionary of such values, and to store them plainly once the dictionary is full: writing
    takes two thirds more time, reading more, and the files are half as large again. DuckDB, Spark and pyiceberg read
    differences.

    >>> rows = pa.table({"n": list(range(20_000)), "one": [1] * 20_000, "text": ["a"] * 20_000})
    >>> encodings(rows)
    {'use_dictionary': ['one', 'text'], 'column_encoding': {'n': 'DELTA_BINARY_PACKED'}}
    >>> encodings(rows.slice(0, 10))
    {}
    """
    # The options name the parts of nested columns by paths in the file, which are unknown before it is written.
    if rows.num_rows <= FEW or any(map(pa.types.is_nested, rows.schema.types)):
        return {}
    seldom = [
        name for name in rows.column_names if _has_differences(rows.schema.field(name).type) and _varies(rows[name])
    ]
    if not seldom:
        return {}
    return {
        "use_dictionary": [name for name in rows.column_names if name not in seldom],
        "column_encoding": dict.fromkeys(seldom, "DELTA_BINARY_PACKED"),
    }


def _has_differences(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_timestamp(type) or pa.types.is_date(type))


def _varies(values: pa.ChunkedArray) -> bool:
    """Return True if most values occur once."""
    sample = values.slice(0, _SAMPLE)
    return 2 * int(pc.count_distinct(sample).as_py()) > len(sample)
