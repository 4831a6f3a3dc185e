"""Build the SQL that judges raw values: whether each value has its declared type without any loss, and if not, why.

A JSON record is judged by its text, which is in the column `_text`. Only a rejected or suspicious record is parsed a
second time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.json_limits import DEEP, DEPTH, DIGITS, LONG, NAME
from tailrace.model.logs.log import Log
from tailrace.sql.terms import Sql, quoted


def value_of_text(type: str, text: str) -> str:
    """Return the SQL that reads a text as a value of a type, which is null if the text is not valid for the type."""
    parts = decimal_parts(type)
    if parts:
        # A cast would round a number that has too many decimal places.
        exact = rf"^\s*[-+]?(?=\.?[0-9])[0-9]*(\.[0-9]{{0,{parts[1]}}}0*)?\s*$"
        return f"IF({text} RLIKE {literal(exact)}, TRY_CAST({text} AS {type}), NULL)"
    if type in ("timestamp", "date"):
        # A cast would also accept a time of day (on the current day) or a year alone and, as a date, an instant.
        whole = f"SUBSTRING({text}, 5, 1) = '-' AND OCTET_LENGTH({text}) {'= 10' if type == 'date' else '>= 8'}"
        return f"IF({whole}, TRY_CAST({text} AS {type}), NULL)"
    if type == "boolean":
        return f"CASE LOWER({text}) WHEN 'true' THEN true WHEN 'false' THEN false END"
    if type == "double":
        number = f"TRY_CAST({text} AS double)"
        return f"IF({text} RLIKE '[0-9.]\\\\s*$' AND NOT {loses_digits(number, text)}, {finite_or_null(number)}, NULL)"
    return text if type == "string" else f"TRY_CAST({text} AS {type})"


def finite_or_null(number: str) -> str:
    """Return the SQL of a double, which is null for NaN and for a number that is too large for a double."""
    return f"IF(ABS({number}) < CAST('Infinity' AS double), {number}, NULL)"


def loses_digits(number: str, text: str, before: str = "^", behind: str = "$") -> str:
    """Return the SQL that checks whether a double differs from the number in its text.

    There are two such cases. The first case is a whole number beyond 2^53, where not every whole number has a double;
    such a number has at least 16 digits. The second case is a number so small that the nearest double is zero; such a
    number has an exponent of three digits, or 200 zeros. The SQL searches the text only in these two cases. `before`
    and `behind` are patterns for the text around the number.
    """
    whole = rf"{before}\s*[-+]?(?!0*{WHOLE}\s*{behind})0*[1-9][0-9]{{15,}}\s*{behind}"
    tiny = f"CONTAINS({text}, 'e-') OR CONTAINS({text}, 'E-') OR OCTET_LENGTH({text}) > 300"
    small = rf"{before}\s*[-+]?([0-9.]*[1-9][0-9.]*[eE]-0*[1-9][0-9]{{2}}|0*\.0{{200}}[0-9]*[1-9])"
    return (
        f"CASE WHEN ABS({number}) >= {WHOLE}D THEN {text} RLIKE {literal(whole)} "
        f"WHEN {number} = 0D AND ({tiny}) THEN {text} RLIKE {literal(small)} ELSE false END"
    )


WHOLE = 2**53
"""Every whole number up to this limit is exactly representable as a double."""


def misfit_reason(name: str, type: str, excerpt: str) -> str:
    """Return the SQL of the reason that a column's value is not of its declared type."""
    return f"CONCAT({literal(f'{name} = ')}, LEFT({excerpt}, 100), {literal(f' is not a {type}')})"


def join_reasons(says: Sequence[str]) -> str:
    """Return the SQL that joins the reasons of several columns; the result is null if there is no reason."""
    return f"NULLIF(CONCAT_WS('; ', {', '.join(says)}), '')"


def literal(value: str) -> str:
    """Return a text as an SQL literal."""
    return str(Sql().literal(value, "string"))


NANOS, MILLIS = "timestamp in nanoseconds", "timestamp in milliseconds"
"""The names of two types of Parquet columns. Spark cannot read instants of the first type, and cannot read all instants
of the second type.
"""


def as_json(types: Mapping[str, str], instead: Mapping[str, str] | None = None) -> str:
    """Return the SQL that writes a row as the bytes of a JSON object with these columns.

    `instead` has replacement SQL for some columns. Instants are written with microseconds. Bytes, and texts that are
    not UTF-8, are written in base64.
    """
    given = {name: _exact(quoted(name), type) for name, type in types.items()} | dict(instead or {})
    fields = ", ".join(f"{value} AS {quoted(name)}" for name, value in given.items())
    return f"CAST(TO_JSON(STRUCT({fields}), {_FORMATS}) AS binary)"


def _exact(column: str, type: str) -> str:
    if type != "string":
        return column
    return f"IF(IS_VALID_UTF8({column}), {column}, CONCAT('base64:', BASE64(CAST({column} AS binary))))"


def exact_instant(number: str, type: str) -> str:
    """Return the SQL that writes an instant as text with all of its digits, from a number in the unit of `type`."""
    if type == NANOS:
        micros = f"DATE_FORMAT({from_nanos(number)}, '{_TO_MICROS}')"
        return f"CONCAT({micros}, LPAD(CAST(PMOD({number}, 1000L) AS string), 3, '0'), 'Z')"
    at = from_millis(number)
    fits = f"UNIX_MICROS({at}) = TRY_MULTIPLY({number}, 1000L)"
    told = f"DATE_FORMAT({at}, '{_TO_MICROS}') || 'Z'"
    return f"IF({fits}, {told}, CAST({number} AS string) || ' milliseconds since 1970')"


def from_nanos(number: str) -> str:
    """Return the SQL of an instant from nanoseconds since 1970, rounded down to microseconds."""
    # Round down, as everywhere else; a division would round towards zero.
    return f"TIMESTAMP_MICROS({number} DIV 1000L - IF({number} < 0 AND {number} % 1000L <> 0, 1L, 0L))"


def from_millis(number: str) -> str:
    """Return the SQL of an instant from milliseconds since 1970, limited to the range of microseconds."""
    return f"TIMESTAMP_MICROS(GREATEST(LEAST({number}, {2**63 // 1000}L), {-(2**63 // 1000)}L) * 1000L)"


_TO_MICROS = "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS"
_FORMATS = f"MAP('timestampFormat', '{_TO_MICROS}XXX', 'timestampNTZFormat', '{_TO_MICROS}')"


MARK = "_not_as_declared"
"""The column that marks records which Spark's parsers could not read with the schema."""

PERMISSIVE = f"'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{MARK}'"
"""The options with which a parser marks a record that it could not read, and then continues."""


def parser_options(log: Log) -> str:
    """Return the options for Spark's JSON parser: strict JSON only, within the log's limits."""
    return _options(DEPTH, DIGITS, log.record_bytes)


def _options(depth: int, digits: int, length: int) -> str:
    return (
        f"MAP({PERMISSIVE}, 'allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false', "
        f"'maxNestingDepth', '{depth}', 'maxNumLen', '{digits}', 'maxStringLen', '{length}')"
    )


def json_type(type: str) -> str:
    """Return the type with which Spark reads a JSON value. Spark does not read instants, dates and decimals exactly."""
    if decimal_parts(type):
        return "variant"
    return "string" if type in ("timestamp", "date") else type


def exact_text(variant: str) -> str:
    """Return the SQL of a JSON number's digits; null for a string and for a double (a number with an exponent)."""
    return f"IF(SCHEMA_OF_VARIANT({variant}) IN ('DOUBLE', 'STRING'), NULL, TRY_CAST({variant} AS string))"


def double_value(name: str, number: str) -> str:
    """Return the SQL of a column's double, which is null if it differs from the number in the text."""
    return f"IF({loses_digits(number, '_text', _before(name), _BEHIND)}, NULL, {finite_or_null(number)})"


def _before(name: str) -> str:
    return rf'"{name}"\s*:'


def no_string(log: Log, name: str, term: str) -> str:
    """Return the SQL that checks whether a column's value in JSON was something other than a string.

    Spark converts any value to a string. So if a string looks like another type of value, its record is parsed again.
    """
    looks = f"({term} < ':' OR STARTSWITH({term}, '{{') OR STARTSWITH({term}, '[') OR {term} IN ('true', 'false'))"
    parsed = f"FROM_JSON(_text, 'MAP<STRING, VARIANT>', {parser_options(log)})"
    again = f"SCHEMA_OF_VARIANT({parsed}[{literal(name)}]) <> 'STRING'"
    if log.unknown == "reject":
        # If unknown columns are rejected, a fitting record contains no inner object, so the name of a column can only
        # refer to that column.
        quick = " OR ".join(f"CONTAINS(_text, {literal(start)})" for start in (f'"{name}":"', f'"{name}": "'))
        looks += f" AND NOT ({quick})"
    # IF is used instead of AND, because Spark would compute in advance, for every record, a term that several
    # conditions share.
    return f"IF({looks}, {again}, false)"


def misfit_reasons(log: Log) -> str:
    """Return the SQL that lists the columns of `_text` that are not as declared, with their values.

    The SQL runs only for rejected records.
    """
    says = []
    for name, type in log.columns.items():
        value = f"_m[{literal(name)}]"
        kind = f"SCHEMA_OF_VARIANT({value})"
        if decimal_parts(type):
            fits = f"{value_of_text(type, exact_text(value))} IS NOT NULL"
        elif type in ("timestamp", "date"):
            text = f"TRY_CAST({value} AS string)"
            fits = f"{kind} = 'STRING' AND {value_of_text(type, text)} IS NOT NULL"
        elif type == "double":
            number = double_value(name, f"TRY_CAST({value} AS double)")
            fits = f"{kind} RLIKE '^(BIGINT|DECIMAL|DOUBLE)' AND {number} IS NOT NULL"
        elif type == "int":
            fits = f"{kind} = 'BIGINT' AND TRY_CAST({value} AS int) IS NOT NULL"
        else:
            fits = f"{kind} = '{type.upper()}'"
        digits = f"NULLIF(REGEXP_EXTRACT(_text, {literal(_before(name) + _DIGITS)}, 1), '')"
        found = f"COALESCE({digits}, GET_JSON_OBJECT(_text, {literal(f'$.{name}')}))"
        excerpt = f"IF({kind} = 'STRING', TO_JSON({value}), {found})"
        says.append(f"IF({kind} <> 'VOID' AND NOT ({fits}), {misfit_reason(name, type, excerpt)}, NULL)")
    # The transform makes Spark parse the text only once for all columns.
    parsed = f"FROM_JSON(_text, 'MAP<STRING, VARIANT>', {parser_options(log)})"
    return f"COALESCE(TRANSFORM(ARRAY({parsed}), _m -> {join_reasons(says)})[0], {no_object_reason(log)})"


def no_object_reason(log: Log) -> str:
    """Return the SQL of the reason why a text is not one object: it is not JSON, or it exceeds a limit."""
    named = f"""CASE WHEN _text RLIKE '[^"]{{{NAME + 1}}}' THEN {literal(_NAMED)} ELSE {_NO_OBJECT} END"""
    cases = (
        f"WHEN NOT STARTSWITH(_text, '{{') THEN {_NO_OBJECT}",
        f"WHEN {_unread(_NO_LIMIT, _NO_LIMIT)} THEN {named}",
        f"WHEN {_unread(DEPTH, _NO_LIMIT)} THEN {literal(DEEP)}",
        f"WHEN {_unread(_NO_LIMIT, DIGITS)} THEN {literal(LONG)}",
    )
    return f"CASE {' '.join(cases)} ELSE {_NO_OBJECT} END"


def _unread(depth: int, digits: int) -> str:
    """Return the SQL that checks whether a text cannot be read as an object within these limits."""
    return f"FROM_JSON(_text, '{MARK} string', {_options(depth, digits, _NO_LIMIT)}).{MARK} IS NOT NULL"


_NO_LIMIT = 2**31 - 1
_NO_OBJECT = literal("not one JSON object")
_NAMED = f"not one JSON object, or one with a name of more than {NAME} characters"
_BEHIND = "[,}]"
_DIGITS = r"\s*([-+]?[0-9][0-9.eE+-]*)"

# Spark's parser stops at the end of the object, so the rest of the text needs a separate check. If the only closing
# brace of a text is at its end, the text is one object. Any other text is parsed again, as an element of two arrays.
_ARRAYS = ("'[1,' || _text || ']'", "'[' || _text || ',1]'")
_ALONE = " AND ".join(f"JSON_ARRAY_LENGTH({array}) <=> 2" for array in _ARRAYS)
_REST = "SUBSTRING(CAST(_text AS binary), 1, OCTET_LENGTH(_text) - 1)"
ONE_OBJECT = f"STARTSWITH(_text, '{{') AND (ENDSWITH(_text, '}}') AND NOT CONTAINS({_REST}, X'7D') OR ({_ALONE}))"
"""The SQL that checks whether a text contains exactly one object and nothing else, which the parser does not check."""

# An escape such as \ud83d is half of a surrogate pair. Without its other half, Spark would convert the escape to a
# question mark.
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = literal(rf"(?<!\\)(?:\\\\)*+(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})")
HALF_A_PAIR = f"CONTAINS(_text, '\\\\u') AND _text RLIKE {_LONE}"
"""The SQL that checks whether a text contains half of a surrogate pair."""
