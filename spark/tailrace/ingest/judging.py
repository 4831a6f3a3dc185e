"""Build the SQL that checks whether a raw value fits its declared type without loss.

If the value does not fit, the SQL returns the reason. The text of a JSON record is in the column `_text`. A record is
parsed a second time only if the record is rejected, or if the first parsing does not show whether the record is valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.ingest.column_types import NANOS, column_type
from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.json_limits import DEEP, DEPTH, DIGITS, LONG, NAME
from tailrace.model.logs.log import Log
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


def loses_digits(number: str, text: str, before: str = "^", behind: str = "$") -> str:
    """Return the SQL that checks whether a double differs from the number from which it was read.

    There are two cases in which the double differs from the number. The first case is a whole number above 2^53,
    because doubles cannot represent all such numbers; such a number has at least 16 digits. The second case is a number
    so small that the nearest double is zero; such a number has an exponent of three digits, or 200 zeros. The SQL
    searches the text only if the absolute value of the double is at least 2^53 or is zero. `before` and `behind` are
    patterns for the text before and after the number.
    """
    whole = rf"{before}\s*[-+]?(?!0*{WHOLE}\s*{behind})0*[1-9][0-9]{{15,}}\s*{behind}"
    tiny = f"CONTAINS({text}, 'e-') OR CONTAINS({text}, 'E-') OR OCTET_LENGTH({text}) > 300"
    small = rf"{before}\s*[-+]?([0-9.]*[1-9][0-9.]*[eE]-0*[1-9][0-9]{{2}}|0*\.0{{200}}[0-9]*[1-9])"
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


def parser_options(log: Log) -> str:
    """Return the options for Spark's JSON parser: only strict JSON within the log's limits is accepted."""
    return _options(DEPTH, DIGITS, log.record_bytes)


def _options(depth: int, digits: int, length: int) -> str:
    return (
        f"MAP({PERMISSIVE}, 'allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false', "
        f"'maxNestingDepth', '{depth}', 'maxNumLen', '{digits}', 'maxStringLen', '{length}')"
    )


def json_value(name: str, type: str, term: str) -> str:
    """Return the SQL that yields a column's value from the value `term`, which Spark has read with `ColumnType.json`.

    The value is null if it does not have the declared type.
    """
    if type == "double":
        return double_value(name, term)
    if column_type(type).json == type:
        return term
    return value_of_text(type, exact_text(term) if decimal_parts(type) else term)


def json_misfit(log: Log, name: str, term: str) -> str | None:
    """Return the SQL that checks whether the value `term`, read by Spark, does not have the column's declared type.

    Returns None if Spark's parser itself marks each record with such a value.
    """
    type = log.columns[name]
    if type == "string":
        return no_string(log, name, term)
    if type in ("boolean", "int", "bigint"):
        return None
    there = f"{term} IS NOT NULL" + (f" AND NOT IS_VARIANT_NULL({term})" if decimal_parts(type) else "")
    return f"{there} AND {quoted(name)} IS NULL"


def exact_text(variant: str) -> str:
    """Return the SQL that yields the digits of a JSON number, or null for a string and for a number with an
    exponent.
    """
    return f"IF(SCHEMA_OF_VARIANT({variant}) IN ('DOUBLE', 'STRING'), NULL, TRY_CAST({variant} AS string))"


def double_value(name: str, number: str) -> str:
    """Return the SQL that yields a double column's value; null if the double differs from the number in the record's
    text.
    """
    return f"IF({loses_digits(number, '_text', _before(name), _BEHIND)}, NULL, {finite_or_null(number)})"


def _before(name: str) -> str:
    return rf'"{name}"\s*:'


def no_string(log: Log, name: str, term: str) -> str:
    """Return the SQL that checks whether the JSON text has a value of another type for a string column.

    Spark converts a value of any type to a string. So if the string could come from a value of another type, the record
    is parsed again.
    """
    looks = f"({term} < ':' OR STARTSWITH({term}, '{{') OR STARTSWITH({term}, '[') OR {term} IN ('true', 'false'))"
    parsed = f"FROM_JSON(_text, 'MAP<STRING, VARIANT>', {parser_options(log)})"
    again = f"SCHEMA_OF_VARIANT({parsed}[{literal(name)}]) <> 'STRING'"
    if log.unknown == "reject":
        # If unknown columns are rejected, a valid record contains no inner object. So it is sufficient to search the
        # text for the column's name and a quotation mark after it: the name can only refer to that column.
        quick = " OR ".join(f"CONTAINS(_text, {literal(start)})" for start in (f'"{name}":"', f'"{name}": "'))
        looks += f" AND NOT ({quick})"
    # Use IF instead of AND. If AND is used, and several conditions have a term in common, Spark computes the term for
    # every record, even if the term is not needed.
    return f"IF({looks}, {again}, false)"


def misfit_reasons(log: Log) -> str:
    """Return the SQL that yields a text about the columns whose values in `_text` do not have the declared types.

    The text contains the names and the values of these columns. The SQL is evaluated only for rejected records.
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
    # TRANSFORM is used so that Spark parses the text only once, and not once per column.
    parsed = f"FROM_JSON(_text, 'MAP<STRING, VARIANT>', {parser_options(log)})"
    return f"COALESCE(TRANSFORM(ARRAY({parsed}), _m -> {join_reasons(says)})[0], {no_object_reason(log)})"


def no_object_reason(log: Log) -> str:
    """Return the SQL that yields the reason why a text is not one JSON object: invalid JSON, or an exceeded limit."""
    named = f"""CASE WHEN _text RLIKE '[^"]{{{NAME + 1}}}' THEN {literal(_NAMED)} ELSE {_NO_OBJECT} END"""
    cases = (
        f"WHEN NOT STARTSWITH(_text, '{{') THEN {_NO_OBJECT}",
        f"WHEN {_unread(_NO_LIMIT, _NO_LIMIT)} THEN {named}",
        f"WHEN {_unread(DEPTH, _NO_LIMIT)} THEN {literal(DEEP)}",
        f"WHEN {_unread(_NO_LIMIT, DIGITS)} THEN {literal(LONG)}",
    )
    return f"CASE {' '.join(cases)} ELSE {_NO_OBJECT} END"


def _unread(depth: int, digits: int) -> str:
    """Return the SQL that checks whether parsing a text as an object fails with these limits on depth and number of
    digits.
    """
    return f"FROM_JSON(_text, '{MARK} string', {_options(depth, digits, _NO_LIMIT)}).{MARK} IS NOT NULL"


_NO_LIMIT = 2**31 - 1
_NO_OBJECT = literal("not one JSON object")
_NAMED = f"not one JSON object, or one with a name of more than {NAME} characters"
_BEHIND = "[,}]"
_DIGITS = r"\s*([-+]?[0-9][0-9.eE+-]*)"

# Spark's parser stops at the end of the object, so it does not check the rest of the text. If the only closing brace of
# a text is at its end, the text is one object. Any other text is parsed again as an element of two arrays. If the text
# is exactly one JSON value, each of these arrays has two elements.
_ARRAYS = ("'[1,' || _text || ']'", "'[' || _text || ',1]'")
_ALONE = " AND ".join(f"JSON_ARRAY_LENGTH({array}) <=> 2" for array in _ARRAYS)
_REST = "SUBSTRING(CAST(_text AS binary), 1, OCTET_LENGTH(_text) - 1)"
ONE_OBJECT = f"STARTSWITH(_text, '{{') AND (ENDSWITH(_text, '}}') AND NOT CONTAINS({_REST}, X'7D') OR ({_ALONE}))"
"""The SQL that checks whether a text contains exactly one object and nothing else, which Spark's parser does not
check.
"""

# Find an escape such as \ud83d without the other half of its surrogate pair, because Spark would convert this escape to
# a question mark.
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = literal(rf"(?<!\\)(?:\\\\)*+(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})")
HALF_A_PAIR = f"CONTAINS(_text, '\\\\u') AND _text RLIKE {_LONE}"
"""The SQL that checks whether a text contains only one half of a surrogate pair."""
