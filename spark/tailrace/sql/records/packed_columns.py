"""Columns that are packed into one, and lists of such that are unpacked, in Spark SQL.

The meaning of the steps is in `tailrace.model.definition.packed_columns`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.model.definition.packed_columns import Pack, Unpack
from tailrace.sql.terms import Sql, quoted


def packed(step: Pack, types: Mapping[str, str]) -> str:
    """Write a step's columns as one column, as a select-list item."""
    struct = f"NAMED_STRUCT({', '.join(f'{name!r}, {quoted(column)}' for name, column in step.fields.items())})"
    terms = {name: quoted(name) for name in types}
    term = struct if step.keep is None else f"IF({step.keep.holds(Sql(), terms, types)}, {struct}, NULL)"
    return f"{term} AS {quoted(step.name)}"


def unpacked(step: Unpack, types: Mapping[str, str]) -> str:
    """Write the list of the elements that are taken of a row's list; an empty one is null once, where that is asked."""
    taken = quoted(step.name) if step.first is None else f"SLICE({quoted(step.name)}, 1, {step.first})"
    made = taken
    if step.place is not None:
        # DuckDB takes a parameter that a column has the name of for the column: no column begins with an underscore.
        terms = [f"'{name}', _a.{quoted(name)}" for name in step.fields(types)]
        # The function's index `_i` counts from 0, the place from 1.
        terms.append(f"'{step.place}', CAST(_i + 1 AS bigint)")
        made = f"TRANSFORM({taken}, (_a, _i) -> NAMED_STRUCT({', '.join(terms)}))"
    return f"IF(SIZE({taken}) = 0, {nothing_unpacked(step, types)}, {made})" if step.outer else made


def nothing_unpacked(step: Unpack, types: Mapping[str, str]) -> str:
    """Write the list of one element that is null, from which all unpacked columns are null."""
    fields = (f"{quoted(name)}:{type}" for name, type in step.columns(types).items() if name not in types)
    return f"ARRAY(CAST(NULL AS struct<{','.join(fields)}>))"
