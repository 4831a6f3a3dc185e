"""Write a look into a JSON text in DuckDB's dialect.

DuckDB's own functions for JSON read most texts as the model does. The macros in `json_looks.sql` call them for these
texts only, and call the model (`engines.python.json_function`) for the others.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType
from sqlglot import exp

from tailrace.engines.python.json_function import texts_inside
from tailrace.model.base.json_places import steps_of
from tailrace.model.base.types import decimal_parts
from tailrace.sql.terms import INSIDE

_PLAIN_NAME = re.compile(r"[\w .-]+")
"""The names that have one meaning in a path of DuckDB. The model looks for other names."""

_TEXT = files(__package__).joinpath("json_looks.sql").read_text()

_MACROS = {
    "string": "_look_string", "boolean": "_look_boolean", "double": "_look_double", "date": "_look_date",
    "timestamp": "_look_timestamp", "json": "_look_json",
}  # fmt: skip

_BITS = {"int": 31, "bigint": 63}


def look(node: exp.Anonymous) -> exp.Anonymous:
    """Return DuckDB's expression for a call of `sql.terms.INSIDE`."""
    text, place, target = node.expressions
    made, type = path_in_duckdb(place.name), target.name
    if made is None:
        return node
    more: list[exp.Expression] = []
    if (parts := decimal_parts(type)) is not None:
        whole, scale = parts[0] - parts[1], parts[1]
        fraction = f"[0-9]{{1,{scale}}}" if scale else "0"
        name, more = "_look_decimal", [exp.Literal.string(rf"-?[0-9]{{1,{whole}}}(?:\.{fraction})?")]
        if not whole:
            return node
    elif type in _BITS:
        name, more = "_look_whole", [exp.Literal.number(one) for one in (-(2 ** _BITS[type]), 2 ** _BITS[type] - 1)]
    else:
        name = _MACROS[type]
    return exp.Anonymous(this=name, expressions=[text, exp.Literal.string(made), place, target, *more])


def add_looks(connection: duckdb.DuckDBPyConnection) -> None:
    """Add the function `sql.terms.INSIDE`, and the macros of `json_looks.sql`, to a database."""
    connection.create_function(
        INSIDE,
        _inside,
        ["VARCHAR"] * 3,
        "VARCHAR",
        type=PythonUDFType.ARROW,
        null_handling=FunctionNullHandling.SPECIAL,
    )
    connection.execute(_TEXT)


def _inside(texts: pa.ChunkedArray, places: pa.ChunkedArray, types: pa.ChunkedArray) -> pa.Array:
    return texts_inside(
        *(one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in (texts, places, types))
    )


FEW = 200
"""The number of texts that Python reads sooner than DuckDB begins."""


def looks(texts: pa.Array, places: pa.Array, types: pa.Array) -> pa.Array:
    """Return what `texts_inside` returns, by way of a database of this process: for Spark's Python workers."""
    if len(texts) < FEW:
        return texts_inside(texts, places, types)
    named = (exp.Literal.string(one[0].as_py()) for one in (places, types))
    call = look(exp.Anonymous(this=INSIDE, expressions=[exp.column("t"), *named]))
    database = _database()
    database.register("_texts", pa.table({"t": texts}))
    made = database.execute(f"SELECT {call.sql(dialect='duckdb')} AS made FROM _texts").to_arrow_table()
    database.unregister("_texts")
    return made["made"].cast(pa.string()).combine_chunks()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Return the database of this process for `looks`. A worker process has one thread for Python."""
    database = duckdb.connect(":memory:", config={"threads": 1, "autoload_known_extensions": False})
    add_looks(database)
    return database


def path_in_duckdb(place: str) -> str | None:
    """Return a place as a path of DuckDB; None if it has a name that might mean something else there.

    >>> path_in_duckdb("user.`a.b`[0].tier"), path_in_duckdb("`*`"), path_in_duckdb("[1]")
    ('$."user"."a.b"[0]."tier"', None, '$[1]')
    """
    steps = steps_of(place) or ()
    if not all(isinstance(one, int) or _PLAIN_NAME.fullmatch(one) for one in steps):
        return None
    return "$" + "".join(f"[{one}]" if isinstance(one, int) else f'."{one}"' for one in steps)
