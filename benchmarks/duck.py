"""A third opinion on a batch of this size: DuckDB over the same landed log, into a Parquet file.

It commits nothing to a lake and shares nothing with a stream, so its time is told and no ratio is made of it.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from benchmarks.data import WINDOW
from benchmarks.measure import Outcome, Task, cpu_seconds, serve
from tailrace.lake.catalog.lake import Lake

EXTENSIONS = ("avro", "iceberg")
"""In the order in which they must be loaded; they come as Python packages and are not downloaded."""


def batch(task: Task) -> Outcome:
    """Read the landed log, aggregate, write a file, `repeats` times in a process that has done so twice."""
    log = Lake(task.settings).table("views").metadata_location
    seconds, cpu = [], 0.0
    with duckdb.connect() as connection:
        for name in EXTENSIONS:
            connection.execute(f"LOAD '{_extension(name)}'")
        connection.execute("SET TimeZone = 'UTC'")
        start = f"time_bucket(INTERVAL '{int(WINDOW.total_seconds())} seconds', viewed_at) AS window_start"
        totals = "sum(price)::BIGINT AS total, count(*) AS views"
        query = f"SELECT advertiser, {start}, {totals} FROM iceberg_scan('{log}') GROUP BY ALL"
        for repeat in range(-2, task.repeats):
            started, spent = time.perf_counter(), cpu_seconds()
            connection.execute(f"COPY ({query}) TO '{task.home}/totals.parquet' (FORMAT parquet, COMPRESSION zstd)")
            if repeat >= 0:
                seconds.append(time.perf_counter() - started)
                cpu += cpu_seconds() - spent
    task.leave(lambda: pq.read_table(task.home / "totals.parquet"))
    return Outcome(seconds, facts={"cpu": cpu / task.repeats})


def _extension(name: str) -> Path:
    found = find_spec(f"duckdb_extension_{name}")
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"no DuckDB extension {name}: run `make setup`, whose extra `duckdb` has it")
    return next(Path(found.origin).parent.rglob("*.duckdb_extension"))


if __name__ == "__main__":
    serve({"batch": batch})
