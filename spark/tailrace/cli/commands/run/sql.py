"""`tailrace sql`: run a query over the lake's tables on Spark or DuckDB."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any

from rich.text import Text

from tailrace.cli.runtime.spark_session import activity, session
from tailrace.cli.terminal.console import Output, table
from tailrace.cli.terminal.formats import json_text, nested_text, quantity, strict_json
from tailrace.settings import Settings


class SqlEngine(StrEnum):
    """The engine that runs a query.

    With `duckdb`, the query is in DuckDB's dialect. With every other value, the query is in Spark's dialect.
    """

    AUTO = "auto"
    SPARK = "spark"
    DUCKDB = "duckdb"


class Form(StrEnum):
    """The format of the printed rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def sql(
    query: str,
    engine: SqlEngine = SqlEngine.AUTO,
    form: Form = Form.TABLE,
    rows: int = 100,
    epoch: int | None = None,
) -> None:
    """Run a SQL query over the lake's tables. It only reads, and times are in UTC.

    A query can also read views. For a pipeline p, the views p__panes, p__late and p__state each show one kind of row of
    the ledger p__ledger. For a map or join m, the view m__rows shows the current rows. With --epoch, the query reads
    every table in its state at the end of the given epoch. Even if a table of answers is behind its ledger, --epoch
    shows the answers of the given epoch.
    """
    output, settings = Output(form is Form.JSON), Settings()
    from tailrace.lake.catalog.lake import Lake
    from tailrace.lake.read.query_views import tables

    lake = Lake(settings)
    tables(lake)
    answer, by = None, engine.value
    if engine is SqlEngine.DUCKDB:
        from tailrace.engines.duckdb.iceberg_query import by_duckdb

        answer = by_duckdb(lake, query, epoch)
    elif engine is SqlEngine.AUTO:
        from tailrace.engines.duckdb.query import try_duckdb

        answered = try_duckdb(lake, query, epoch)
        answer, by = (None, f"spark: {answered}") if isinstance(answered, str) else (answered[0], str(answered[1]))
    if answer is None:
        news = output if form is Form.TABLE else output.without_news
        with (
            activity(news, "starting Spark") as tell,
            session(settings, "sql", started=lambda: tell("asking")) as spark,
        ):
            from tailrace.engines.spark.query import by_spark

            answer = by_spark(spark, lake, query, epoch)
    names, records = answer.column_names, answer.to_pylist()
    if form is Form.JSON:
        print(strict_json(records, default=json_text, indent=2))
    elif form is Form.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(row[name]) for name in names] for row in records)
    else:
        _table(output, names, records, rows, by)


def _table(output: Output, names: Sequence[str], records: Sequence[Mapping[str, Any]], rows: int, by: str) -> None:
    first = records[:rows] if rows else records
    numbers = [name for name in names if any(isinstance(row[name], int | float | Decimal) for row in first)]
    output.text(table(*names, rows=([_text(row[name]) or "–" for name in names] for row in first), right=numbers))
    left = len(records) - len(first)
    more = f", {left:,} of them not shown: --rows 0 shows all" if left else ""
    output.text(Text.assemble(f"{quantity(len(records), 'row')}{more}", (f"  {by}", "dim")))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float | Decimal):
        return str(value)
    if isinstance(value, dict | list):
        return nested_text(value)
    return json_text(value)
