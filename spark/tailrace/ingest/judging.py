"""Build the SQL that checks whether a raw value of Parquet fits its declared type without loss.

If the value does not fit, the SQL returns the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.ingest.column_types import NANOS
from tailrace.sql.terms import Sql, quoted


def literal(value: str) -> str:
    """Return a Python string as an SQL literal."""
    return str(Sql().literal(value, "string"))


def as_json(types: Mapping[str, str], instead: Mapping[str, str] | None = None) -> str:
    """Return the SQL that encodes a row as the bytes of a JSON object with these columns.

    `instead` maps the names of some columns to SQL expressions that replace the columns. Instants are written with
    microseconds. Bytes, and texts that are not valid UTF-8, are written in base64.
    """
    given = {name: _exact(quoted(name), type) for name, type in types.items()} | dict(instead or {})
    fields = ", ".join(f"{value} AS {quoted(name)}" for name, value in given.items())
    return f"CAST(TO_JSON(STRUCT({fields}), {_FORMATS}) AS binary)"


def _exact(column: str, type: str) -> str:
    if type != "string":
        return column
    return f"IF(IS_VALID_UTF8({column}), {column}, CONCAT('base64:', BASE64(CAST({column} AS binary))))"


def exact_instant(number: str, type: str) -> str:
    """Return the SQL that formats an instant as text with all of its digits.

    `number` is the SQL of the instant as a number, in the unit of `type`.
    """
    if type == NANOS:
        micros = f"DATE_FORMAT({from_nanos(number)}, '{_TO_MICROS}')"
        return f"CONCAT({micros}, LPAD(CAST(PMOD({number}, 1000L) AS string), 3, '0'), 'Z')"
    at = from_millis(number)
    fits = f"UNIX_MICROS({at}) = TRY_MULTIPLY({number}, 1000L)"
    told = f"DATE_FORMAT({at}, '{_TO_MICROS}') || 'Z'"
    return f"IF({fits}, {told}, CAST({number} AS string) || ' milliseconds since 1970')"


def from_nanos(number: str) -> str:
    """Return the SQL that converts nanoseconds since 1970 to an instant, rounded down to microseconds."""
    # Round nanoseconds down to microseconds, as everywhere in Tailrace. A division alone would round towards zero.
    return f"TIMESTAMP_MICROS({number} DIV 1000L - IF({number} < 0 AND {number} % 1000L <> 0, 1L, 0L))"


def from_millis(number: str) -> str:
    """Return the SQL that converts milliseconds since 1970 to an instant.

    A number outside the range of instants in microseconds is replaced by the nearest end of the range.
    """
    return f"TIMESTAMP_MICROS(GREATEST(LEAST({number}, {2**63 // 1000}L), {-(2**63 // 1000)}L) * 1000L)"


_TO_MICROS = "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS"
_FORMATS = f"MAP('timestampFormat', '{_TO_MICROS}XXX', 'timestampNTZFormat', '{_TO_MICROS}')"
