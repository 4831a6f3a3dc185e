"""Add functions to DuckDB that call the code of custom combiners."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
from duckdb.func import FunctionNullHandling, PythonUDFType

from tailrace.engines.duckdb.database.dialect import column_type
from tailrace.engines.python.own_calls import over_columns, types_of
from tailrace.model.combiners.basic import Part
from tailrace.model.combiners.own import OwnCall, OwnPart, OwnUse


def add_own_functions(connection: duckdb.DuckDBPyConnection, parts: Iterable[Part]) -> list[str]:
    """Add the functions for the custom combiners of an accumulator to a database; return the functions' names.

    All connections to the database can call the functions. Functions that are there already stay.
    """
    calls = [OwnCall(part, use) for part in parts if isinstance(part, OwnPart) for use in OwnUse]
    for call in calls:
        given, returned = types_of(call)
        types = dict(zip(call.fields, (returned, "string"), strict=False))
        fields = ", ".join(f"{name} {column_type(type)}" for name, type in types.items())
        try:
            connection.create_function(
                call.name,
                over_columns(call),
                [column_type(one) for one in given],
                f"STRUCT({fields})",
                type=PythonUDFType.ARROW,
                null_handling=FunctionNullHandling.SPECIAL,
            )
        except duckdb.Error as error:
            if "already" not in str(error):
                raise
    return [call.name for call in calls]
