"""What the guarantees cost: records that wait, ids that are remembered, windows that stay open, backfills beside.

Each job runs both of what is compared in one session, or in turn, so that what comes out is a ratio of one run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cases import steady
from benchmarks.data import BEGIN, SCHEMA, Views, file_of_views
from benchmarks.handwritten import TUNED, Streams
from benchmarks.measure import ROOT, JobError, Outcome, Task, serve
from benchmarks.ours import definition, run_stream
from tailrace.engines.spark.session import open_session
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.base.time import days
from tailrace.model.definition.pipeline import Pipeline
from tailrace.model.windows.windows import Fixed
from tailrace.settings import Settings
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream
from tailrace.verify.audit import audit
from tests.support.services.cluster import cluster

A_SECOND = 5_000
"""Records a second that are written for the latencies."""

EVERY = 0.2
"""Seconds from one file to the next."""

WARMING, MEASURED = 25.0, 40.0
"""Seconds of writing before latencies count, and of those that do."""

TOUCHED = 10_000
"""Windows that an epoch touches while the open ones grow."""

OPEN = (100_000, 1_000_000, 10_000_000)

ON_WORKERS = (30_000_000,)
"""Open windows of a stream on a cluster of two workers, with 4 GB each."""


class Writer(threading.Thread):
    """Writes files at a steady rate; `written` says when each was there, by its name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.written = folder, dict[str, float]()
        folder.mkdir(parents=True)

    def run(self) -> None:
        records, started = int(A_SECOND * EVERY), time.perf_counter()
        for number, views in enumerate(_slices(records)):
            due = started + number * EVERY
            if due - started > WARMING + MEASURED:
                return
            time.sleep(max(0.0, due - time.perf_counter()))
            hidden = self.folder / f".{number:05}.parquet"
            pq.write_table(views, hidden)
            hidden.rename(self.folder / f"{number:05}.parquet")
            self.written[f"{number:05}.parquet"] = time.perf_counter()

    def latencies(self, seen: dict[str, float]) -> list[float]:
        """Seconds from when a file was written to when it was seen, of those written after the warming."""
        first = min(self.written.values())
        return [seen[name] - at for name, at in self.written.items() if at - first >= WARMING]


def _slices(records: int) -> Iterator[pa.Table]:
    number = 0
    while True:
        views = file_of_views(number)
        yield from (views.slice(place, records) for place in range(0, len(views), records))
        number += 1


def latency(task: Task) -> Outcome:
    """Ours: from a record's file to its pane in the ledger; with table `p` brought up each epoch, to its row there."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    writer, ended = Writer(task.home / "landing"), dict[int, float]()

    def watch(report: EpochReport) -> None:
        ended[report.epoch] = time.perf_counter()

    pipeline = definition("totals")
    behind = 1 if task.variant == "fresh" else 10
    stream = Stream(spark, lake, [pipeline], Files(str(writer.folder), "parquet"), follow_every=behind, watch=watch)
    writer.start()
    stream.start()
    while writer.is_alive() or not _all_there(ended, spark, len(writer.written)):
        stream.wait(0.5)
    stream.stop()
    stream.close()
    rows = spark.sql("SELECT _source, MIN(_epoch) AS epoch FROM views GROUP BY _source").collect()
    seen = {Path(row["_source"]).name: ended[row["epoch"]] for row in rows}
    return Outcome(writer.latencies(seen), facts={"epochs": len(ended), "records": int(A_SECOND * MEASURED)})


def _all_there(ended: dict[int, float], spark: Any, files: int) -> bool:
    found = spark.sql("SELECT COUNT(DISTINCT _source) AS files, MAX(_epoch) AS last FROM views").collect()[0]
    return bool(found["files"] == files and found["last"] in ended)


class Pacing(Streams):
    """Their queries on files that keep coming; notes when each batch of the totals was merged."""

    done: dict[int, float]

    def run(self) -> float:
        self.done = {}
        started = time.perf_counter()
        self.queries = [
            self._query(self.aggregated(self._read(watermark=True)), "totals", self._noted, self.mode),
            self._query(self._read(watermark=False), "views", self._append, "append"),
        ]
        return time.perf_counter() - started

    def _noted(self, batch: Any, number: int) -> None:
        self._merge(batch, number)
        self.done[number] = time.perf_counter()

    def _query(self, frame: Any, name: str, write: Callable[[Any, int], None], mode: str) -> Any:
        checkpoint = self.task.home / "checkpoints" / f"{name}{self.suffix}"
        writer = frame.writeStream.foreachBatch(write).outputMode(mode).option("checkpointLocation", str(checkpoint))
        return writer.trigger(processingTime="0 seconds").start()

    def batches(self) -> dict[str, int]:
        """Which batch had which file, by the source's own log."""
        found = {}
        for file in (self.task.home / "checkpoints" / f"totals{self.suffix}" / "sources" / "0").glob("[0-9]*"):
            for line in file.read_text().splitlines()[1:]:
                entry = json.loads(line)
                found[Path(entry["path"]).name] = int(entry["batchId"])
        return found


def latency_handwritten(task: Task) -> Outcome:
    """Theirs: from a record's file to its row in the result table."""
    spark = open_session(task.settings, extra=TUNED)
    writer = Writer(task.home / "landing")
    streams = Pacing(spark, task, Views(writer.folder, 0), "", in_step=False, lands=True)
    writer.start()
    streams.run()
    while (
        writer.is_alive()
        or len(streams.batches()) < len(writer.written)
        or max(streams.batches().values()) not in streams.done
    ):
        time.sleep(0.5)
    for query in streams.queries:
        query.stop()
    seen = {name: streams.done[batch] for name, batch in streams.batches().items()}
    return Outcome(writer.latencies(seen), facts={"epochs": len(streams.done)})


def dedup(task: Task) -> Outcome:
    """An epoch with records known by their ids, remembered for a day, beside one without."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    took: dict[str, list[float]] = {"on": [], "off": []}
    run_stream(spark, lake, definition("warm_up", "views_warm_up"), task.warm_up, 1)
    for turn, way in enumerate(("off", "on", "on", "off")):
        pipeline = definition(f"totals_{turn}", f"views_{turn}")
        if way == "on":
            pipeline = replace(pipeline, log=replace(pipeline.log, record_id="view_id", remembered=days(1)))
        took[way].append(steady(run_stream(spark, lake, pipeline, task.views, 1).seconds))
        _audited(spark, lake, pipeline)
    return Outcome(took["on"], facts={"off": took["off"]})


def growth(task: Task) -> Outcome:
    """An epoch that touches so many windows, by how many are open; a window a key, none of which closes."""
    return _grown(task, task.settings, OPEN)


def growth_on_workers(task: Task) -> Outcome:
    """Measure epochs beside many open windows on a cluster: two workers with a core and 4 GB, and a driver with 2.

    Of a worker's memory 3 GB are its executor's heap.
    """
    with cluster(task.home / "cluster", task.settings, memory="4g", heap=(heap := "3g")) as place:
        settings = task.settings.model_copy(
            update={"spark_master": place.address, "driver_memory": "2g", "windows_in_driver": 0}
        )
        with patch.dict(os.environ, {name: value for name, value in place.env.items() if name != "JAVA_HOME"}):
            found = _grown(task, settings, ON_WORKERS, {"spark.executor.memory": heap})
        found.facts["executors"] = place.said.count("Launching executor")
    return found


def _grown(task: Task, settings: Settings, sizes: Sequence[int], extra: Mapping[str, str] | None = None) -> Outcome:
    spark, lake = open_session(settings, extra=extra), Lake(settings)
    run_stream(spark, lake, definition("warm_up", "views_warm_up"), task.warm_up, 1)
    took, longest = {}, {}
    for number in sizes:
        folder = task.home / f"open_{number}"
        views = _keys(folder, number)
        pipeline = replace(definition(f"open_{number}", f"keys_{number}"), where=Fixed(timedelta(days=1)))
        seconds = run_stream(spark, lake, pipeline, views, 1).seconds
        took[str(number)], longest[str(number)] = median(seconds[-(EPOCHS // 2) :]), max(seconds[-EPOCHS:])
    return Outcome([took[str(sizes[-1])]], facts={"open": took, "longest": longest})


EPOCHS = 48
"""Epochs that touch some of the windows, after those that open them: on Spark windows go back to rest among them."""

FILE = 1_000_000


def _keys(folder: Path, number: int) -> Views:
    """Files that open a window for each of so many keys, and then files that touch some of them."""
    folder.mkdir()
    random = np.random.default_rng(number)
    files = [np.arange(first, min(first + FILE, number)) for first in range(0, number, FILE)]
    opened = len(files)
    files += [random.choice(number, TOUCHED, replace=False) for _ in range(EPOCHS)]
    for place, keys in enumerate(files):
        at = int(BEGIN.timestamp() * 1_000_000) + place * 1_000_000
        columns = {"view_id": keys, "advertiser": keys, "price": keys % 997, "viewed_at": np.full(len(keys), at)}
        arrays = [pa.array(columns[field.name].astype(np.int64)).cast(field.type) for field in SCHEMA]
        file = folder / f"{place:05}.parquet"
        pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), file)
        os.utime(file, (BEGIN.timestamp() - 1e6 + place,) * 2)
    return Views(folder, opened + EPOCHS)


def beside(task: Task) -> Outcome:
    """A stream's epochs while every interval that has closed is backfilled in another process, beside those before."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    pipeline, reports = definition("totals"), list[tuple[float, EpochReport]]()
    source = Files(str(task.views.folder), "parquet", 1)
    stream = Stream(spark, lake, [pipeline], source, watch=lambda one: reports.append((time.perf_counter(), one)))
    stream.start(once=True)
    half = task.views.files // 2
    while len(reports) < half and not stream.wait(0.2):
        pass
    command = [sys.executable, "-m", "benchmarks.guarantees", "backfills", str(task.lake)]
    env = os.environ | {"TAILRACE_WAREHOUSE": str(task.lake), "TAILRACE_DRIVER_MEMORY": "1g"}
    first = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as child:
        stream.wait()
        out, _ = child.communicate()
    last = first + float(json.loads(out.splitlines()[-1])["seconds"])
    stream.close()
    if child.returncode:
        raise JobError(f"the backfills beside failed: {out}")
    _audited(spark, lake, pipeline)
    alone = [one.seconds for _, one in reports[half // 2 : half]]
    during = [one.seconds for at, one in reports if first < at < last]
    return Outcome([_p95(during)], facts={"alone": _p95(alone), "epochs": len(during)})


def backfills(lake: Path) -> None:
    """Backfill the intervals that are closed, each on its own, and say how long all of it took."""
    from benchmarks.data import WINDOW
    from tailrace.backfill.backfill import backfill
    from tailrace.model.base.time import instant

    started = time.perf_counter()
    settings = Settings(warehouse=lake, namespace="main")
    tables, pipeline = Lake(settings), definition("totals")
    for number in range(30):
        begin = BEGIN + number % 10 * WINDOW
        backfill(tables, pipeline, instant(begin), instant(begin + WINDOW))
    print(json.dumps({"seconds": time.perf_counter() - started}))


def _p95(seconds: list[float]) -> float:
    return float(np.percentile(seconds, 95))


def _audited(spark: Any, lake: Lake, pipeline: Pipeline) -> None:
    found = audit(lake, pipeline)
    if not found.ok:
        raise JobError(f"{pipeline.name}: {[check for check in found.checks if not check.ok]}")


if __name__ == "__main__":
    if sys.argv[1] == "backfills":
        backfills(Path(sys.argv[2]))
    else:
        jobs = {"latency": latency, "latency_handwritten": latency_handwritten, "dedup": dedup}
        serve(jobs | {"growth": growth, "growth_on_workers": growth_on_workers, "beside": beside})
