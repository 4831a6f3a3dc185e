"""Write the SQL that judges a text, `_text`: whether it is one JSON object with the declared types, and if not, why.

Only what is rejected, or looks odd, is parsed a second time.
"""

from __future__ import annotations

from tailrace.ingest.judging.value_terms import finite, is_no, joined, literal, lost, of_text
from tailrace.model.base.types import decimal_parts
from tailrace.model.logs.json_limits import DEEP, DEPTH, DIGITS, LONG, NAME
from tailrace.model.logs.log import Log

MARK = "_not_as_declared"
"""The column in which Spark's parsers put a record that they could not read by the schema."""

PERMISSIVE = f"'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{MARK}'"
"""The options with which a parser says that it could not read a record, and goes on."""


def strict(log: Log) -> str:
    """Write the options of Spark's JSON parser: nothing that is not JSON, and what a log's limits leave."""
    return _options(DEPTH, DIGITS, log.record_bytes)


def _options(depth: int, digits: int, length: int) -> str:
    return (
        f"MAP({PERMISSIVE}, 'allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false', "
        f"'maxNestingDepth', '{depth}', 'maxNumLen', '{digits}', 'maxStringLen', '{length}')"
    )


def json_type(type: str) -> str:
    """Return the type that Spark reads JSON as: its own reading of instants, dates and decimals is not exact."""
    if decimal_parts(type):
        return "variant"
    return "string" if type in ("timestamp", "date") else type


def exact_text(variant: str) -> str:
    """Write the SQL of a JSON number's digits; null for a string, and with an exponent, as it became a double."""
    return f"IF(SCHEMA_OF_VARIANT({variant}) IN ('DOUBLE', 'STRING'), NULL, TRY_CAST({variant} AS string))"


def double(name: str, number: str) -> str:
    """Write the SQL of the double that a column has, null where it is not the number that was written."""
    return f"IF({lost(number, '_text', _before(name), _BEHIND)}, NULL, {finite(number)})"


def _before(name: str) -> str:
    return rf'"{name}"\s*:'


def no_string(log: Log, name: str, term: str) -> str:
    """Write the SQL that tells whether a column was not a string.

    Spark makes a string of any value, so a string that looks like another value is parsed again.
    """
    looks = f"({term} < ':' OR STARTSWITH({term}, '{{') OR STARTSWITH({term}, '[') OR {term} IN ('true', 'false'))"
    again = f"SCHEMA_OF_VARIANT(FROM_JSON(_text, 'MAP<STRING, VARIANT>', {strict(log)})[{literal(name)}]) <> 'STRING'"
    if log.unknown == "reject":
        # Then a record that fits has no object in it, so the name of a column stands for that column only.
        quick = " OR ".join(f"CONTAINS(_text, {literal(start)})" for start in (f'"{name}":"', f'"{name}": "'))
        looks += f" AND NOT ({quick})"
    # IF and not AND: Spark computes a term that stands in several conditions beforehand, for every record.
    return f"IF({looks}, {again}, false)"


def misfits(log: Log) -> str:
    """Write the SQL that says which columns of `_text` are not as declared, and what they are instead.

    It runs for rejected records alone.
    """
    says = []
    for name, type in log.columns.items():
        value = f"_m[{literal(name)}]"
        kind = f"SCHEMA_OF_VARIANT({value})"
        if decimal_parts(type):
            fits = f"{of_text(type, exact_text(value))} IS NOT NULL"
        elif type in ("timestamp", "date"):
            text = f"TRY_CAST({value} AS string)"
            fits = f"{kind} = 'STRING' AND {of_text(type, text)} IS NOT NULL"
        elif type == "double":
            number = double(name, f"TRY_CAST({value} AS double)")
            fits = f"{kind} RLIKE '^(BIGINT|DECIMAL|DOUBLE)' AND {number} IS NOT NULL"
        elif type == "int":
            fits = f"{kind} = 'BIGINT' AND TRY_CAST({value} AS int) IS NOT NULL"
        else:
            fits = f"{kind} = '{type.upper()}'"
        digits = f"NULLIF(REGEXP_EXTRACT(_text, {literal(_before(name) + _DIGITS)}, 1), '')"
        found = f"COALESCE({digits}, GET_JSON_OBJECT(_text, {literal(f'$.{name}')}))"
        excerpt = f"IF({kind} = 'STRING', TO_JSON({value}), {found})"
        says.append(f"IF({kind} <> 'VOID' AND NOT ({fits}), {is_no(name, type, excerpt)}, NULL)")
    # The transform is there to parse once for all columns.
    parsed = f"FROM_JSON(_text, 'MAP<STRING, VARIANT>', {strict(log)})"
    return f"COALESCE(TRANSFORM(ARRAY({parsed}), _m -> {joined(says)})[0], {no_object(log)})"


def no_object(log: Log) -> str:
    """Write the SQL that says why a text is not read as one object: it is none, or beyond a limit."""
    named = f"""CASE WHEN _text RLIKE '[^"]{{{NAME + 1}}}' THEN {literal(_NAMED)} ELSE {_NO_OBJECT} END"""
    cases = (
        f"WHEN NOT STARTSWITH(_text, '{{') THEN {_NO_OBJECT}",
        f"WHEN {_unread(_NO_LIMIT, _NO_LIMIT)} THEN {named}",
        f"WHEN {_unread(DEPTH, _NO_LIMIT)} THEN {literal(DEEP)}",
        f"WHEN {_unread(_NO_LIMIT, DIGITS)} THEN {literal(LONG)}",
    )
    return f"CASE {' '.join(cases)} ELSE {_NO_OBJECT} END"


def _unread(depth: int, digits: int) -> str:
    """Write the SQL that tells whether a text is not read as an object with these limits."""
    return f"FROM_JSON(_text, '{MARK} string', {_options(depth, digits, _NO_LIMIT)}).{MARK} IS NOT NULL"


_NO_LIMIT = 2**31 - 1
_NO_OBJECT = literal("not one JSON object")
_NAMED = f"not one JSON object, or one with a name of more than {NAME} characters"
_BEHIND = "[,}]"
_DIGITS = r"\s*([-+]?[0-9][0-9.eE+-]*)"

# Spark's parser stops at the end of the object. Nothing follows where the only brace comes last; else two more tell.
_ARRAYS = ("'[1,' || _text || ']'", "'[' || _text || ',1]'")
_ALONE = " AND ".join(f"JSON_ARRAY_LENGTH({array}) <=> 2" for array in _ARRAYS)
_REST = "SUBSTRING(CAST(_text AS binary), 1, OCTET_LENGTH(_text) - 1)"
ONE_OBJECT = f"STARTSWITH(_text, '{{') AND (ENDSWITH(_text, '}}') AND NOT CONTAINS({_REST}, X'7D') OR ({_ALONE}))"
"""Tells whether a text is one object, as far as its parser does not."""

# An escape such as \ud83d without its other half; Spark would make a question mark of it.
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = literal(rf"(?<!\\)(?:\\\\)*+(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})")
HALF_A_PAIR = f"CONTAINS(_text, '\\\\u') AND _text RLIKE {_LONE}"
"""Tells whether a text has half of a surrogate pair."""
