"""The benchmarks' data: ad views in Parquet files, and orders in JSON files; the same ones each time.

File `n` holds the views that arrive from `n * 50,000` on, at one each 720 µs: 5 M views are one hour in 100 files, and
a smaller set is the beginning of a larger one. Advertisers are picked by Zipf's law, and a view is known up to 60 s
after it happened. A file depends on the seed and its number alone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

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

ITEMS = 5
PRODUCTS = 5_000
COUNTRIES = ("DE", "FR", "GB", "IT", "NL", "PL", "SE", "US")
"""Of the orders, which are nested records in JSON."""

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
    return _folder(root, events, seed, f"v{VERSION}", "parquet", _write_views)


def orders(root: Path, events: int, seed: int = SEED) -> Views:
    """A folder of its own with the first `events` orders, in whole files; files that are there already are kept."""
    return _folder(root, events, seed, f"orders{VERSION}", "json", _write_orders)


def _folder(
    root: Path, events: int, seed: int, kind: str, ending: str, write: Callable[[Path, int, int], None]
) -> Views:
    if events % VIEWS_A_FILE or events <= 0:
        raise ValueError(f"{events} events: expected a multiple of {VIEWS_A_FILE}; pass --events {VIEWS_A_FILE}")
    files = events // VIEWS_A_FILE
    made, folder = root / f"{kind}-{seed}", root / f"{kind}-{seed}-{files}-files"
    made.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number in range(files):
        file = made / f"{number:05}.{ending}"
        if not file.is_file():
            unfinished = file.with_suffix(".unfinished")
            write(unfinished, number, seed)
            os.utime(unfinished, (at := BEGIN.timestamp() - 1e6 + number, at))
            unfinished.rename(file)
        os.link(file, folder / file.name)
    return Views(folder, files)


def _write_views(file: Path, number: int, seed: int) -> None:
    pq.write_table(file_of_views(number, seed), file, compression="zstd")


def _write_orders(file: Path, number: int, seed: int) -> None:
    file.write_text("".join(map(_line, lines_of_orders(number, seed))))


def lines_of_orders(number: int, seed: int = SEED) -> Iterator[Mapping[str, Any]]:
    """The orders of one file: about 1 kB of JSON each, with five items, at the times of the views."""
    views, random = file_of_views(number, seed), np.random.default_rng([seed, number, ITEMS])
    shape = (VIEWS_A_FILE, ITEMS)
    products = np.searchsorted(_popularity(), random.random(shape), side="right") % PRODUCTS
    cents, pieces = random.integers(99, 20_000, shape), random.integers(1, 5, shape)
    countries = random.integers(0, len(COUNTRIES), VIEWS_A_FILE)
    times = views["viewed_at"].cast(pa.int64()).to_numpy() // 1000
    for place in range(VIEWS_A_FILE):
        items = [
            {
                "sku": f"sku-{product:05}",
                "title": f"A thing of everyday use, number {product}",
                "unitPrice": cent / 100,
                "quantity": count,
                "category": {"id": product % 40, "path": "home/garden/tools"},
            }
            for product, cent, count in zip(
                products[place].tolist(), cents[place].tolist(), pieces[place].tolist(), strict=True
            )
        ]
        yield {
            "orderId": f"{number * VIEWS_A_FILE + place:012x}",
            "createdAt": int(times[place]),
            "user": {
                "userId": f"user-{place * 7919 % 100_003}",
                "country": COUNTRIES[countries[place]],
                "tier": "gold",
            },
            "items": items,
            "payment": {"method": "card", "currency": "EUR", "installments": None},
            "userAgent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Version/17.4",
        }


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"


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
