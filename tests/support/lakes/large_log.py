"""A log of many records, landed without Spark and without Python for each record, and definitions over it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace import AfterWatermark, Count, Fixed, Log, Pipeline, Sum, seconds
from tailrace.backfill.backfill import backfill
from tailrace.engines.duckdb.database.connection import connect
from tailrace.engines.duckdb.follower import ProcessFollower
from tailrace.fold.fold_group import FoldGroup
from tailrace.ingest.row_landing import RowLanding
from tailrace.lake.catalog.lake import Lake
from tailrace.lake.commit.epoch_properties import READ, clock_properties
from tailrace.lake.commit.runs_table import Runs
from tailrace.lake.schema.contracts import log_contract
from tailrace.lake.schema.iceberg_types import iceberg_schema
from tailrace.lake.schema.owned_tables import tables_of
from tailrace.lake.schema.pipeline_tables import answer_contract
from tailrace.model.base.clock import Clock
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant
from tailrace.settings import Settings

SALES = Log(
    name="sales",
    columns={"item": "bigint", "cents": "bigint", "label": "string", "at": "timestamp"},
    event_time="at",
    disorder=seconds(10),
)
BY_ITEM = Pipeline(
    name="by_item",
    log=SALES,
    key="item",
    what={"sales": Count(), "cents": Sum("cents")},
    where=Fixed(seconds(60)),
    when=AfterWatermark(),
)
"""Nearly every record has a window of its own, so the answers are as many as the records."""

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = 60_000_000


def land(folder: Path, records: int, epochs: int) -> int:
    """Land so many records in so many epochs, a minute each; return the sum of their cents."""
    per, total = records // epochs, 0
    schema = iceberg_schema(log_contract(SALES)).as_arrow()
    landing: RowLanding[pa.Table] = RowLanding(Lake(Settings(warehouse=folder, memory="1GB")), SALES)
    for epoch in range(epochs):
        chance = np.random.default_rng(epoch)
        at = instant(BEGIN) + epoch * MINUTE + np.sort(chance.integers(0, MINUTE, per))
        columns = {
            "item": pa.array(chance.integers(0, 10**9, per)),
            "cents": pa.array(chance.integers(1, 1000, per)),
            "label": pc.binary_join_element_wise("sale", pa.array(chance.integers(0, 10**6, per)).cast("string"), "-"),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
            "_epoch": pa.repeat(pa.scalar(epoch, pa.int64()), per),
            "_offset": pa.array(range(epoch * per, (epoch + 1) * per), pa.int64()),
        }
        total += pc.sum(columns["cents"]).as_py()
        rows = pa.table([columns.get(one.name, pa.nulls(per, one.type)) for one in schema], schema.names)
        rows = rows.cast(schema).append_column("_error", pa.nulls(per, pa.string()))
        last = END_OF_TIME if epoch == epochs - 1 else instant(BEGIN) + epoch * MINUTE
        clock = Clock(epoch, last, instant(BEGIN) + epoch)
        read = dict(zip(READ, ("test", str(epoch), ""), strict=True))
        landing.write(rows, {**clock_properties(clock), **read})
        landing.publish()
    landing.close()
    return total


def backfilled(folder: Path, memory: str, threads: int, pipeline: Pipeline = BY_ITEM) -> int:
    """Backfill everything into a definition without answers; return how many there are then."""
    lake = Lake(Settings(warehouse=folder, memory=memory, engine="duckdb", threads=threads))
    run = Runs(lake, pipeline).start("stream", BEGINNING, END_OF_TIME, log_epoch=None)
    said = {"epoch": str(lake.head("sales").number("epoch")), "watermark": str(END_OF_TIME), "processing_time": "0"}
    said |= {"generation": str(run.generation), "fingerprint": pipeline.fingerprint}
    lake.ensure(tables_of(pipeline).ledger, said)
    lake.ensure(answer_contract(pipeline))
    with closing(connect(lake.settings)) as connection:
        ProcessFollower(connection, lake, pipeline, "deployed").follow()
    return sum(one.changed for one in backfill(lake, pipeline, BEGINNING, END_OF_TIME))


def answered_again(folder: Path, memory: str, threads: int) -> int:
    """Backfill everything into another definition without answers."""
    return backfilled(folder, memory, threads, replace(BY_ITEM, name="again"))


def caught_up(folder: Path, memory: str, threads: int) -> int:
    """Fold all epochs of the log that a stream has missed; return how many."""
    lake = Lake(Settings(warehouse=folder, memory=memory, engine="duckdb", threads=threads))
    with closing(FoldGroup(_no_spark, lake, (BY_ITEM,), follow_every=1)) as group:
        return sum(1 for _ in group.missed_epochs(lake.head("sales").number("epoch")))


def _no_spark() -> NoReturn:
    raise AssertionError("everything fits the process")


def answers(folder: Path) -> int:
    """Return how many answers there are."""
    return int(Lake(Settings(warehouse=folder)).table(BY_ITEM.name).scan().count())


def summed(folder: Path) -> tuple[int, int]:
    """Return how many answers there are, and the sum of their cents."""
    rows = Lake(Settings(warehouse=folder)).table(BY_ITEM.name).scan(selected_fields=("sales", "cents")).to_arrow()
    return pc.sum(rows["sales"]).as_py(), pc.sum(rows["cents"]).as_py()
