"""Nested orders as an app sends them: `pipelines/shop.py` and plain SQL over the files give the same answers (law L1).

The SQL is run by DuckDB over the compressed files, and knows nothing of ours. Revenues are compared with `math.fsum`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from math import fsum
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from tailrace.backfill.backfill import backfill
from tailrace.cli.main import app
from tailrace.generate.delivery import HOUR, Delivery
from tailrace.generate.delivery_files import land
from tailrace.generate.made_up_logs import LOGS
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import instant, moment
from tailrace.model.definition.chain import chain
from tailrace.model.definition.pipeline import Pipeline
from tailrace.plan.loader import load
from tailrace.settings import Settings
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit

FILE = Path(__file__).parents[2] / "pipelines" / "shop.py"
REVENUE, TOP, VISITS = (load(f"{FILE}:{name}") for name in ("revenue", "top_products", "visits"))
SALES = chain(TOP)[0]
FIRST = instant(datetime(2026, 1, 1, tzinfo=UTC))
END = FIRST + 24 * HOUR

RECORDS = """
CREATE TABLE orders AS SELECT orderId AS id, ANY_VALUE("user") AS "user", MAKE_TIMESTAMPTZ(ANY_VALUE(createdAt) * 1000)
  AS happened, ANY_VALUE(items) AS items,
  ANY_VALUE(appVersion) AS version
FROM read_json('{folder}/*.json.gz', format = 'newline_delimited', columns = {{orderId: 'VARCHAR',
  "user": 'STRUCT(id VARCHAR, country VARCHAR)', createdAt: 'BIGINT',
  appVersion: 'VARCHAR', items: 'STRUCT(sku VARCHAR, "unitPrice" DOUBLE, quantity INTEGER)[]'}})
GROUP BY orderId
"""
LINES = "(SELECT *, UNNEST(items) AS item FROM orders WHERE id NOT IN (SELECT UNNEST(?)) AND happened < ?)"
BY_HAND = {
    "shop_revenue": f"""
        SELECT "user".country, DATE_TRUNC('hour', happened) AS hour, COUNT(*), SUM(item.quantity),
               LIST(item.unitPrice * item.quantity)
        FROM {LINES} GROUP BY ALL""",
    "shop_top_products": f"""
        SELECT "user".country, DATE_TRUNC('day', happened) AS day, item.sku, SUM(item.quantity),
               LIST(item.unitPrice * item.quantity)
        FROM {LINES} GROUP BY ALL""",
    "shop_visits": """
        WITH begun AS (
            SELECT *, COALESCE(happened >= LAG(happened) OVER one + INTERVAL 30 MINUTES, TRUE) AS begins
            FROM orders WHERE id NOT IN (SELECT UNNEST(?)) AND happened < ?
            WINDOW one AS (PARTITION BY "user".id ORDER BY happened)
        ), numbered AS (
            SELECT *, COUNT_IF(begins) OVER (PARTITION BY "user".id ORDER BY happened) AS visit FROM begun
        )
        SELECT "user".id, MIN(happened), COUNT(*), SUM(LEN(items)), ARG_MAX(items, happened), ARG_MAX(version, happened)
        FROM numbered GROUP BY "user".id, visit""",
}


def made(seed: int = 5) -> list[Delivery]:
    """Orders of nine hours, and one of days later, which passes the watermark of all windows."""
    orders = LOGS["orders"].generate(rate=0.05, length=9 * HOUR, seed=seed, first=FIRST)
    later = {**orders[0].record, "orderId": "last", "createdAt": (END + 72 * HOUR) // 1000}
    return [*orders, Delivery(END + 72 * HOUR, later)]


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_L1_nested_orders_streamed_and_backfilled_equal_plain_sql_over_the_files(
    plain: SparkSession, settings: Settings, tmp_path: Path, engine: str
) -> None:
    settings = settings.model_copy(update={"engine": engine})
    spark, lake, folder = plain, Lake(settings), tmp_path / "landing"
    list(land(made(), folder, every=3 * HOUR, compressed=True))
    stream = Stream(spark, lake, [REVENUE, TOP, VISITS], Files(str(folder), "json", per_epoch=1))
    try:
        stream.start(once=True)
        stream.wait()
    finally:
        stream.close()
    with duckdb.connect() as files:
        files.execute("SET TimeZone = 'UTC'")
        files.execute(RECORDS.format(folder=folder))
        extra = spark.sql("SELECT extra FROM shop_orders WHERE extra IS NOT NULL").collect()
        assert extra
        assert all(json.loads(row.extra).keys() == {"appVersion", "gift"} for row in extra)
        late = {
            one.name: late_orders(spark, first) for one, first in ((REVENUE, REVENUE), (TOP, SALES), (VISITS, VISITS))
        }
        assert late["shop_revenue"], "some orders came too late"
        for pipeline in (REVENUE, TOP, VISITS):
            assert answers(spark, pipeline) == by_hand(files, pipeline, late[pipeline.name]), "stream = SQL less late"
        for pipeline in (REVENUE, TOP, VISITS):
            done = backfill(lake, pipeline, FIRST, END)
            assert pipeline is not REVENUE or done[-1].changed > 0
            assert answers(spark, pipeline) == by_hand(files, pipeline, []), "backfill = SQL over all"
    for one in (REVENUE, SALES, TOP, VISITS):
        assert audit(lake, one).ok
    some = max(answers(spark, REVENUE), key=lambda row: row[2])
    words = ["trace", f"{FILE}:revenue", "--key", some[0], "--window", some[1].isoformat(), "--limit", "9999", "--json"]
    traced = CliRunner().invoke(app, words, env=environment(settings))
    assert traced.exit_code == 0, traced.output
    counted = [one for one in json.loads(traced.output)["records"] if one["state"] == "counted"]
    items = {tuple(one["place"].values()): one["values"]["items"] for one in counted}
    assert fsum(item["price"] * item["quantity"] for of in items.values() for item in of) == some[-1]


def late_orders(spark: SparkSession, first: Any) -> list[str]:
    """The orders that came too late for a definition that reads the log."""
    rows = spark.sql(
        f"SELECT DISTINCT o.order_id FROM {first.name}__ledger AS l JOIN shop_orders AS o ON l.source_epoch = o._epoch "
        "AND l.source_partition = o._source AND l.source_offset = o._offset WHERE kind = 'late'"
    )
    return [row.order_id for row in rows.collect()]


def answers(spark: SparkSession, pipeline: Pipeline) -> set[tuple[Any, ...]]:
    columns = ", ".join([*pipeline.key, "window_start", *pipeline.what])
    found = spark.sql(f"SELECT {columns} FROM {pipeline.name} WHERE window_start < TIMESTAMP_MICROS({END})").toArrow()
    return {tuple(map(frozen, row.values())) for row in found.to_pylist()}


def by_hand(files: duckdb.DuckDBPyConnection, pipeline: Pipeline, late: list[str]) -> set[tuple[Any, ...]]:
    rows = files.execute(BY_HAND[pipeline.name], [late, moment(END)]).fetchall()
    if pipeline is VISITS:
        renamed = (
            (*row[:4], [{"sku": i["sku"], "price": i["unitPrice"], "quantity": i["quantity"]} for i in row[4]], row[5])
            for row in rows
        )
        return {tuple(map(frozen, row)) for row in renamed}
    sums = [(*row[:-1], fsum(row[-1])) for row in rows]
    if pipeline is REVENUE:
        return set(sums)
    by_place: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for country, day, sku, pieces, amount in sums:
        by_place.setdefault((country, day), []).append((amount, pieces, sku))
    return {(*place, tuple(one[2] for one in sorted(sold, reverse=True)[:5])) for place, sold in by_place.items()}


def frozen(value: Any) -> Any:
    """A value that a set can have: lists and structs as tuples."""
    if isinstance(value, dict):
        return tuple(map(frozen, value.values()))
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return tuple(map(frozen, value))
    return value


def environment(settings: Settings) -> dict[str, str]:
    return {"TAILRACE_WAREHOUSE": str(settings.warehouse), "TAILRACE_ENGINE": settings.engine}
