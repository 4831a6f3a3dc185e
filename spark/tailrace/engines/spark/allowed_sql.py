"""Allow a person's query in Spark's SQL only to read: the names in its parsed tree are checked before it runs.

Spark itself parses the query, so the check and the execution read it alike. Everything that is not known to be harmless
is refused: a new statement or function of Spark is not allowed before `allowed_classes.txt` or `allowed_functions.txt`
lists it.
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
"""The functions that a query may call: they compute from their arguments alone, and run no code, file or other
query."""

_CATALYST = "org.apache.spark.sql.catalyst"

CLASSES = frozenset(files(__package__).joinpath("allowed_classes.txt").read_text().split())
"""The classes of Spark's parsed tree that a query may have besides expressions."""

_METADATA = re.compile(
    r"history|metadata_log_entries|snapshots|(all_)?(entries|files|data_files|delete_files|manifests)|partitions|refs"
    r"|position_deletes|(branch|tag)_\w+|(snapshot_id|at_timestamp)_\d+",
    re.ASCII,
)
"""The words behind a table's name by which Iceberg's metadata, or a snapshot of the table, is read."""


def check(spark: SparkSession, lake: Lake, query: str, relations: Sequence[str], *, bare: bool) -> None:
    """Check that a query is one SELECT, or asks about one, over the lake's tables, by functions that only compute.

    `relations` are the bare names of tables and views; unless all names have to be `bare`, a table's name may have its
    namespace. Raises `QueryError` for any other query, and Spark's own error for text that is not SQL.
    """
    jvm: Any = spark
    nodes = list(_nodes(jvm.sparkContext._gateway, jvm._jsparkSession.sessionState().sqlParser().parsePlan(query)))
    known = {name.lower() for name in relations}
    for name, node in nodes:
        if name == f"{_CATALYST}.plans.logical.UnresolvedWith":
            known |= {str(_at(one, 0)).lower() for one in _items(node.cteRelations())}
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
    """Yield the statements and expressions of a parsed query and of its inner queries, with their classes.

    An inner query may be in any part of a node, so all parts of nodes are searched.
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


def _at(product: Any, place: int) -> Any:
    return product.productElement(place)


def _known(lake: Lake, parts: Sequence[str], known: set[str]) -> bool:
    """Tell whether a name is one of the relations, or a table or view of the lake's catalog with its namespace."""
    if len(parts) == 1:
        return parts[0].lower() in known
    if len(parts) > 2 and _METADATA.fullmatch(parts[-1].lower()) and _known(lake, parts[:-1], known):
        return True
    inner = parts[1:] if parts[0] == lake.settings.catalog and len(parts) > 2 else parts
    return len(inner) == 2 and (bool(lake.catalog.table_exists(tuple(inner))) or _is_view(lake, tuple(inner)))


def _is_view(lake: Lake, name: tuple[str, ...]) -> bool:
    """Tell whether the catalog has a view of this name, such as a view of dbt; its text is not checked."""
    # Not every catalog of pyiceberg has views.
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
    """Write the name of one of Spark's classes in words.

    >>> _words("DeleteFromTable"), _words("UnresolvedExecuteImmediate")
    ('delete from table', 'execute immediate')
    """
    plain = name.removeprefix("Unresolved").removesuffix("Command").removesuffix("Statement").removesuffix("$")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain).lower()
