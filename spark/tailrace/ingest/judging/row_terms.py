"""Write the SQL of a row of Parquet as JSON that has all of it, and of instants that Spark reads as numbers."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.sql.terms import quoted

NANOS, MILLIS = "timestamp in nanoseconds", "timestamp in milliseconds"
"""The names of the types of Parquet columns of instants that Spark does not read as such, or not all of them."""


def as_json(types: Mapping[str, str], instead: Mapping[str, str] | None = None) -> str:
    """Write the SQL of a row as the bytes of a JSON object, with the columns of these types.

    `instead` has the SQL of what stands for some of the columns. Instants have microseconds; bytes, and a text that is
    no UTF-8, are in base64.
    """
    given = {name: _exact(quoted(name), type) for name, type in types.items()} | dict(instead or {})
    fields = ", ".join(f"{value} AS {quoted(name)}" for name, value in given.items())
    return f"CAST(TO_JSON(STRUCT({fields}), {_FORMATS}) AS binary)"


def _exact(column: str, type: str) -> str:
    if type != "string":
        return column
    return f"IF(IS_VALID_UTF8({column}), {column}, CONCAT('base64:', BASE64(CAST({column} AS binary))))"


def exact_instant(number: str, type: str) -> str:
    """Write the SQL of the text of an instant that was read as a number of a type's unit, with all its digits."""
    if type == NANOS:
        micros = f"DATE_FORMAT({from_nanos(number)}, '{_TO_MICROS}')"
        return f"CONCAT({micros}, LPAD(CAST(PMOD({number}, 1000L) AS string), 3, '0'), 'Z')"
    at = from_millis(number)
    fits = f"UNIX_MICROS({at}) = TRY_MULTIPLY({number}, 1000L)"
    told = f"DATE_FORMAT({at}, '{_TO_MICROS}') || 'Z'"
    return f"IF({fits}, {told}, CAST({number} AS string) || ' milliseconds since 1970')"


def from_nanos(number: str) -> str:
    """Write the SQL of an instant of nanoseconds since 1970, cut to microseconds."""
    # Towards the past, as everywhere; a division goes towards zero.
    return f"TIMESTAMP_MICROS({number} DIV 1000L - IF({number} < 0 AND {number} % 1000L <> 0, 1L, 0L))"


def from_millis(number: str) -> str:
    """Write the SQL of an instant; of one that has no number of microseconds, the last or first that has one."""
    return f"TIMESTAMP_MICROS(GREATEST(LEAST({number}, {2**63 // 1000}L), {-(2**63 // 1000)}L) * 1000L)"


_TO_MICROS = "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS"
_FORMATS = f"MAP('timestampFormat', '{_TO_MICROS}XXX', 'timestampNTZFormat', '{_TO_MICROS}')"
