"""Compare the answers of a definition with a plain query over the same records, which DuckDB runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from tailrace.model.base.errors import TailraceError
from tailrace.model.base.values import in_utc
from tailrace.model.definition.definition import Definition
from tailrace.model.logs.log import SIGN, Log
from tailrace.testing.cells import Loose, cell, key_of
from tailrace.testing.differences import difference
from tailrace.testing.epochs import EpochCutter
from tailrace.testing.folds import folded
from tailrace.testing.orders import Records, read_records
from tailrace.testing.rows import Rows
from tailrace.testing.tables import Table

if TYPE_CHECKING:
    import duckdb

RECORDS = "records"
"""The name of the table with the records; each log's records are also in a table with the log's name."""

CLOSE = 1e-9
"""The share of two doubles by which they may differ, because SQL adds doubles in an order of its own."""


class SqlError(TailraceError, ValueError):
    """The error for a query that cannot be compared with the answers of a definition."""


class SqlDifferenceError(TailraceError, AssertionError):
    """The failure of a test: the answers of a definition differ from those of a query."""


@dataclass(frozen=True)
class _Near(Loose):
    """A double of a query: equal to each double that is close to it, and to a number of another type."""

    value: float
    share: float

    @property
    def text(self) -> str:
        return cell(self.value, "double")

    def matches(self, value: Any) -> bool:
        if not isinstance(value, float | int | Decimal) or isinstance(value, bool):
            return False
        other = float(value)
        if not isfinite(other) or not isfinite(self.value):
            return key_of(other) == key_of(self.value)
        return abs(other - self.value) <= self.share * max(abs(other), abs(self.value))


def same_as_sql(definition: Definition, records: Records, query: str, *, close: float = CLOSE) -> Rows:
    """Check that the last answers of a definition equal the rows of a query over its records, and return the answers.

    DuckDB runs the query over the table `records`, whose columns are those of the log; a repeated record id is there
    once. If the definition reads several logs, each has a table with its name. Instants are in UTC. The names of the
    query's columns say what is compared with what: `window_start`, `window_end`, key columns and results.

    Numbers are equal if their values are, whatever their types. Doubles may differ by the share `close`, because a
    query adds them in an order of its own. NaN equals NaN, null equals null, a date equals its midnight in UTC, and the
    rows may be in any order.

    Raises `SqlDifferenceError` with the rows that differ.
    """
    __tracebackhide__ = True
    read = list(read_records(definition, records))
    cutter, given = EpochCutter(definition.sources), dict[str, list[Any]]()
    for log, _, record in sorted(read, key=lambda one: one[2][one[0].event_time]):
        given.setdefault(log.name, []).append(record)
    cutter.add_read(given)
    tables = {log.name: (log, cutter.cut.epochs[0][log.name][0]) for log in definition.sources}
    cutter.end()
    answers = folded(definition, cutter.cut).answers
    names, rows = _queried(tables, query)
    if unknown := [name for name in names if name not in answers.types]:
        raise SqlError(
            f"the query gives {', '.join(unknown)}: expected columns of {answers.what}, {', '.join(answers.types)}; "
            "name each with AS"
        )
    types = [answers.types[name] for name in names]
    expected = tuple(tuple(_expected(one, type, close) for one, type in zip(row, types, strict=True)) for row in rows)
    found = difference(Table(tuple(names), expected), answers.values(names), types, about=answers.about)
    if not found.same:
        lines = found.lines("in the query", answers.what)
        raise SqlDifferenceError("\n".join([f"{answers.what} are not those of the query", *lines]))
    return answers


def _queried(
    tables: Mapping[str, tuple[Log, Sequence[Mapping[str, Any]]]], query: str
) -> tuple[list[str], list[list[Any]]]:
    """Run a query over the records of logs; return the names of its columns, and its rows."""
    import duckdb
    import pyarrow as pa

    from tailrace.ingest.column_types import column_type

    # The tables are temporary, so that no other query over this database sees them.
    connection = _database().cursor()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        for name, (log, records) in tables.items():
            rows = [{column: one.get(column) for column in log.columns} for one in _standing(log, records)]
            types = pa.schema([(column, column_type(type).arrow) for column, type in log.columns.items()])
            _create(connection, name, pa.Table.from_pylist(rows, schema=types))
        if len(tables) == 1 and RECORDS not in tables:
            connection.execute(f'CREATE TEMP VIEW {RECORDS} AS SELECT * FROM "{next(iter(tables))}"')
        found = connection.execute(query).to_arrow_table()
    except duckdb.Error as error:
        raise SqlError(f"DuckDB cannot run the query: {error}") from error
    finally:
        connection.close()
    columns = [found.column(place).to_pylist() for place in range(found.num_columns)]
    return found.column_names, [list(row) for row in zip(*columns, strict=True)]


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Open a database once: to open one takes longer than the query of a test."""
    import duckdb

    return duckdb.connect(":memory:", config={"threads": 1})


def _create(connection: duckdb.DuckDBPyConnection, name: str, table: Any) -> None:
    connection.register("tailrace_given", table)
    connection.execute(f'CREATE TEMP TABLE "{name}" AS SELECT * FROM tailrace_given')
    connection.unregister("tailrace_given")


def _standing(log: Log, records: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a log that no other record takes back, whose event time may be another."""
    names = [name for name in log.columns if name != log.event_time]
    taken = Counter(key_of([one[name] for name in names]) for one in records if one.get(SIGN, 1) < 0)
    for one in records:
        own = key_of([one[name] for name in names])
        if one.get(SIGN, 1) > 0 and taken[own]:
            taken[own] -= 1
        elif one.get(SIGN, 1) > 0:
            yield one


def _expected(value: Any, type: str, close: float) -> Any:
    """Convert a value of a query to what equals the definition's values of a type."""
    if isinstance(value, float):
        return _Near(value, close)
    if type in ("double", "float") and isinstance(value, int | Decimal) and not isinstance(value, bool):
        return _Near(float(value), close)
    if isinstance(value, datetime):
        return in_utc(value)
    if type == "timestamp" and isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value
