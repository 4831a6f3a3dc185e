"""The Photon join: how many records a second, and how soon a click is joined once both sides are there.

What the registry costs is told by the same join without one, and what columns save by the join record by record. All
are Tailrace's own: a join of one click to one query, for good and across restarts, is nothing that Spark's own streams
do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from benchmarks.cases import Bench, Plan, Result, in_turn
from benchmarks.data import VIEWS_A_FILE
from benchmarks.measure import Outcome, Task, serve
from tailrace.engines.spark.session import open_session
from tailrace.generate.delivery import MINUTE, SECOND, Delivery
from tailrace.generate.delivery_files import land
from tailrace.generate.searches import searches
from tailrace.ingest.sources import Files
from tailrace.lake.catalog.lake import Lake
from tailrace.model.definition.computation import Computation
from tailrace.plan.loader import load_any
from tailrace.stream.epoch_report import EpochReport
from tailrace.stream.landing_stream import Stream

FIRST = 1_767_225_600 * SECOND
"""2026-01-01, in microseconds."""

BACKLOG, LENGTH = 300, 30 * MINUTE
"""Records a second of the backlog, and its length: an epoch has those of a minute."""

A_SECOND = 500
"""Records a second that are written for the latencies."""

EVERY = SECOND // 5
WARMING, MEASURED = 25, 40
"""Seconds of writing before latencies count, and of those that do."""


def definition(variant: str) -> Computation:
    """The join of `pipelines/photon.py`; "alone" it claims nothing, and "records" has no code for a batch."""
    found = load_any(str(Path(__file__).parents[1] / "pipelines" / "photon.py") + ":photon")
    assert isinstance(found, Computation)
    if variant == "records":
        one_by_one = {name: getattr(Computation, name) for name in ("process_batch", "process_timers")}
        kind = type("Photon", (type(found),), one_by_one)
        options: dict[str, Any] = {field.name: getattr(found, field.name) for field in fields(found)}
        made: Computation = kind(**options)
        return made
    return replace(found, once=None) if variant == "alone" else found


LOGS = ("searches", "clicks")


def sources(folder: Path, per_epoch: int | None = None) -> dict[str, Files]:
    """The folders of both logs."""
    return {log: Files(str(folder / log), "json", per_epoch) for log in LOGS}


def drain(task: Task) -> Outcome:
    """A backlog, a minute's records an epoch; the seconds of each epoch."""
    spark, lake, reports = open_session(task.settings), Lake(task.settings), list[EpochReport]()
    made = searches(rate=BACKLOG, length=LENGTH, seed=1, first=FIRST)
    for _ in land(_until(made, LENGTH), task.home / "landing", every=MINUTE, instants=("at", "known")):
        pass
    landing = sources(task.home / "landing", 1)
    stream = Stream(spark, lake, [definition(task.variant)], landing, watch=reports.append)
    stream.start(once=True)
    stream.wait()
    stream.close()
    half = reports[len(reports) // 2 :]
    facts = {"records": sum(one.landed.records for one in half), "epochs": len(half)}
    return Outcome([one.seconds for one in half], facts=facts)


def _until(made: Sequence[Delivery], length: int) -> list[Delivery]:
    """What is known by then: what comes hours later would be hundreds of epochs of a record each."""
    return [one for one in made if one.known < FIRST + length]


class Writer(threading.Thread):
    """Writes both logs as they become known; `written` says when each file was there, by its log and its name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.written = folder, dict[tuple[str, str], float]()
        for log in LOGS:
            (folder / log).mkdir(parents=True)

    def run(self) -> None:
        length = (WARMING + MEASURED) * SECOND
        made = _until(searches(rate=A_SECOND, length=length, seed=1, first=FIRST), length)
        started = time.perf_counter()
        wait = lambda end: time.sleep(max(0.0, started + (end - FIRST) / SECOND - time.perf_counter()))  # noqa: E731
        for file in land(made, self.folder, every=EVERY, instants=("at", "known"), wait=wait):
            self.written[file.parent.name, file.name] = time.perf_counter()


def latency(task: Task) -> Outcome:
    """From when both a click and its query were written to when the click is in the ledger as joined."""
    spark, lake = open_session(task.settings), Lake(task.settings)
    writer, ended = Writer(task.home / "landing"), dict[int, float]()

    def watch(report: EpochReport) -> None:
        ended[report.epoch] = time.perf_counter()

    stream = Stream(spark, lake, [definition(task.variant)], sources(writer.folder), watch=watch)
    writer.start()
    while not writer.written:
        time.sleep(0.01)
    stream.start()
    while writer.is_alive():
        stream.wait(0.5)
    quiet = time.perf_counter() + 15
    while time.perf_counter() < quiet:
        stream.wait(0.5)
    stream.stop()
    stream.close()
    rows = spark.sql(
        "SELECT p.epoch, c._source AS clicks, q._source AS searches FROM photon__ledger p JOIN clicks c "
        "ON c.click_id = p.click_id JOIN searches q ON q.query_id = c.query_id WHERE p.kind = 'production'"
    ).collect()
    both = [(row["epoch"], max(writer.written[log, Path(row[log]).name] for log in LOGS)) for row in rows]
    warm = min(writer.written.values()) + WARMING
    seconds = [ended[epoch] - at for epoch, at in both if at >= warm]
    return Outcome(seconds, facts={"epochs": len(ended), "joined": len(rows)})


def photon(plan: Plan, events: int, target: float | None) -> list[Result]:
    """Epochs of a backlog, also record by record, and the p95 of the latencies, with the registry beside without."""
    bench = Bench(plan, "photon", VIEWS_A_FILE)
    ways = ("claims", "alone")
    drained = in_turn(plan, (*ways, "records"), lambda way, n: bench.run("photon", "drain", n, variant=way))
    joined = in_turn(plan, ways, lambda way, n: bench.run("photon", "latency", n, variant=way))
    took = {way: median(fmean(one.seconds) for one in drained[way]) for way in drained}
    late = {way: median(quantiles(one.seconds, n=20)[-1] for one in joined[way]) for way in ways}
    records = drained["claims"][0].facts["records"] // drained["claims"][0].facts["epochs"]
    rates = {way: records / took[way] for way in took}
    halves = {way: median(median(one.seconds) for one in joined[way]) for way in ways}
    return [
        Result(
            "photon", f"an epoch of {records:,}, claims beside none", records, "s", took["claims"], took["alone"],
            plan.runs, target, facts={"records_a_second": rates},
        ),
        Result(
            "photon", f"an epoch of {records:,}, by columns beside by record", records, "s", took["claims"],
            took["records"], plan.runs, None,
        ),
        Result(
            "photon", f"p95 until joined, {A_SECOND} a second", A_SECOND, "s", late["claims"], late["alone"],
            plan.runs, target, facts={"median": halves},
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    serve({"drain": drain, "latency": latency})
