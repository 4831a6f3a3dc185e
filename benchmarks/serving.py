"""Measures how long the pages of `tailrace serve` take: `python benchmarks/serving.py --answers 1000000 --runs 1000`.

It makes a lake without a stream, as one would have left it: answers of a thousand keys in hours, two panes of each in
the ledger, late records, and runs of which every tenth changed a day. Prints the median and the longest of some visits
to each page, in milliseconds of the server's time.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    # Run as a script, the folder `benchmarks` is on the path, and its names are not meant to be modules of their own.
    sys.path[0] = str(ROOT)

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from tailrace import RETRACTING, AfterCount, AfterWatermark, Count, Fixed, Log, Mean, Pipeline, hours  # noqa: E402
from tailrace.lake.catalog.lake import Lake  # noqa: E402
from tailrace.lake.catalog.run import Run  # noqa: E402
from tailrace.lake.catalog.table_protocol import FileChange  # noqa: E402
from tailrace.lake.commit.runs_table import _row  # noqa: E402
from tailrace.lake.schema.contracts import runs_contract  # noqa: E402
from tailrace.lake.schema.owned_tables import contracts  # noqa: E402
from tailrace.lake.schema.pipeline_tables import answer_contract, ledger_contract  # noqa: E402
from tailrace.model.base.time import BEGINNING, END_OF_TIME, instant  # noqa: E402
from tailrace.settings import Settings  # noqa: E402

RIDES = Log(
    name="rides",
    columns={"at": "timestamp", "city": "string", "price": "bigint"},
    event_time="at",
    disorder=hours(1),
)

PIPELINE = Pipeline(
    name="hourly_rides",
    log=RIDES,
    key="city",
    what={"rides": Count(), "mean_price": Mean("price")},
    where=Fixed(hours(1)),
    when=AfterWatermark(late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(2),
)

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
CITIES, HOUR, DAY = 100, 3_600_000_000, 86_400_000_000
COMMITS = 200
"""The number of commits of the ledger and of the answers: one each for as many windows."""

LATE_EACH = 20
"""One answer of so many has a late record."""


def made(settings: Settings, answers: int, runs: int) -> Lake:
    """Make the lake."""
    lake = Lake(settings)
    for contract in contracts(PIPELINE):
        lake.ensure(contract)
    windows, start = answers // CITIES, instant(FIRST)
    watermark = start + windows * HOUR
    backfills = [_backfill(number, start, windows) for number in range(runs)]
    changed = {one.first: one.generation for one in backfills if one.changed}
    said = {"watermark": str(watermark), "processing_time": str(watermark), "generation": "1", "token": "1"}
    said |= {"fingerprint": PIPELINE.fingerprint, "engine": "duckdb: it fits"}
    for commit, part in enumerate(np.array_split(np.arange(windows), COMMITS)):
        rows = _windows(part, start, commit, changed)
        epoch = said | {"epoch": str(commit)}
        _commit(lake, answer_contract(PIPELINE).table, [rows["answers"]], {"epoch": str(commit)})
        _commit(lake, ledger_contract(PIPELINE).table, [rows[one] for one in ("pane", "correction", "late")], epoch)
    stream = Run("stream", "stream", "started", 1, BEGINNING, END_OF_TIME, PIPELINE.fingerprint)
    table = runs_contract(PIPELINE).table
    lake.ensure(runs_contract(PIPELINE))
    rows_ = [_row(one) for one in (stream, *(replace(b, status="started") for b in backfills), *backfills)]
    lake.enter(table, rows_, {"generation": str(runs + 1)}, lake.head(table).snapshot)
    record = {"at": FIRST, "city": "0", "price": 3, "_epoch": COMMITS - 1}
    lake.enter("rides", [record], {"epoch": str(COMMITS - 1)}, lake.head("rides").snapshot)
    return lake


def _backfill(number: int, start: int, windows: int) -> Run:
    first = start + (number * 7 % max(1, windows // 24)) * DAY
    changed = CITIES * 24 if number % 10 == 0 else 0
    return Run(
        f"{number:012x}", "backfill", "committed", number + 2, first, first + DAY, PIPELINE.fingerprint,
        log_epoch=COMMITS, changed=changed, untouched=2400 - changed, retracted=0, reason=f"late, {number}",
        engine="duckdb: it fits",
    )  # fmt: skip


def _windows(part: Any, start: int, commit: int, changed: dict[int, int]) -> dict[str, pa.Table]:
    hours_ = np.repeat(part, CITIES)
    begins = start + hours_ * HOUR
    cities = np.tile([f"city {one}" for one in range(CITIES)], len(part))
    days = start + (begins - start) // DAY * DAY
    generation = np.array([changed.get(int(day), 1) for day in days])
    count = len(begins)

    def columns(rows: Any, kind: str, **more: Any) -> pa.Table:
        times = pa.timestamp("us", "UTC")
        made_ = {"kind": [kind] * len(rows), "city": cities[rows]}
        made_ |= {"window_start": pa.array(begins[rows], times), "window_end": pa.array(begins[rows] + HOUR, times)}
        made_ |= {"epoch": np.full(len(rows), commit), **more}
        return pa.table(made_)

    def fired(rows: Any, kind: str, generations: Any, timing: str, index: int, writer: str, back: Any) -> pa.Table:
        times = pa.timestamp("us", "UTC")
        ended = pa.array(begins[rows] + 2 * HOUR, times)
        return columns(
            rows, kind, generation=generations, pane_index=np.full(len(rows), index), timing=[timing] * len(rows),
            retraction=back, watermark=ended, processing_time=ended, writer=[writer] * len(rows),
            rides=rows % 90 + index, mean_price=rows % 77 / 7,
        )  # fmt: skip

    everything, moved = np.arange(count), np.flatnonzero(generation > 1)
    twice = np.repeat(moved, 2)
    late = everything[::LATE_EACH]
    answers = fired(everything, "pane", generation, "on_time", 0, "stream", np.zeros(count, bool))
    names = [name for name in answer_contract(PIPELINE).columns if name in answers.column_names]
    return {
        "answers": answers.select(names),
        "pane": fired(everything, "pane", np.ones(count, int), "on_time", 0, "stream", np.zeros(count, bool)),
        "correction": fired(
            twice, "pane", generation[twice], "correction", 0, "backfill", np.arange(len(twice)) % 2 == 0
        ),
        "late": columns(
            late, "late", event_time=pa.array(begins[late], pa.timestamp("us", "UTC")), behind=np.full(len(late), HOUR),
            reason=["expired"] * len(late), source_epoch=np.full(len(late), commit),
            source_partition=["one"] * len(late), source_offset=late,
        ),
    }  # fmt: skip


def _commit(lake: Lake, table: str, parts: Sequence[pa.Table], said: dict[str, str]) -> None:
    schema = lake.table(table).schema().as_arrow()
    files = []
    for part in parts:
        if part.num_rows:
            full = [
                part[one.name].cast(one.type) if one.name in part.column_names else pa.nulls(len(part), one.type)
                for one in schema
            ]
            files += lake.write_files(table, pa.table(full, schema=schema))
    lake.change(table, FileChange(tuple(files)), said, lake.head(table).snapshot)


def measured(lake: Lake, visits: int) -> dict[str, list[float]]:
    """Visit the pages, and return how long each visit took, in milliseconds, the first one apart."""
    import re

    from starlette.testclient import TestClient

    from tailrace.serve.guard import Access
    from tailrace.serve.lake_pages import ServedDefinitions
    from tailrace.serve.web_application import application

    app = application(lake, ServedDefinitions({"rides.py": PIPELINE}), Access.of("127.0.0.1", None), tell=print)
    base, found = f"/stages/{PIPELINE.name}", dict[str, list[float]]()
    with TestClient(app, base_url="http://127.0.0.1") as client:
        day = client.get(f"{base}?from=2024-03-01&to=2024-03-02").text
        window = re.findall(r'href="([^"]+/window\?[^"]+)"', day)[0].replace("&amp;", "&")
        pages = {
            "overview": "/",
            "all of event time": base,
            "all of event time, 1,000th page of windows": f"{base}?page=1000",
            "a year": f"{base}?from=2024-01-01&to=2025-01-01",
            "a month": f"{base}?from=2024-03-01&to=2024-04-01",
            "a day": f"{base}?from=2024-03-01&to=2024-03-02",
            "a window": window,
            "its picture": window.replace("/window?", "/window/plot?"),
            "late records": f"{base}/late",
            "runs": f"{base}/runs",
            "a run": f"{base}/runs/{0:012x}",
            "definition": f"{base}/definition",
        }
        for name, path in pages.items():
            for _ in range(visits + 1):
                began = time.perf_counter()
                answer = client.get(path)
                found.setdefault(name, []).append(1000 * (time.perf_counter() - began))
                assert answer.status_code == 200, answer.text
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Make the lake where it is not there yet, and print what its pages take."""
    parser = argparse.ArgumentParser(prog="benchmarks/serving.py", description=__doc__)
    parser.add_argument("--answers", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench" / "serving")
    parser.add_argument("--anew", action="store_true", help="make the lake anew")
    asked = parser.parse_args(given)
    if asked.anew:
        shutil.rmtree(asked.folder, ignore_errors=True)
    settings = Settings(warehouse=asked.folder / "lake")
    lake = Lake(settings)
    if not lake.has(PIPELINE.name):
        began = time.perf_counter()
        lake = made(settings, asked.answers, asked.runs)
        print(f"made a lake of {asked.answers:,} answers in {time.perf_counter() - began:.0f} s")
    for name, times in measured(lake, asked.visits).items():
        first, *others = times
        print(f"{name:45} {statistics.median(others):7.0f} ms, at most {max(others):.0f}, the first {first:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
