"""Build the SQL that checks whether a raw value of CSV or Parquet fits its declared type without loss.

If the value does not fit, the SQL returns the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.ingest.column_types import NANOS
from tailrace.model.base.types import decimal_parts
from tailrace.sql.terms import Sql, quoted


def value_of_text(type: str, text: str) -> str:
    """Return the SQL that converts a text to a value of this type; the value is null if the text is not valid."""
    parts = decimal_parts(type)
    if parts:
        # The pattern is needed because a cast would round a number with too many decimal places.
        exact = rf"^\s*[-+]?(?=\.?[0-9])[0-9]*(\.[0-9]{{0,{parts[1]}}}0*)?\s*$"
        return f"IF({text} RLIKE {literal(exact)}, TRY_CAST({text} AS {type}), NULL)"
    if type in ("timestamp", "date"):
        # Check the form of the text, too: a cast alone would also accept a time of day (as a time on the current day),
        # a year alone, and an instant as a date.
        whole = f"SUBSTRING({text}, 5, 1) = '-' AND OCTET_LENGTH({text}) {'= 10' if type == 'date' else '>= 8'}"
        return f"IF({whole}, TRY_CAST({text} AS {type}), NULL)"
    if type == "boolean":
        return f"CASE LOWER({text}) WHEN 'true' THEN true WHEN 'false' THEN false END"
    if type == "double":
        number = f"TRY_CAST({text} AS double)"
        return f"IF({text} RLIKE '[0-9.]\\\\s*$' AND NOT {loses_digits(number, text)}, {finite_or_null(number)}, NULL)"
    return text if type == "string" else f"TRY_CAST({text} AS {type})"


def finite_or_null(number: str) -> str:
    """Return the SQL that yields a double, or null if the double is NaN or if the number is too large for a double."""
    return f"IF(ABS({number}) < CAST('Infinity' AS double), {number}, NULL)"


def loses_digits(number: str, text: str) -> str:
    """Return the SQL that checks whether a double differs from the number from which it was read.

    There are two cases in which the double differs from the number. The first case is a whole number above 2^53,
    because doubles cannot represent all such numbers; such a number has at least 16 digits. The second case is a number
    so small that the nearest double is zero; such a number has an exponent of three digits, or 200 zeros. The SQL
    searches the text only if the absolute value of the double is at least 2^53 or is zero.
    """
    whole = rf"^\s*[-+]?(?!0*{WHOLE}\s*$)0*[1-9][0-9]{{15,}}\s*$"
    tiny = f"CONTAINS({text}, 'e-') OR CONTAINS({text}, 'E-') OR OCTET_LENGTH({text}) > 300"
    small = r"^\s*[-+]?([0-9.]*[1-9][0-9.]*[eE]-0*[1-9][0-9]{2}|0*\.0{200}[0-9]*[1-9])"
    return (
        f"CASE WHEN ABS({number}) >= {WHOLE}D THEN {text} RLIKE {literal(whole)} "
        f"WHEN {number} = 0D AND ({tiny}) THEN {text} RLIKE {literal(small)} ELSE false END"
    )


WHOLE = 2**53
"""The limit up to which a double can represent every whole number exactly."""


def misfit_reason(name: str, type: str, excerpt: str) -> str:
    """Return the SQL that yields the reason for rejecting a value that does not have its column's declared type."""
    return f"CONCAT({literal(f'{name} = ')}, LEFT({excerpt}, 100), {literal(f' is not a {type}')})"


def join_reasons(says: Sequence[str]) -> str:
    """Return the SQL that joins the reasons for several columns into one text; the text is null if there is no
    reason.
    """
    return f"NULLIF(CONCAT_WS('; ', {', '.join(says)}), '')"


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


MARK = "_not_as_declared"
"""The column in which Spark's parsers mark records that they could not read with the schema."""

PERMISSIVE = f"'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{MARK}'"
"""The options with which a parser marks a record that it could not read, and then continues with the next record."""
