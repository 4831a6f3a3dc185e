"""Check that a user's Spark SQL query only reads, before the query runs.

The check looks up the names in the parsed query. Spark itself parses the query, so the check and the execution
understand the query in the same way. Only what is known to be harmless is allowed: a new statement or function of Spark
is refused until `allowed_classes.txt` or `allowed_functions.txt` lists it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

from py4j.java_gateway import JavaGateway, JavaObject, is_instance_of
from pyspark.sql import SparkSession

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.query_views import refusal, unknown_table

FUNCTIONS = frozenset(files(__package__).joinpath("allowed_functions.txt").read_text().split())
"""The functions that a query may call.

Each function computes its result from its arguments alone. None of these functions runs code or a query, or reads a
file.
"""

_CATALYST = "org.apache.spark.sql.catalyst"

CLASSES = frozenset(files(__package__).joinpath("allowed_classes.txt").read_text().split())
"""The classes of tree nodes that a parsed query may contain, in addition to Spark's classes of expressions."""

_METADATA = re.compile(
    r"history|metadata_log_entries|snapshots|(all_)?(entries|files|data_files|delete_files|manifests)|partitions|refs"
    r"|position_deletes|(branch|tag)_\w+|(snapshot_id|at_timestamp)_\d+",
    re.ASCII,
)
"""The suffixes of a table name by which a query reads the table's Iceberg metadata or one of its snapshots."""


def check(spark: SparkSession, lake: Lake, query: str, relations: Sequence[str], *, bare: bool) -> None:
    """Check that a query only reads or describes the lake's tables, and calls only allowed functions.

    `relations` are the names of the tables and views that the query may contain without a namespace. If `bare` is
    false, the query may also contain names with a namespace. Raises `QueryError` for any other query. Raises Spark's
    own error for text that is not SQL.
    """
    jvm: Any = spark
    nodes = list(_nodes(jvm.sparkContext._gateway, jvm._jsparkSession.sessionState().sqlParser().parsePlan(query)))
    known = {name.lower() for name in relations}
    for name, node in nodes:
        if name == f"{_CATALYST}.plans.logical.UnresolvedWith":
            known |= {str(one.productElement(0)).lower() for one in _items(node.cteRelations())}
    for name, node in nodes:
        short = name.rpartition(".")[2]
        if not name.startswith(f"{_CATALYST}.expressions.") and name not in CLASSES:
            raise refusal(f"found {_words(short)}")
        if short in ("UnresolvedRelation", "UnresolvedTableOrView", "UnresolvedTable"):
            parts = [str(part) for part in _items(node.multipartIdentifier())]
            if (bare and len(parts) > 1) or not _known(lake, parts, known):
                raise unknown_table(parts)
            if short == "UnresolvedRelation" and not node.options().isEmpty():
                raise refusal("found a table with options")
        elif short in ("UnresolvedFunction", "UnresolvedTableValuedFunction", "UnresolvedGenerator"):
            _check_function(_function(short, node))


def _nodes(gateway: JavaGateway, root: JavaObject) -> Iterator[tuple[str, JavaObject]]:
    """Yield all statements and expressions of a parsed query and of its inner queries, as pairs.

    Each pair consists of the class name and the Java object of a statement or expression. An inner query may be in any
    part of a node, so all parts of each node are searched.
    """
    stack: list[Any] = [root]
    while stack:
        one = stack.pop()
        if not isinstance(one, JavaObject):
            continue
        name = str(one.getClass().getName())
        if name.startswith("scala."):
            iterable = is_instance_of(gateway, one, "scala.collection.IterableOnce")
            stack += _items(one) if iterable else _parts(gateway, one)
        elif is_instance_of(gateway, one, f"{_CATALYST}.trees.TreeNode"):
            yield name, one
            stack += _parts(gateway, one)


def _parts(gateway: JavaGateway, one: JavaObject) -> list[Any]:
    return _items(one.productIterator()) if is_instance_of(gateway, one, "scala.Product") else []


def _items(iterable: Any) -> list[Any]:
    iterator = iterable.iterator()
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found


def _known(lake: Lake, parts: Sequence[str], known: set[str]) -> bool:
    """Return True if a name is in `known`, or if the name has a namespace and the catalog has such a table or view."""
    if len(parts) == 1:
        return parts[0].lower() in known
    if len(parts) > 2 and _METADATA.fullmatch(parts[-1].lower()) and _known(lake, parts[:-1], known):
        return True
    inner = parts[1:] if parts[0] == lake.settings.catalog and len(parts) > 2 else parts
    return len(inner) == 2 and (bool(lake.catalog.table_exists(tuple(inner))) or _is_view(lake, tuple(inner)))


def _is_view(lake: Lake, name: tuple[str, ...]) -> bool:
    """Return True if the catalog has a view of this name, such as a dbt view. The view's SQL text is not checked."""
    # Ignore the error of a catalog that does not support views, such as some of pyiceberg's catalogs.
    with suppress(NotImplementedError):
        return bool(lake.catalog.view_exists(name))
    return False


def _function(short: str, node: Any) -> list[str]:
    if short == "UnresolvedGenerator":
        name = node.name()
        return [*(str(part.get()) for part in (name.database(),) if part.isDefined()), str(name.funcName())]
    parts = node.name() if short == "UnresolvedTableValuedFunction" else node.nameParts()
    return [str(part) for part in _items(parts)]


def _check_function(parts: Sequence[str]) -> None:
    if len(parts) != 1 or parts[0].lower() not in FUNCTIONS:
        raise refusal(f"found the function {'.'.join(parts)}")


def _words(name: str) -> str:
    """Convert the name of one of Spark's classes to lower-case words.

    >>> _words("DeleteFromTable"), _words("UnresolvedExecuteImmediate")
    ('delete from table', 'execute immediate')
    """
    plain = name.removeprefix("Unresolved").removesuffix("Command").removesuffix("Statement").removesuffix("$")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain).lower()
