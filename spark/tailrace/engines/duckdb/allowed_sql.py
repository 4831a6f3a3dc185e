"""Make sure that a user's query in DuckDB's SQL only reads: check the names in the query, then lock the database.

DuckDB itself parses the query, so the check and the execution see the same query. Everything that is not known to be
harmless is refused: a new DuckDB function is refused until `allowed_functions.txt` lists it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any

import duckdb

from tailrace.lake.read.query_views import QueryError, first_line, refusal, unknown_table

FUNCTIONS = frozenset(files(__package__).joinpath("allowed_functions.txt").read_text().split())
"""The functions that a query may call.

Each function computes its result from its arguments alone. None of these functions reads files or settings, or runs a
query.
"""

TABLE_FUNCTIONS = frozenset({"unnest", "range", "generate_series", "json_each", "json_tree", "repeat", "repeat_row"})
"""The table functions that a query may call. These table functions build rows from their arguments alone."""

_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"}
_RELATIONS = {
    "BASE_TABLE", "TABLE_FUNCTION", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "EMPTY", "PIVOT", "SHOW_REF",
}  # fmt: skip
_EXPRESSIONS = {
    "CONSTANT", "COLUMN_REF", "FUNCTION", "WINDOW", "CAST", "CASE", "COMPARISON", "CONJUNCTION", "OPERATOR", "STAR",
    "SUBQUERY", "BETWEEN", "LAMBDA", "LAMBDA_REF", "COLLATE", "POSITIONAL_REFERENCE", "TYPE",
}  # fmt: skip

_EXPLAIN = re.compile(r"\s*explain(?:\s+analyze\b|\s*\((?:\s|,|analyze\b|format\s+\w+)*\))*\s*(?=\S)", re.IGNORECASE)


def check(query: str, relations: Collection[str]) -> None:
    """Check that a query only reads `relations` and calls only allowed functions.

    Raises `QueryError` if the query is not a single SELECT or an EXPLAIN of a SELECT, or if the query reads other
    tables or calls other functions.
    """
    # DuckDB's parser opens files for some statements, so the query is parsed in a database that may open no files.
    with duckdb.connect(config={"enable_external_access": False, "lock_configuration": True}) as connection:
        nodes = list(_nodes(_parsed(connection, query)))
    known = {name.lower() for name in relations} | {name for name in _own_names(nodes) if name.isidentifier()}
    making_rows = {id(node["function"]) for node in nodes if node.get("type") == "TABLE_FUNCTION"}
    for node in nodes:
        _check(node, known, TABLE_FUNCTIONS if id(node) in making_rows else FUNCTIONS)


def _parsed(connection: duckdb.DuckDBPyConnection, query: str) -> Any:
    """Parse a query with DuckDB. If the query is an EXPLAIN statement, parse the query inside the statement."""
    try:
        kind = _kind(connection, query)
        explained = _EXPLAIN.match(query) if kind == "EXPLAIN" else None
        text = query if explained is None else query[explained.end() :]
        if explained is not None:
            kind = _kind(connection, text)
        found = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
        tree = json.loads(found[0]) if found else {}
    except duckdb.ParserException as error:
        raise QueryError(first_line(str(error))) from None
    except duckdb.Error as error:
        raise refusal(first_line(str(error))) from None
    except RecursionError:
        raise QueryError("the query is nested too deeply: write its inner queries behind WITH") from None
    if tree.get("error", True) or len(tree["statements"]) != 1:
        raise refusal(f"found a statement of the kind {kind}")
    return tree


def _kind(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise refusal(f"found {len(statements)} statements")
    return statements[0].type.name


def lock(connection: duckdb.DuckDBPyConnection, paths: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
    """Restrict a database to reading `paths` and the files in `folders`, and lock the database's settings."""
    connection.execute("SET allowed_paths = ?", [list(paths)])
    connection.execute("SET allowed_directories = ?", [[folder.rstrip("/") + "/" for folder in folders]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all JSON objects in a query's syntax tree, except those inside the values of constants."""
    stack = [tree]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            yield one
            stack += [value for key, value in one.items() if key != "value" or one.get("class") != "CONSTANT"]
        elif isinstance(one, list):
            stack += one


def _own_names(nodes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the names that a query defines in its WITH clauses, in lower case."""
    for node in nodes:
        for entry in (node.get("cte_map") or {}).get("map", ()):
            yield str(entry["key"]).lower()


def _check(node: Mapping[str, Any], known: Collection[str], functions: Collection[str]) -> None:
    kind, type = node.get("class"), node.get("type")
    if kind is not None:
        if kind not in _EXPRESSIONS:
            raise refusal(f"found a {str(kind).lower()}")
        if kind in ("FUNCTION", "WINDOW"):
            name = str(node["function_name"]).lower()
            if node["catalog"] or node["schema"].lower() not in ("", "main") or name not in functions:
                raise refusal(f"found the function {name}")
    elif "modifiers" in node:
        if type not in _NODES:
            raise refusal(f"found a query of the kind {type}")
    elif "sample" in node and "alias" in node:
        if type not in _RELATIONS:
            raise refusal(f"found a relation of the kind {type}")
        if type == "BASE_TABLE":
            name, schema = node["table_name"], node["schema_name"]
            if node["catalog_name"] or schema.lower() not in ("", "main") or name.lower() not in known:
                raise unknown_table([node["catalog_name"], schema, name])
