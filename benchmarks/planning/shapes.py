"""The shapes of the streams that are measured, and the files of records that they read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

DAY = datetime(2026, 3, 1, tzinfo=UTC)
"""All records are of one day, which is one window of each key."""

COLUMNS = {"advertiser": "bigint", "price": "bigint", "viewed_at": "timestamp"}
WINDOW = timedelta(days=1)
DISORDER = timedelta(days=1)
"""No window ends while a stream is measured: those that are open are those that were opened."""


@dataclass(frozen=True)
class Shape:
    """A stream of epochs that are alike.

    An epoch has `records` of `touched` keys in so many `sources`: files, each read by a task as a partition of Kafka
    is. `open` windows are there since the first epoch. Spark shuffles into `shuffles` parts. The answers follow each
    `follow` epochs. Of `epochs` those after the first `SKIPPED` count. `held_out` is not fitted, but predicted.
    """

    name: str
    records: int
    touched: int
    open: int
    sources: int = 1
    shuffles: int = 2
    follow: int = 10
    epochs: int = 8
    held_out: bool = False

    @property
    def landed(self) -> int:
        """The records of all its epochs."""
        return max(self.records, self.open) + (self.epochs - 1) * self.records


SKIPPED = 3
"""The first epochs of a stream, in which what Spark generates for it is compiled."""

# Below 24 MB an epoch's files are read by Spark, as Kafka's topics are; larger ones by the executors' Python, at less.
WARM_UP = Shape("warm_up", 100_000, 5_000, 5_000, sources=2, epochs=10)
"""Streamed first in each process, and left out."""

SHAPES = (
    Shape("small", 2_000, 500, 500),
    Shape("middle", 100_000, 5_000, 5_000),
    Shape("large", 300_000, 5_000, 5_000, sources=2),
    Shape("many_sources", 100_000, 5_000, 5_000, sources=16),
    Shape("many_parts", 100_000, 5_000, 5_000, shuffles=16),
    Shape("many_tasks", 50_000, 2_000, 2_000, sources=32, shuffles=32, epochs=6),
    Shape("many_touched", 100_000, 60_000, 60_000),
    Shape("many_open", 50_000, 2_000, 200_000),
    Shape("followed", 100_000, 20_000, 20_000, follow=1),
    Shape("followed_little", 20_000, 1_000, 40_000, follow=1),
    Shape("held_mixed", 250_000, 15_000, 50_000, sources=8, shuffles=8, follow=2, held_out=True),
    Shape("held_tasks", 150_000, 3_000, 20_000, sources=16, shuffles=16, held_out=True),
    Shape("held_small", 10_000, 1_000, 1_000, shuffles=4, held_out=True),
)

ONE_CORE = ("small", "middle", "large", "many_parts", "many_touched", "held_mixed")
"""Those that are streamed by one core, too."""

MAINTAINED = ("middle", "large", "many_sources", "many_tasks", "many_touched")
"""Those whose tables are maintained once they are streamed."""

CLUSTER = (
    Shape("cluster_middle", 100_000, 5_000, 5_000, sources=2, held_out=True),
    Shape("cluster_large", 300_000, 20_000, 20_000, sources=4, shuffles=4, held_out=True),
    Shape("cluster_tasks", 100_000, 5_000, 30_000, sources=16, shuffles=16, held_out=True),
)
"""Of a cluster of two workers: none of them is fitted."""


def landed(shape: Shape, folder: Path) -> Path:
    """Write the files of a shape's epochs, as JSON; the first epoch opens all its windows."""
    folder.mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.42)")
        for epoch in range(shape.epochs):
            opens = epoch == 0
            records, keys = (max(shape.records, shape.open), shape.open) if opens else (shape.records, shape.touched)
            for number in range(shape.sources):
                part = records // shape.sources
                key = f"range + {number * part}" if opens else f"(random() * {keys})::bigint"
                millis = f"{epoch * 60_000} + (random() * 59000)::int"
                at = f"TIMESTAMP '{DAY:%Y-%m-%d %H:%M:%S}' + to_milliseconds({millis})"
                file = folder / f"{epoch:04}-{number:04}.json"
                connection.execute(
                    f"COPY (SELECT ({key}) % {keys} AS advertiser, (random() * 50000)::bigint AS price, "
                    f"strftime({at}, '%Y-%m-%dT%H:%M:%S.%gZ') AS viewed_at FROM range({part})) "
                    f"TO '{file}' (FORMAT json)"
                )
                os.utime(file, (landed_at := 1_700_000_000 + epoch * 1000 + number, landed_at))
    return folder
