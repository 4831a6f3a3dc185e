"""Events of an auction house in Parquet files, the same ones each time, in the order in which they become known.

5,000 happen in a second, so a file of 50,000 is ten seconds. A smaller set is the beginning of a larger one.
"""

from __future__ import annotations

import heapq
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import BEGIN, SEED, VIEWS_A_FILE, Views
from benchmarks.nexmark.queries import query
from tailrace.generate.delivery import SECOND, Delivery
from tailrace.generate.nexmark import MOST_BEHIND, nexmark_events
from tailrace.model.base.time import instant

RATE = 5_000
VERSION = "1"
"""Of the generator: files of another one are made anew."""

_LONGEST = 10**6 * SECOND
_TYPES = {"string": pa.string(), "bigint": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
SCHEMA = pa.schema([(name, _TYPES[type]) for name, type in query("q0").definition.sources[0].columns.items()])


def told_by(events: int) -> datetime:
    """When everything is sure to have been told of windows that end no later, of so many events as a stream.

    A watermark is as far behind as an event may be; hand-written Spark goes by that of the micro-batch before.
    """
    return BEGIN + timedelta(seconds=(events - 3 * VIEWS_A_FILE) / RATE, microseconds=-MOST_BEHIND)


def events(root: Path, count: int, seed: int = SEED) -> Views:
    """A folder of its own with the first `count` events, in whole files; files that are there already are kept.

    The modification times are a second apart, in the order in which the events become known.
    """
    if count % VIEWS_A_FILE or count <= 0:
        raise ValueError(f"{count} events: expected a multiple of {VIEWS_A_FILE}; pass --events {VIEWS_A_FILE}")
    files = count // VIEWS_A_FILE
    made, folder = root / f"nexmark-v{VERSION}-{seed}", root / f"nexmark-v{VERSION}-{seed}-{files}-files"
    made.mkdir(parents=True, exist_ok=True)
    names = [f"{number:05}.parquet" for number in range(files)]
    if not all((made / name).is_file() for name in names):
        _make(made, names, seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in names:
        os.link(made / name, folder / name)
    return Views(folder, files)


def _make(folder: Path, names: Iterable[str], seed: int) -> None:
    known = in_order(nexmark_events(rate=RATE, length=_LONGEST, seed=seed, first=instant(BEGIN)))
    for number, name in enumerate(names):
        rows: list[Mapping[str, Any]] = [one.record for one in islice(known, VIEWS_A_FILE)]
        unfinished = (folder / name).with_suffix(".unfinished")
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), unfinished, compression="zstd")
        os.utime(unfinished, (at := BEGIN.timestamp() - 1e6 + number, at))
        unfinished.rename(folder / name)


def in_order(made: Iterable[Delivery]) -> Iterator[Delivery]:
    """Deliveries by when they become known, of ones that come by when they happen; holds the few that may be next."""
    waiting: list[tuple[int, int, Delivery]] = []
    for number, one in enumerate(made):
        while waiting and waiting[0][0] <= one.record["date_time"]:
            yield heapq.heappop(waiting)[2]
        heapq.heappush(waiting, (one.known, number, one))
    while waiting:
        yield heapq.heappop(waiting)[2]
