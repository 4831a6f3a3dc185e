"""The benchmarks' data: ad views in Parquet files, the same ones each time.

File `n` holds the views that arrive from `n * 50,000` on, at one each 720 µs: 5 M views are one hour in 100 files, and
a smaller set is the beginning of a larger one. Advertisers are picked by Zipf's law, and a view is known up to 60 s
after it happened. A file depends on the seed and its number alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

VIEWS_A_FILE = 50_000
ADVERTISERS = 10_000
BETWEEN = timedelta(microseconds=720)
"""Time from one arrival to the next."""

DISORDER = timedelta(seconds=60)
WINDOW = timedelta(minutes=2)
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
SEED = 20260301
WARM_UP_SEED = 19991231
"""Of files that are only there to warm a session up."""

WARM = 6
"""How often a job is done before it counts, where a warm session is what is measured."""

VERSION = "1"
"""Of the generator: files of another one are made anew."""

COLUMNS = {"view_id": "bigint", "advertiser": "bigint", "price": "bigint", "viewed_at": "timestamp"}
"""The columns and their Spark types; `price` is in millionths of a dollar."""

SCHEMA = pa.schema(
    [
        ("view_id", pa.int64()),
        ("advertiser", pa.int64()),
        ("price", pa.int64()),
        ("viewed_at", pa.timestamp("us", "UTC")),
    ]
)


@dataclass(frozen=True)
class Views:
    """A folder of the first `files` files of a seed."""

    folder: Path
    files: int

    @property
    def events(self) -> int:
        return self.files * VIEWS_A_FILE

    @property
    def end(self) -> datetime:
        """The end of the last window that has a view."""
        span = self.events * BETWEEN
        return BEGIN + -(-span // WINDOW) * WINDOW

    def intervals(self) -> Iterator[tuple[datetime, datetime]]:
        """The windows that the views fall into, each as a range of its own."""
        start = BEGIN
        while start < self.end:
            yield start, start + WINDOW
            start += WINDOW


def file_of_views(number: int, seed: int = SEED) -> pa.Table:
    """The views of one file, in the order of their arrival.

    No view is further behind the latest before it than `DISORDER`, so a watermark that trails by it loses none.
    """
    random = np.random.default_rng([seed, number])
    view_id = np.arange(number * VIEWS_A_FILE, (number + 1) * VIEWS_A_FILE, dtype=np.int64)
    since = view_id * _micros(BETWEEN)
    most, some = random.exponential(2e6, VIEWS_A_FILE), random.uniform(0, _micros(DISORDER), VIEWS_A_FILE)
    delay = np.where(random.random(VIEWS_A_FILE) < 0.9, most, some).astype(np.int64)
    delay = np.minimum(np.minimum(delay, _micros(DISORDER) - 1), since)
    ranks = np.searchsorted(_popularity(), random.random(VIEWS_A_FILE), side="right")
    begin = int(BEGIN.timestamp()) * 1_000_000
    columns = {
        "view_id": view_id,
        "advertiser": _advertisers()[ranks],
        "price": random.integers(100, 50_000, VIEWS_A_FILE),
        "viewed_at": begin + since - delay,
    }
    arrays = [pa.array(columns[field.name], pa.int64()).cast(field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def views(root: Path, events: int, seed: int = SEED) -> Views:
    """A folder of its own with the first `events` views, in whole files; files that are there already are kept.

    The modification times are a second apart, in the order of arrival: streams read files in that order.
    """
    if events % VIEWS_A_FILE or events <= 0:
        raise ValueError(f"{events} events: expected a multiple of {VIEWS_A_FILE}; pass --events {VIEWS_A_FILE}")
    files = events // VIEWS_A_FILE
    made, folder = root / f"v{VERSION}-{seed}", root / f"v{VERSION}-{seed}-{files}-files"
    made.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number in range(files):
        file = made / f"{number:05}.parquet"
        if not file.is_file():
            unfinished = file.with_suffix(".unfinished")
            pq.write_table(file_of_views(number, seed), unfinished, compression="zstd")
            os.utime(unfinished, (at := BEGIN.timestamp() - 1e6 + number, at))
            unfinished.rename(file)
        os.link(file, folder / file.name)
    return Views(folder, files)


@cache
def _popularity() -> NDArray[np.float64]:
    """The cumulative shares of the advertisers, the most popular first."""
    weights = 1 / np.arange(1, ADVERTISERS + 1)
    return np.cumsum(weights / weights.sum())


@cache
def _advertisers() -> NDArray[np.int64]:
    """The advertisers' ids in the order of popularity: scattered, as ids are."""
    return np.random.default_rng(SEED).permutation(ADVERTISERS).astype(np.int64)


def _micros(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
