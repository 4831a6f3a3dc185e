"""Run a user's Spark SQL query on DuckDB in this process, if every part of the query has the same meaning in DuckDB.

A query may use all of Spark's SQL, and the two engines differ in surprising ways: in rounding, in division by zero, and
in the text form of instants. DuckDB therefore runs a query only if every part of the query, including the column names,
is known to have the same meaning. Any other query is run on Spark.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from importlib.resources import files

import duckdb
import pyarrow as pa
import sqlglot
from pyiceberg.types import DecimalType
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tailrace.engines.choose import Engine, EngineChoice, EnginePolicy
from tailrace.engines.duckdb.allowed_sql import lock
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.database.dialect import in_duckdb_once, name_of
from tailrace.engines.duckdb.database.scans import is_local, path_of, scan_files, table_bytes
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.query_views import plan_reading, tables, unknown_table
from tailrace.sql.terms import Query

ALIKE: frozenset[type[exp.Expr]] = frozenset(
    getattr(exp, name) for name in files(__package__).joinpath("alike_syntax.txt").read_text().split()
)
"""The elements of SQL syntax, as classes of sqlglot, that have the same meaning on both engines.

If DuckDB fails on a query, the query is run on Spark.
"""

_TIMES = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.DATE)

_WRITTEN = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?Z?)?")

_NAMED = (exp.Count, exp.Sum, exp.Min, exp.Max, exp.Avg)
"""The functions for which Spark derives a column's name from the text of the call, such as `sum(rides)`."""


def try_duckdb(lake: Lake, query: str, epoch: int | None = None) -> tuple[pa.Table, EngineChoice] | str:
    """Run a query on DuckDB; return its rows and the `EngineChoice`, or the reason why Spark must run the query.

    The reason is a human-readable clause. If `epoch` is given, each table is read as it was after the epoch `epoch`.
    Raises `LakeError` if there is no lake, `EpochError` if a table has no snapshot of the epoch, and `QueryError` if
    the lake lacks a table that the query names.
    """
    policy = EnginePolicy.of(lake.settings)
    if policy.engine is Engine.SPARK:
        return policy.named
    tree = _parsed(query)
    if tree is None:
        return "the query has what only Spark is sure to take as Spark does"
    kinds, snapshots = plan_reading(lake, query, epoch)
    there = tables(lake)
    named = {one.name.lower() for one in tree.find_all(exp.Table)}
    own = {one.alias.lower() for one in tree.find_all(exp.CTE) if one.alias.isidentifier()}
    if unknown := sorted(named - own - kinds.keys() - set(there)):
        raise unknown_table(unknown[:1])
    read = {table for table in there if table in named}
    read |= {table for table in there if any(f"FROM {table} " in text for text in kinds.values())}
    read -= kinds.keys()
    size, loadeds = 0, {table: lake.table(table) for table in sorted(read)}
    for table, loaded in loadeds.items():
        if any(isinstance(field.field_type, DecimalType) for field in loaded.schema().fields):
            return f"{table} has decimals, whose sums and means the engines type otherwise"
        size += table_bytes(loaded, snapshot=snapshots.get(table))
    choice = policy.for_run(size)
    if choice.engine is Engine.SPARK:
        return choice.why
    with connect(lake.settings) as connection, ExitStack() as held:
        try:
            connection.execute("SET preserve_insertion_order = true")
            addresses = list[str]()
            for table, loaded in loadeds.items():
                scan = loaded.scan(snapshot_id=snapshots.get(table))
                tasks = list(scan.plan_files())
                rows = held.enter_context(scan_files(connection, loaded, scan, tasks))
                connection.execute(f"CREATE VIEW {name_of(table)} AS SELECT * FROM {rows}")
                addresses += (task.file.file_path for task in tasks)
            for name, text in kinds.items():
                connection.execute(f"CREATE VIEW {name_of(name)} AS {text}")
            lock(connection, map(path_of, filter(is_local, addresses)))
            found = connection.execute(in_duckdb_once(Query(tree.sql(dialect="spark")))).to_arrow_table()
        except duckdb.Error:
            # Spark then runs the query, and its error message refers to Spark's SQL.
            return "DuckDB does not take it"
    return _typed(found), choice


def _parsed(query: str) -> exp.Expr | None:
    """Parse a query, and give the columns of its result the names that Spark would give them.

    Returns None if some part of the query may have another meaning in DuckDB.
    """
    try:
        trees = sqlglot.parse(query, read="spark")
    except (SqlglotError, RecursionError):
        return None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query) or any(not _alike(node) for node in tree.walk()):
        return None
    if tree.find(exp.Join) and any(item.is_star for one in tree.find_all(exp.Select) for item in one.selects):
        # If a query joins tables by equal column names (`USING` or `NATURAL`), the two engines order the columns of a
        # `*` differently. So queries with a join and a `*` are left to Spark.
        return None
    for place, item in enumerate(tree.selects):
        if isinstance(item, exp.Column | exp.Alias | exp.Star):
            continue
        name = _name(item)
        if name is None or not isinstance(tree, exp.Select):
            return None
        tree.expressions[place].replace(exp.alias_(item.copy(), name, quoted=True))
    return tree


def _alike(node: exp.Expr) -> bool:
    if isinstance(node, exp.Table):
        return not node.db and not node.args.get("when") and not node.args.get("version")
    if isinstance(node, exp.Literal):
        return "\\" not in node.name if node.is_string else node.name.isdigit()
    if isinstance(node, exp.Cast | exp.DataType):
        cast = node if isinstance(node, exp.Cast) else node.parent
        return isinstance(cast, exp.Cast) and _instant(cast)
    return type(node) in ALIKE


def _instant(cast: exp.Cast) -> bool:
    """Return True if a cast converts a literal instant or day that both engines parse in the same way."""
    written = isinstance(cast.this, exp.Literal) and cast.this.is_string and _WRITTEN.fullmatch(cast.this.name)
    return bool(written) and cast.to.this in _TIMES


def _name(item: exp.Expr) -> str | None:
    """Return the name that Spark gives to an unnamed count, sum, minimum, maximum or mean of one column.

    Returns None for any other column.

    >>> _name(sqlglot.parse_one("COUNT(*)")), _name(sqlglot.parse_one("sum(a)")), _name(sqlglot.parse_one("a + 1"))
    ('count(1)', 'sum(a)', None)
    """
    if not isinstance(item, _NAMED) or len(list(item.iter_expressions())) != 1:
        return None
    inner, function = item.this, type(item).__name__.lower()
    if isinstance(inner, exp.Star):
        return f"{function}(1)"
    return f"{function}({inner.name})" if isinstance(inner, exp.Column) and not inner.table else None


def _typed(rows: pa.Table) -> pa.Table:
    """Cast sums of integers to 64 bits, the type that Spark uses for such sums."""
    total = pa.decimal128(38, 0)
    fields = [field.with_type(pa.int64()) if field.type == total else field for field in rows.schema]
    return rows.cast(pa.schema(fields))
